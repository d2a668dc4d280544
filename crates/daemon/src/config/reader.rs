//! Reads YAML into the tree of values that a table of keys checks.

use std::path::PathBuf;

use rota_core::shape::{KeyError, Node, Notation, below};
use serde_yaml_ng::Value;

/// Why a configuration file was rejected.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// Its path.
        file: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// It is longer than any configuration.
    #[error("{}: longer than {limit} bytes", file.display())]
    TooLong {
        /// Its path.
        file: PathBuf,
        /// The largest size that is read.
        limit: u64,
    },
    /// Its content is invalid.
    #[error("{}: {source}", file.display())]
    Wrong {
        /// Its path.
        file: PathBuf,
        /// The key, and what is allowed there.
        source: ParseError,
    },
}

/// Why a document was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is not YAML, or has one key twice.
    #[error("not YAML: {problem}")]
    NotYaml {
        /// The parser's message, with line and column.
        problem: String,
    },
    /// A key or its value is invalid.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Parses a document.
pub(super) fn parse(text: &str) -> Result<Node, ParseError> {
    let document: Value =
        serde_yaml_ng::from_str(text).map_err(|error| ParseError::NotYaml { problem: error.to_string() })?;
    Ok(node("", &document)?)
}

fn node(path: &str, value: &Value) -> Result<Node, KeyError> {
    Ok(match value {
        Value::Null => Node::Null,
        Value::Bool(truth) => Node::Bool(*truth),
        Value::Number(number) => Node::Number(number.to_string()),
        Value::String(text) => Node::Text(text.clone()),
        Value::Sequence(items) => {
            let item = |(index, value)| node(&format!("{path}[{index}]"), value);
            Node::List(items.iter().enumerate().map(item).collect::<Result<_, _>>()?)
        }
        Value::Mapping(mapping) => {
            let entry = |(key, value): (&Value, &Value)| match key {
                Value::String(key) => Ok((key.clone(), node(&below(path, key), value)?)),
                other => {
                    let other = Notation::Yaml.shown(&node(path, other)?);
                    Err(KeyError::new(path, format!("expected a text as key, got {other}")))
                }
            };
            Node::Object(mapping.iter().map(entry).collect::<Result<_, _>>()?)
        }
        Value::Tagged(_) => Node::Other("a tagged value"),
    })
}
