//! A parsed document, whatever it was written in.

use serde_json::Value;

/// A value of a document. Objects keep the order of their entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as its digits: a float would round.
    Number(String),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// An object.
    Object(Vec<(String, Node)>),
    /// Something that JSON does not have, in words.
    Other(&'static str),
}

impl From<&Value> for Node {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Number(number) => Self::Number(number.to_string()),
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(map) => {
                Self::Object(map.iter().map(|(name, value)| (name.clone(), value.into())).collect())
            }
        }
    }
}

impl Node {
    /// The same as JSON; what JSON cannot express becomes `null`.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Null | Self::Other(_) => Value::Null,
            Self::Bool(truth) => (*truth).into(),
            Self::Number(digits) => serde_json::from_str(digits).unwrap_or_default(),
            Self::Text(text) => text.as_str().into(),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Object(entries) => {
                entries.iter().map(|(name, node)| (name.clone(), node.to_json())).collect()
            }
        }
    }

    /// The value of a key of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// The entries of an object; none of anything else.
    pub fn entries(&self) -> &[(String, Self)] {
        match self {
            Self::Object(entries) => entries,
            _ => &[],
        }
    }

    pub(super) fn whole(&self) -> Option<u64> {
        match self {
            Self::Number(digits) => digits.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn thousandths(&self) -> Option<u64> {
        let Self::Number(digits) = self else { return None };
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
        let decimals = decimals.trim_end_matches('0');
        if decimals.len() > 3 {
            return None;
        }
        let fraction: u64 = format!("{decimals:0<3}").parse().ok()?;
        whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(fraction)
    }
}

/// Thousandths as the shortest decimal.
pub fn decimal(thousandths: u64) -> String {
    let digits = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}
