//! JSON with the place of every value in the text.

use std::ops::Range;

use serde_json::Value;

/// Values are nested at most this deep; `serde_json` refuses more.
const MAX_DEPTH: usize = 128;

/// A text that is JSON.
pub struct Tree<'a> {
    pub text: &'a str,
    pub root: Node,
}

/// A value.
pub struct Node {
    pub span: Range<usize>,
    /// The entries of an object or an array.
    pub children: Vec<Child>,
    kind: u8,
}

/// An entry of an object or an array.
pub struct Child {
    /// The white space before it, behind the bracket or the comma.
    pub space: Range<usize>,
    pub key: Option<String>,
    pub node: Node,
}

impl Child {
    /// Where it begins: its key, or its value in an array.
    pub fn first_byte(&self) -> usize {
        self.space.end
    }
}

impl Node {
    pub fn is_object(&self) -> bool {
        self.kind == b'{'
    }

    pub fn is_array(&self) -> bool {
        self.kind == b'['
    }

    pub fn child(&self, at: usize) -> &Self {
        &self.children[at].node
    }

    /// The position of a key. Of several, the last counts, as for every parser that agents use.
    pub fn position(&self, key: &str) -> Option<usize> {
        self.children.iter().rposition(|child| child.key.as_deref() == Some(key))
    }

    /// The position of a value that is in this one.
    pub fn position_of(&self, node: &Self) -> usize {
        let at = self.children.iter().position(|child| child.node.span == node.span);
        at.unwrap_or_else(|| panic!("a value is not in its container"))
    }
}

impl<'a> Tree<'a> {
    /// Reads a text, or says why it is not JSON.
    pub fn read(text: &'a str) -> Result<Self, String> {
        serde_json::from_str::<Value>(text).map_err(|error| format!("is not valid JSON ({error})"))?;
        let mut scan = Scan { text, at: 0 };
        scan.space();
        let root = scan.node(0);
        Ok(Self { text, root })
    }

    pub fn value(&self, node: &Node) -> Value {
        serde_json::from_str(&self.text[node.span.clone()]).unwrap_or_default()
    }
}

/// Reads text that is known to be JSON.
struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl Scan<'_> {
    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or_default()
    }

    fn space(&mut self) -> Range<usize> {
        let start = self.at;
        while matches!(self.byte(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        start..self.at
    }

    fn node(&mut self, depth: usize) -> Node {
        assert!(depth <= MAX_DEPTH, "JSON is nested deeper than its parser allows");
        let (start, kind) = (self.at, self.byte());
        let mut children = Vec::new();
        match kind {
            b'{' | b'[' => self.children(kind, depth, &mut children),
            b'"' => self.string(),
            _ => {
                while !matches!(self.byte(), b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' | 0) {
                    self.at += 1;
                }
            }
        }
        Node { span: start..self.at, children, kind }
    }

    fn children(&mut self, kind: u8, depth: usize, children: &mut Vec<Child>) {
        self.at += 1;
        loop {
            let space = self.space();
            if matches!(self.byte(), b'}' | b']') {
                self.at += 1;
                return;
            }
            let key = (kind == b'{').then(|| self.key());
            let node = self.node(depth + 1);
            children.push(Child { space, key, node });
            self.space();
            if self.byte() == b',' {
                self.at += 1;
            }
        }
    }

    /// A key, its colon and the white space around it.
    fn key(&mut self) -> String {
        let start = self.at;
        self.string();
        let key = serde_json::from_str(&self.text[start..self.at]).unwrap_or_default();
        self.space();
        self.at += 1;
        self.space();
        key
    }

    fn string(&mut self) {
        self.at += 1;
        while self.byte() != b'"' {
            self.at += if self.byte() == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
    }
}
