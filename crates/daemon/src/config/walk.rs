//! A YAML document walked key by key, every value with its path.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use rota_core::text::{escaped, nearest};
use serde_yaml_ng::Value;

/// Why a file is not gone by.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is longer than any configuration.
    #[error("{}: longer than {limit} bytes", file.display())]
    TooLong {
        /// Which file.
        file: PathBuf,
        /// What is allowed.
        limit: u64,
    },
    /// What it says cannot be meant.
    #[error("{}: {source}", file.display())]
    Wrong {
        /// Which file.
        file: PathBuf,
        /// Where, and what is wanted there.
        source: KeyError,
    },
}

/// Where a document is wrong, and what is allowed there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is not YAML, or says one key twice.
    #[error("not YAML: {problem}")]
    NotYaml {
        /// What the reader said, with line and column.
        problem: String,
    },
    /// A key.
    #[error("{path}: {problem}")]
    Key {
        /// Its dotted path.
        path: String,
        /// What is wrong, and what is wanted.
        problem: String,
    },
}

/// A mapping whose keys are taken one by one, in snake_case or kebab-case. What is left over is unknown.
pub(super) struct Section<'a> {
    path: String,
    left: BTreeMap<String, (&'a str, &'a Value)>,
    known: Vec<String>,
}

/// A value and where it stands.
pub(super) struct Field<'a> {
    pub path: String,
    value: &'a Value,
}

impl<'a> Section<'a> {
    /// The top of a document; an empty one has no keys.
    pub fn top(value: &'a Value) -> Result<Self, KeyError> {
        Field { path: String::new(), value }.section()
    }

    /// A value that is there and not null.
    pub fn take(&mut self, key: &str) -> Option<Field<'a>> {
        if !self.known.iter().any(|known| known == key) {
            self.known.push(key.to_owned());
        }
        let (_, value) = self.left.remove(&snake_case(key))?;
        let field = Field { path: self.path_of(key), value };
        (!value.is_null()).then_some(field)
    }

    /// A section below this one; one that is not there has no keys.
    pub fn section(&mut self, key: &str) -> Result<Section<'a>, KeyError> {
        match self.take(key) {
            Some(field) => field.section(),
            None => Ok(Section { path: self.path_of(key), left: BTreeMap::new(), known: Vec::new() }),
        }
    }

    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Refuses what nobody took.
    pub fn finish(self) -> Result<(), KeyError> {
        let Some((key, (given, _))) = self.left.first_key_value() else { return Ok(()) };
        let hint = nearest(key, self.known.iter().map(String::as_str))
            .map_or(String::new(), |word| format!(", did you mean '{word}'?"));
        let known = self.known.join(", ");
        let path = self.path_of(&escaped(given));
        Err(KeyError::Key { path, problem: format!("unknown key{hint} (known here: {known})") })
    }
}

impl<'a> Field<'a> {
    pub fn error(&self, problem: impl Into<String>) -> KeyError {
        KeyError::Key { path: self.path.clone(), problem: problem.into() }
    }

    pub fn wrong(&self, wanted: &str) -> KeyError {
        self.error(format!("expected {wanted}, got {}", shown(self.value)))
    }

    fn pairs(&self) -> Result<Vec<(&'a str, &'a Value)>, KeyError> {
        let Value::Mapping(mapping) = self.value else {
            if self.value.is_null() {
                return Ok(Vec::new());
            }
            let place = if self.path.is_empty() { "top" } else { &self.path };
            let problem = format!("expected a mapping, got {}", shown(self.value));
            return Err(KeyError::Key { path: place.to_owned(), problem });
        };
        let pair = |(key, value): (&'a Value, &'a Value)| match key {
            Value::String(key) => Ok((key.as_str(), value)),
            other => Err(self.error(format!("expected a text as key, got {}", shown(other)))),
        };
        mapping.iter().map(pair).collect()
    }

