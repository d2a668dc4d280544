//! Checks a document against its table.

use std::collections::{BTreeMap, BTreeSet};

use super::{Key, KeyError, Node, Shape};
use crate::text;

/// How a document is written: which spelling its keys have, and how errors speak of its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notation {
    /// Keys are camelCase and may be written in snake_case or kebab-case; a `null` is a value.
    Json,
    /// Keys are snake_case and may be written in kebab-case; a key without a value counts as absent.
    Yaml,
}

impl Notation {
    /// The document's own spelling of a key.
    pub fn spelling(self, key: &str) -> String {
        match self {
            Self::Json => camel_case(key),
            Self::Yaml => key.replace('-', "_"),
        }
    }

    pub(super) const fn object(self) -> &'static str {
        match self {
            Self::Json => "an object",
            Self::Yaml => "a mapping",
        }
    }

    /// A value as an error shows it.
    pub fn shown(self, node: &Node) -> String {
        const LIMIT: usize = 80;
        let shown = match (node, self) {
            (Node::Null, Self::Json) => "null".to_owned(),
            (Node::Null, Self::Yaml) => "nothing".to_owned(),
            (Node::Bool(truth), _) => truth.to_string(),
            (Node::Number(digits), _) => digits.clone(),
            (Node::Text(text), _) => format!("\"{}\"", text::escaped(text)),
            (Node::List(_), Self::Json) => "an array".to_owned(),
            (Node::List(_), Self::Yaml) => "a list".to_owned(),
            (Node::Object(_), _) => self.object().to_owned(),
            (Node::Other(words), _) => (*words).to_owned(),
        };
        shown.chars().take(LIMIT).collect()
    }

    fn expected(self, path: &str, wanted: &str, node: &Node) -> KeyError {
        let path = match (path, self) {
            ("", Self::Json) => "policy",
            ("", Self::Yaml) => "top",
            (path, _) => path,
        };
        KeyError::new(path, format!("expected {wanted}, got {}", self.shown(node)))
    }
}

/// A document that fits its table: keys in the document's own spelling, decimals in thousandths.
#[derive(Debug)]
pub struct Checked {
    /// What the document names.
    pub node: Node,
    /// The dotted path of every key that it names, except for sections.
    pub named: BTreeSet<String>,
}

impl Shape {
    /// Checks a value that is at `path` of its document.
    pub fn check(&self, notation: Notation, path: &str, node: &Node) -> Result<Checked, KeyError> {
        let mut reader = Reader { notation, named: BTreeSet::new() };
        let node = reader.read(self, path, node)?;
        Ok(Checked { node, named: reader.named })
    }
}

struct Reader {
    notation: Notation,
    named: BTreeSet<String>,
}

impl Reader {
    fn read(&mut self, shape: &Shape, path: &str, node: &Node) -> Result<Node, KeyError> {
        let wrong = || self.notation.expected(path, &shape.wanted(self.notation), node);
        let plain = |fits: bool| if fits { Ok(node.clone()) } else { Err(wrong()) };
        match (shape, node) {
            (Shape::Whole(from, to), _) => {
                plain(node.whole().is_some_and(|number| (*from..=*to).contains(&number)))
            }
            (Shape::Decimal(from, to), _) => {
                let number = node.thousandths().filter(|number| (*from..=*to).contains(number));
                number.map(|number| Node::Number(number.to_string())).ok_or_else(wrong)
            }
            (Shape::Truth, _) => plain(matches!(node, Node::Bool(_))),
            (Shape::Word(words), Node::Text(text)) => plain(words.contains(&text.as_str())),
            (Shape::Text | Shape::Name(_), Node::Number(_) | Node::Bool(_))
                if self.notation == Notation::Yaml =>
            {
                // YAML would change it.
                Err(self.notation.expected(path, "a text (in quotes)", node))
            }
            (Shape::Name(noun), Node::Text(name)) => match crate::id::check_name(noun, name) {
                Ok(_) => Ok(node.clone()),
                Err(error) => Err(KeyError::new(path, error.to_string())),
            },
            (Shape::Text | Shape::TextAs(_) | Shape::TextOrTexts(_), Node::Text(text)) => {
                // Texts of YAML become arguments and variables of processes.
                plain(self.notation == Notation::Json || !text.contains('\0'))
            }
            (Shape::Texts(_) | Shape::TextOrTexts(_), Node::List(items)) => {
                self.list(&Shape::Text, path, items)
            }
            (Shape::List(shape, _), Node::List(items)) => self.list(shape, path, items),
            (Shape::OrNull(_), Node::Null) | (Shape::OrFalse(_), Node::Bool(false)) => Ok(node.clone()),
            (Shape::OrNull(shape) | Shape::OrFalse(shape), _) => self.read(shape, path, node),
            (Shape::Policy(_), _) => Ok(node.clone()),
            (Shape::Each(shape, _), Node::Object(entries)) => {
                let entry = |(name, node): &(String, Node)| {
                    Ok((name.clone(), self.read(shape, &below(path, name), node)?))
                };
                entries.iter().map(entry).collect::<Result<_, _>>().map(Node::Object)
            }
            (Shape::Keys(keys), Node::Object(entries)) => self.keys(keys, None, path, entries),
            (Shape::KeysAndEach(keys, each), Node::Object(entries)) => {
                self.keys(keys, Some(each), path, entries)
            }
            (Shape::Keys(_) | Shape::KeysAndEach(..), Node::Null) if self.notation == Notation::Yaml => {
                Ok(Node::Object(Vec::new()))
            }
            _ => Err(wrong()),
        }
    }

