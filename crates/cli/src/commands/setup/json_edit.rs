//! Edits of a JSON file as text: an entry is added or taken out, and every other byte stays.
//!
//! `remove` must undo `add` without any record of the file as it was. So the text that `add` writes says what was there:
//! - Behind another entry: `,`, then the white space that is before that entry, then ours.
//! - In an empty object or array that the file has: one space, then ours.
//! - Objects and arrays on the way that the file lacks are written with it, without that space; they go when they are
//!   empty.

use serde_json::Value;
use serde_json::ser::PrettyFormatter;

use super::State;
use super::json_tree::{Node, Tree};

/// An entry that a file should have.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The keys of the objects on the way to its container.
    pub path: &'static [&'static str],
    /// Its key; none for an element of an array.
    pub key: Option<&'static str>,
    /// The entry.
    pub value: Value,
    /// Whether an entry was written by `rota setup`, of any version.
    pub is_ours: fn(&Value) -> bool,
    /// Whether `add` only updates it where it is.
    pub is_optional: bool,
}

/// Where an entry is, or how far the way to it goes.
enum Place<'a> {
    /// The nodes from the root to the container, and the position of our entry there.
    Here(Vec<&'a Node>, usize),
    /// The nodes from the root to the last that exists.
    Until(Vec<&'a Node>),
}

impl Entry {
    /// How the entry in a file compares to this one.
    pub fn state(&self, text: &str) -> Result<State, String> {
        let tree = Tree::read(text)?;
        Ok(match self.find(&tree)? {
            Place::Until(_) => State::Missing,
            Place::Here(way, at) => {
                let is_current = tree.value(last(&way).child(at)) == self.value;
                if is_current { State::Current } else { State::Stale }
            }
        })
    }

    /// The file with this entry; `None` is no file.
    pub fn add(&self, text: Option<&str>) -> Result<String, String> {
        let Some(text) = text else {
            return Ok(pretty(&self.wrapped(0), "  ", "\n", "") + "\n");
        };
        let tree = Tree::read(text)?;
        match self.find(&tree)? {
            Place::Here(way, at) => {
                let old = last(&way).child(at);
                if tree.value(old) == self.value {
                    return Ok(text.to_owned());
                }
                let is_pretty = text[old.span.clone()].contains('\n');
                let new = if is_pretty { tree.pretty_at(&self.value, old) } else { self.value.to_string() };
                Ok(spliced(text, old.span.clone(), &new))
            }
            Place::Until(way) => Ok(self.insert(&tree, &way)),
        }
    }

    /// The file without this entry; `None` where the file should not exist.
    pub fn remove(&self, text: &str) -> Result<Option<String>, String> {
        let tree = Tree::read(text)?;
        let Place::Here(mut way, mut at) = self.find(&tree)? else { return Ok(Some(text.to_owned())) };
        while let Some(container) = way.pop() {
            if container.children.len() > 1 || is_filled(text, container, at) {
                return Ok(Some(spliced(text, cut(container, at), "")));
            }
            let Some(parent) = way.last() else { break };
            at = parent.position_of(container);
        }
        Ok(None)
    }

    fn find<'a>(&self, tree: &'a Tree<'_>) -> Result<Place<'a>, String> {
        let mut way = vec![&tree.root];
        for (depth, key) in self.path.iter().enumerate() {
            if !last(&way).is_object() {
                return Err(self.wrong(depth, "an object"));
            }
            let Some(at) = last(&way).position(key) else { return Ok(Place::Until(way)) };
            way.push(last(&way).child(at));
        }
        let container = last(&way);
        let is_right = if self.key.is_some() { container.is_object() } else { container.is_array() };
        if !is_right {
            let wanted = if self.key.is_some() { "an object" } else { "an array" };
            return Err(self.wrong(self.path.len(), wanted));
        }
        let Some(key) = self.key else {
            let is_ours = |node: &Node| (self.is_ours)(&tree.value(node));
            let at = container.children.iter().position(|child| is_ours(&child.node));
            return Ok(at.map_or(Place::Until(way.clone()), |at| Place::Here(way, at)));
        };
        match container.position(key) {
            Some(at) if (self.is_ours)(&tree.value(container.child(at))) => Ok(Place::Here(way, at)),
            Some(_) => Err(format!(
                "has {}.{key}, which `rota setup` did not write: rename or delete it, then run setup again",
                self.path.join(".")
            )),
            None => Ok(Place::Until(way)),
        }
    }

    fn wrong(&self, depth: usize, wanted: &str) -> String {
        match depth {
            0 => format!("is not {wanted}"),
            _ => format!("has {}, which is not {wanted}", self.path[..depth].join(".")),
        }
    }

    fn insert(&self, tree: &Tree<'_>, way: &[&Node]) -> String {
        let depth = way.len() - 1;
        let container = last(way);
        let (key, value) = match self.path.get(depth) {
            Some(key) => (Some(*key), self.wrapped(depth + 1)),
            None => (self.key, self.value.clone()),
        };
        let key = key.map(|key| Value::from(key).to_string());
        let Some(sibling) = container.children.last() else {
            let key = key.map_or(String::new(), |key| key + ":");
            let at = container.span.start + 1;
            return spliced(tree.text, at..at, &format!(" {key}{value}"));
        };
        let space = &tree.text[sibling.space.clone()];
        let (written, colon) = match space.contains('\n') {
            true => (tree.pretty_at(&value, &sibling.node), ": "),
            false => (value.to_string(), ":"),
        };
        let key = key.map_or(String::new(), |key| key + colon);
        let at = sibling.node.span.end;
        spliced(tree.text, at..at, &format!(",{space}{key}{written}"))
    }

    /// The entry inside the objects of the path from `depth` on.
    fn wrapped(&self, depth: usize) -> Value {
        let object = |key: &str, value: Value| Value::Object([(key.to_owned(), value)].into_iter().collect());
        let inner = match self.key {
            Some(key) => object(key, self.value.clone()),
            None => Value::Array(vec![self.value.clone()]),
        };
        self.path[depth..].iter().rev().fold(inner, |inner, key| object(key, inner))
    }
}

fn last<'a>(way: &[&'a Node]) -> &'a Node {
    way[way.len() - 1]
}