    /// Its keys, to be taken one by one.
    pub fn section(&self) -> Result<Section<'a>, KeyError> {
        let mut left: BTreeMap<String, (&'a str, &'a Value)> = BTreeMap::new();
        for (given, value) in self.pairs()? {
            if let Some((other, before)) = left.insert(snake_case(given), (given, value))
                && before != value
            {
                let problem = format!("'{}' and '{}' say different things", escaped(other), escaped(given));
                return Err(KeyError::Key { path: self.path.clone(), problem });
            }
        }
        Ok(Section { path: self.path.clone(), left, known: Vec::new() })
    }

    /// Its entries, whose keys are names that users choose.
    pub fn entries(&self) -> Result<Vec<(&'a str, Field<'a>)>, KeyError> {
        let entry = |(name, value): (&'a str, &'a Value)| {
            (name, Field { path: format!("{}.{}", self.path, escaped(name)), value })
        };
        Ok(self.pairs()?.into_iter().map(entry).collect())
    }

    /// Whatever it is, for whoever reads it later.
    pub fn any(&self) -> Result<serde_json::Value, KeyError> {
        serde_json::to_value(self.value).map_err(|error| self.error(error.to_string()))
    }

    /// A text; numbers and the like must be quoted, because YAML would change them.
    pub fn text(&self) -> Result<&'a str, KeyError> {
        match self.value {
            Value::String(text) if !text.contains('\0') => Ok(text),
            Value::Number(_) | Value::Bool(_) => Err(self.wrong("a text (in quotes)")),
            _ => Err(self.wrong("a text")),
        }
    }

    /// A text where something else would do as well.
    pub fn text_or(&self, wanted: &str) -> Result<&'a str, KeyError> {
        self.text().map_err(|_| self.wrong(wanted))
    }

    /// A list of texts, or none if it is something else.
    pub fn list(&self) -> Result<Option<Vec<&'a str>>, KeyError> {
        let Value::Sequence(items) = self.value else { return Ok(None) };
        let item = |(index, value)| Field { path: format!("{}[{index}]", self.path), value }.text();
        items.iter().enumerate().map(item).collect::<Result<_, _>>().map(Some)
    }

    pub fn boolean(&self) -> Result<bool, KeyError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    pub fn is_false(&self) -> bool {
        self.value == &Value::Bool(false)
    }

    pub fn whole(&self, range: &RangeInclusive<u64>) -> Result<u64, KeyError> {
        let number = self.value.as_u64().filter(|number| range.contains(number));
        number.ok_or_else(|| self.wrong(&format!("a whole number from {} to {}", range.start(), range.end())))
    }

    /// A decimal as thousandths, read from its digits.
    pub fn thousandths(&self, range: &RangeInclusive<u64>) -> Result<u64, KeyError> {
        let wrong = || {
            let (least, most) = (decimal(*range.start()), decimal(*range.end()));
            self.wrong(&format!("a number from {least} to {most} with at most three decimals"))
        };
        let Value::Number(number) = self.value else { return Err(wrong()) };
        let digits = number.to_string();
        let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > 3 {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let fraction: u64 = format!("{fraction:0<3}").parse().map_err(|_| wrong())?;
        let thousandths = whole.checked_mul(1_000).and_then(|whole| whole.checked_add(fraction));
        thousandths.filter(|number| range.contains(number)).ok_or_else(wrong)
    }

    pub fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, KeyError> {
        let given = self.value.as_str();
        let found = words.iter().find(|(word, _)| Some(*word) == given);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(&format!("one of {}", words.join(", ")))
        })
    }
}

/// One thing that has several names: whichever is given, or all if they agree.
pub(super) fn one_of<T: PartialEq + std::fmt::Display>(
    given: Vec<(String, T)>,
) -> Result<Option<T>, KeyError> {
    let mut given = given.into_iter();
    let Some((first_path, first)) = given.next() else { return Ok(None) };
    for (path, value) in given {
        if value != first {
            let problem = format!("says {value}, but {first_path} says {first}, and both mean one thing");
            return Err(KeyError::Key { path, problem });
        }
    }
    Ok(Some(first))
}

/// Keys are the same in both spellings.
pub(super) fn snake_case(key: &str) -> String {
    key.replace('-', "_")
}

/// Thousandths as the shortest decimal.
pub(super) fn decimal(thousandths: u64) -> String {
    let digits = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn shown(value: &Value) -> String {
    const LIMIT: usize = 80;
    let text = match value {
        Value::Null => "nothing".to_owned(),
        Value::Mapping(_) => "a mapping".to_owned(),
        Value::Sequence(_) => "a list".to_owned(),
        Value::Tagged(_) => "a tagged value".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("\"{}\"", escaped(text)),
    };
    text.chars().take(LIMIT).collect()
}