    fn list(&mut self, shape: &Shape, path: &str, items: &[Node]) -> Result<Node, KeyError> {
        let item = |(index, node)| self.read(shape, &format!("{path}[{index}]"), node);
        items.iter().enumerate().map(item).collect::<Result<_, _>>().map(Node::List)
    }

    fn keys(
        &mut self,
        keys: &[Key],
        each: Option<&Shape>,
        path: &str,
        entries: &[(String, Node)],
    ) -> Result<Node, KeyError> {
        let mut given: BTreeMap<String, (&str, &Node)> = BTreeMap::new();
        for (name, node) in entries {
            let key = self.notation.spelling(name);
            if let Some((other, before)) = given.insert(key.clone(), (name, node)) {
                match self.notation {
                    Notation::Json => return Err(KeyError::new(below(path, &key), "given twice")),
                    Notation::Yaml if before == node => {}
                    Notation::Yaml => {
                        let (other, name) = (text::escaped(other), text::escaped(name));
                        return Err(KeyError::new(
                            path,
                            format!("'{other}' and '{name}' say different things"),
                        ));
                    }
                }
            }
        }
        if self.notation == Notation::Yaml {
            given.retain(|_, (_, node)| **node != Node::Null);
        }
        let known = || keys.iter().map(|key| key.name);
        let is_unknown = |key: &String| known().all(|known| known != key);
        if each.is_none()
            && let Some((key, (name, _))) = given.iter().find(|(key, _)| is_unknown(key))
        {
            return Err(unknown_key(path, name, key, known()));
        }
        let mut read = Vec::new();
        for key in keys {
            let Some((_, node)) = given.remove(key.name) else { continue };
            let path = below(path, key.name);
            read.push((key.name.to_owned(), self.read(&key.shape, &path, node)?));
            if !matches!(key.shape, Shape::Keys(_) | Shape::KeysAndEach(..)) {
                self.named.insert(path);
            }
        }
        if let Some(shape) = each {
            for (name, node) in given.values() {
                read.push(((*name).to_owned(), self.read(shape, &below(path, name), node)?));
            }
        }
        Ok(Node::Object(read))
    }
}

/// The error for a key that `path` does not have, with the nearest one that it has. `name` is the key as it is written,
/// `key` the same in the document's own spelling.
pub fn unknown_key<'a>(
    path: &str,
    name: &str,
    key: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> KeyError {
    let hint =
        text::nearest(key, known.clone()).map_or(String::new(), |word| format!(", did you mean '{word}'?"));
    let known = known.collect::<Vec<_>>().join(", ");
    KeyError::new(below(path, name), format!("unknown key{hint} (known here: {known})"))
}

/// The dotted path of a key.
pub fn below(path: &str, name: &str) -> String {
    let name = text::escaped(name);
    if path.is_empty() { name.into_owned() } else { format!("{path}.{name}") }
}

/// A key with a separator too many is unknown in any spelling, and stays as it is.
fn camel_case(key: &str) -> String {
    if key.split(['_', '-']).any(str::is_empty) {
        return key.to_owned();
    }
    let mut camel = String::with_capacity(key.len());
    let mut upper = false;
    for character in key.chars() {
        if matches!(character, '_' | '-') {
            upper = true;
        } else {
            camel.push(if upper { character.to_ascii_uppercase() } else { character });
            upper = false;
        }
    }
    camel
}