/// Whether our entry is alone in a container that was empty before.
fn is_filled(text: &str, container: &Node, at: usize) -> bool {
    &text[container.children[at].space.clone()] == " "
}

/// The bytes that leave with an entry.
fn cut(container: &Node, at: usize) -> std::ops::Range<usize> {
    let children = &container.children;
    let end = children[at].node.span.end;
    match at.checked_sub(1) {
        Some(before) => children[before].node.span.end..end,
        None if children.len() > 1 => children[at].first_byte()..children[at + 1].first_byte(),
        None => container.span.start + 1..end,
    }
}

fn spliced(text: &str, range: std::ops::Range<usize>, new: &str) -> String {
    [&text[..range.start], new, &text[range.end..]].concat()
}

impl Tree<'_> {
    /// A value in the file's own indentation, as it would stand where this node is.
    fn pretty_at(&self, value: &Value, node: &Node) -> String {
        let line = self.text[..node.span.start].rfind('\n').map_or(0, |at| at + 1);
        let rest = &self.text[line..];
        let base = &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()];
        let eol = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        let first = self.root.children.first().map(|child| &self.text[child.space.clone()]);
        let unit = first.and_then(|space| space.rsplit_once('\n')).map_or("  ", |(_, unit)| unit);
        pretty(value, if unit.is_empty() { "  " } else { unit }, eol, base)
    }
}

/// A value over several lines, all but the first of which begin with `base`.
pub fn pretty(value: &Value, unit: &str, eol: &str, base: &str) -> String {
    let mut bytes = Vec::new();
    let formatter = PrettyFormatter::with_indent(unit.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    let written = serde::Serialize::serialize(value, &mut serializer);
    written.unwrap_or_else(|error| panic!("a value is not JSON: {error}"));
    String::from_utf8_lossy(&bytes).replace('\n', &format!("{eol}{base}"))
}
