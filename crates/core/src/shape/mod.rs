//! The keys of a document as one table: name, type, range, default and one line of documentation each.
//!
//! The check of a document, the suggestion for a misspelt key, the typed values, the JSON Schema for editors and the
//! template of a new file are all made from the table, so they cannot differ. The policy, `rota.yml` and notification
//! hooks each have one.

mod node;
mod read;
mod schema;
mod section;

pub use node::{Node, decimal};
pub use read::{Checked, Notation, below, unknown_key};
pub use section::{FromNode, Section};

/// Where a document is wrong, and what is allowed there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct KeyError {
    /// Dotted path of the key.
    pub path: String,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

impl KeyError {
    /// An error at a path.
    pub fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }
}

/// The type and range of a value.
pub enum Shape {
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// A number with at most three decimals, from the first to the second, in thousandths; read as thousandths.
    Decimal(u64, u64),
    /// `true` or `false`.
    Truth,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any text.
    Text,
    /// A text; an error describes it by these words.
    TextAs(&'static str),
    /// A text that [`crate::id::check_name`] accepts; an error calls it by this noun.
    Name(&'static str),
    /// A list of texts; an error calls them by this noun.
    Texts(&'static str),
    /// A text or a list of texts; an error describes both by these words.
    TextOrTexts(&'static str),
    /// A list; an error calls its items by this noun.
    List(&'static Shape, &'static str),
    /// `null` too, which removes a default.
    OrNull(&'static Shape),
    /// `false` too, which switches the setting off.
    OrFalse(&'static Shape),
    /// An object whose names are the user's own; some are well known.
    Each(&'static Shape, &'static [&'static str]),
    /// An object with exactly these keys, each of which may be absent.
    Keys(&'static [Key]),
    /// An object with these keys, and with names of the user's own that all have one shape.
    KeysAndEach(&'static [Key], &'static Shape),
    /// A part of the policy document, which is checked where that is read.
    Policy(&'static Shape),
}

/// One key of an object.
pub struct Key {
    /// As it is written in the document's own spelling.
    pub name: &'static str,
    /// The type and range of its value.
    pub shape: Shape,
    /// One line of documentation.
    pub about: &'static str,
    /// Its value where the document does not name it, as JSON. An object without one is optional as a whole.
    pub default: Option<&'static str>,
    /// A value to show in a template, as JSON.
    pub example: Option<&'static str>,
}

/// A key without a default.
pub const fn key(name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { name, shape, about, default: None, example: None }
}

impl Key {
    /// The same with a default, as JSON.
    #[must_use]
    pub const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    /// The same with an example.
    #[must_use]
    pub const fn such_as(mut self, example: &'static str) -> Self {
        self.example = Some(example);
        self
    }
}

impl Shape {
    /// The keys of an object; none for any other shape.
    pub const fn keys(&self) -> &'static [Key] {
        match self {
            Self::Keys(keys) | Self::KeysAndEach(keys, _) => keys,
            Self::OrNull(shape) | Self::Each(shape, _) | Self::List(shape, _) => shape.keys(),
            _ => &[],
        }
    }

    /// The allowed values in words.
    fn wanted(&self, notation: Notation) -> String {
        match self {
            Self::Whole(from, to) if from == to => from.to_string(),
            Self::Whole(from, to) => format!("a whole number from {from} to {to}"),
            Self::Decimal(from, to) => {
                format!("a number from {} to {} with at most three decimals", decimal(*from), decimal(*to))
            }
            Self::Truth => "true or false".into(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Text | Self::Name(_) => "a text".into(),
            Self::TextAs(wanted) | Self::TextOrTexts(wanted) => (*wanted).into(),
            Self::Texts(items) | Self::List(_, items) => format!("a list of {items}"),
            Self::OrNull(shape) | Self::OrFalse(shape) | Self::Policy(shape) => shape.wanted(notation),
            Self::Each(..) | Self::Keys(_) | Self::KeysAndEach(..) => notation.object().into(),
        }
    }
}
