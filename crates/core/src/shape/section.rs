//! Typed values of a checked document.

use std::collections::BTreeMap;

use super::{Key, KeyError, Node, Shape, below};

/// A checked object with its keys: what the document does not name has the default of the table.
pub struct Section<'a> {
    path: String,
    keys: &'static [Key],
    node: &'a Node,
}

/// A type that a checked value can be read as.
pub trait FromNode: Sized {
    /// The value; none for `null` or `false` in place of one.
    fn from_node(node: &Node) -> Option<Self>;
}

impl<'a> Section<'a> {
    /// The object at `path`, which was checked against these keys.
    pub fn new(keys: &'static [Key], path: impl Into<String>, node: &'a Node) -> Self {
        Self { path: path.into(), keys, node }
    }

    /// An object that names nothing.
    pub fn empty(keys: &'static [Key]) -> Section<'static> {
        Section { path: String::new(), keys, node: &Node::Null }
    }

    fn key(&self, name: &str) -> &'static Key {
        let found = self.keys.iter().find(|key| key.name == name);
        found.unwrap_or_else(|| unreachable!("{} is not in the table of keys", self.path_of(name)))
    }

    /// The value that the document gives to a key.
    pub fn given(&self, key: &str) -> Option<&'a Node> {
        debug_assert_eq!(self.key(key).name, key);
        self.node.get(key)
    }

    /// Whether the document names a key.
    pub fn has(&self, key: &str) -> bool {
        self.given(key).is_some()
    }

    /// The value of a key or its default; none if it has neither, or is switched off.
    pub fn get<T: FromNode>(&self, key: &str) -> Option<T> {
        match self.given(key) {
            Some(node) => T::from_node(node),
            None => T::from_node(&self.key(key).default_node()?),
        }
    }

    /// The value of a key that has a default.
    pub fn value<T: FromNode>(&self, key: &str) -> T {
        self.get(key).unwrap_or_else(|| unreachable!("{} has no default", self.path_of(key)))
    }

    /// Changes a value to that of a key, if it has one.
    pub fn set<T: FromNode>(&self, key: &str, value: &mut T) {
        if let Some(given) = self.get(key) {
            *value = given;
        }
    }

    /// The same where the document may remove a value.
    pub fn set_or_remove<T: FromNode>(&self, key: &str, value: &mut Option<T>) {
        if self.has(key) {
            *value = self.get(key);
        }
    }

    /// The meaning of a word, or of the default one.
    pub fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let given: String = self.get(key)?;
        words.iter().find(|(word, _)| *word == given).map(|(_, meaning)| *meaning)
    }

    /// A section below this one. One that is not named has the defaults of its keys, or is absent if it has no default
    /// as a whole.
    pub fn section(&self, key: &str) -> Option<Section<'a>> {
        let keys = self.key(key);
        let node = match self.given(key) {
            None | Some(Node::Null) => keys.default.map(|_| &Node::Null)?,
            Some(node) => node,
        };
        Some(Section::new(keys.shape.keys(), self.path_of(key), node))
    }

    /// The sections below a key that holds one for each name of the user's own.
    pub fn sections(&self, key: &str) -> impl Iterator<Item = (&'a str, Section<'a>)> {
        let (keys, path) = (self.key(key).shape.keys(), self.path_of(key));
        let entries = self.given(key).map(Node::entries).unwrap_or_default();
        entries.iter().map(move |(name, node)| (name.as_str(), Section::new(keys, below(&path, name), node)))
    }

    /// The path of this section.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path of one of its keys.
    pub fn path_of(&self, key: &str) -> String {
        below(&self.path, key)
    }

    /// An error about the section as a whole.
    pub fn error(&self, problem: impl Into<String>) -> KeyError {
        KeyError::new(&self.path, problem)
    }

    /// An error about one of its keys.
    pub fn error_at(&self, key: &str, problem: impl Into<String>) -> KeyError {
        KeyError::new(self.path_of(key), problem)
    }
}

impl Key {
    /// The default, in the form of a checked value.
    fn default_node(&self) -> Option<Node> {
        let value = serde_json::from_str::<serde_json::Value>(self.default?);
        let node = Node::from(&value.unwrap_or_else(|error| unreachable!("{}: {error}", self.name)));
        Some(match (&self.shape, node.thousandths()) {
            (Shape::Decimal(..), Some(thousandths)) => Node::Number(thousandths.to_string()),
            _ => node,
        })
    }
}

impl FromNode for u64 {
    fn from_node(node: &Node) -> Option<Self> {
        node.whole()
    }
}

/// Every range of a table ends within 32 bits where this is used.
impl FromNode for u32 {
    fn from_node(node: &Node) -> Option<Self> {
        node.whole().map(|number| Self::try_from(number).unwrap_or(Self::MAX))
    }
}

impl FromNode for i64 {
    fn from_node(node: &Node) -> Option<Self> {
        node.whole().map(u64::cast_signed)
    }
}

impl FromNode for bool {
    fn from_node(node: &Node) -> Option<Self> {
        match node {
            Node::Bool(truth) => Some(*truth),
            _ => None,
        }
    }
}

impl FromNode for String {
    fn from_node(node: &Node) -> Option<Self> {
        match node {
            Node::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl<T: FromNode> FromNode for Vec<T> {
    fn from_node(node: &Node) -> Option<Self> {
        match node {
            Node::List(items) => items.iter().map(T::from_node).collect(),
            _ => None,
        }
    }
}

impl<T: FromNode> FromNode for BTreeMap<String, T> {
    fn from_node(node: &Node) -> Option<Self> {
        match node {
            Node::Object(entries) => {
                entries.iter().map(|(name, node)| Some((name.clone(), T::from_node(node)?))).collect()
            }
            _ => None,
        }
    }
}
