//! What a caller may pass to a tool, and reading it. The names are those of the command line; the values become the text
//! that a command line would have, so that the same functions read and refuse them.

use std::collections::BTreeMap;

use rota_core::Refusal;
use rota_core::text::{escaped, nearest};
use rota_verbs::{Result, input};
use serde_json::{Map, Value, json};

/// One argument of a tool.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// In camelCase.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What is missing without it; none if it may be left out.
    pub missing: Option<&'static str>,
    /// For the model.
    pub help: &'static str,
}

/// What an argument takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A whole number from 0.
    Whole,
    /// A number.
    Number,
    /// Yes or no.
    Flag,
    /// A JSON object.
    Object,
    /// A list of texts.
    Texts,
}

impl Argument {
    /// One that may be left out.
    pub const fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, kind, missing: None, help }
    }

    /// One that must be there; `missing` says in the command line's words what is not.
    pub const fn needed(name: &'static str, missing: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Text, missing: Some(missing), help }
    }

    fn schema(&self) -> Value {
        match self.kind {
            Kind::Text => json!({"type": "string", "description": self.help}),
            Kind::Whole => json!({"type": "integer", "minimum": 0, "description": self.help}),
            Kind::Number => json!({"type": "number", "description": self.help}),
            Kind::Flag => json!({"type": "boolean", "description": self.help}),
            Kind::Object => json!({"type": "object", "description": self.help}),
            Kind::Texts => json!({"type": "array", "items": {"type": "string"}, "description": self.help}),
        }
    }

    /// The value as a command line would have it.
    fn read(&self, value: &Value) -> Result<String> {
        input::without_nul(self.name, value)?;
        let text = match (self.kind, value) {
            (_, Value::String(text)) if self.kind != Kind::Flag => Some(text.clone()),
            (Kind::Whole | Kind::Number, Value::Number(number)) => Some(number_text(number)),
            (Kind::Flag, Value::Bool(flag)) => Some(flag.to_string()),
            (Kind::Object, Value::Object(_)) | (Kind::Texts, Value::Array(_)) => Some(value.to_string()),
            _ => None,
        };
        let wanted = match self.kind {
            Kind::Text => "a text",
            Kind::Whole | Kind::Number => "a number",
            Kind::Flag => "true or false",
            Kind::Object => "a JSON object",
            Kind::Texts => "a list of texts",
        };
        let wrong = || bad(format!("{} must be {wanted}, got: {}", self.name, shown(&value.to_string())));
        Ok(text.ok_or_else(wrong)?)
    }
}

/// A schema's whole number may be written with a fraction of zero.
fn number_text(number: &serde_json::Number) -> String {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(value) if number.is_f64() && value.fract() == 0.0 && value.abs() < EXACT => {
            format!("{value:.0}")
        }
        _ => number.to_string(),
    }
}

/// What a caller sent, escaped and at most a line's worth of it.
fn shown(text: &str) -> String {
    const CHARACTERS: usize = 100;
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", escaped(&text[..end])),
        None => escaped(text).into_owned(),
    }
}

fn bad(problem: String) -> Refusal {
    Refusal::BadValue { problem }
}

/// The JSON Schema of a list of arguments.
pub fn schema<'a>(arguments: impl Iterator<Item = &'a Argument> + Clone) -> Map<String, Value> {
    let properties: Map<String, Value> =
        arguments.clone().map(|argument| (argument.name.to_owned(), argument.schema())).collect();
    let needed: Vec<&str> =
        arguments.filter(|argument| argument.missing.is_some()).map(|argument| argument.name).collect();
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), properties.into());
    if !needed.is_empty() {
        schema.insert("required".into(), needed.into());
    }
    schema.insert("additionalProperties".into(), false.into());
    schema
}

/// What a caller passed, checked: every name is known, every value of its kind, everything needed is there.
#[derive(Clone, Debug, Default)]
pub struct Given(BTreeMap<&'static str, String>);

impl Given {
    /// Checks what was passed. An absent value and `null` are the same.
    pub fn read<'a>(
        arguments: impl Iterator<Item = &'a Argument> + Clone,
        passed: Option<Map<String, Value>>,
    ) -> Result<Self> {
        let mut given = BTreeMap::new();
        for (name, value) in passed.unwrap_or_default() {
            let Some(argument) = arguments.clone().find(|argument| argument.name == name) else {
                return Err(bad(unknown(&name, arguments.map(|argument| argument.name).collect())).into());
            };
            if !value.is_null() {
                given.insert(argument.name, argument.read(&value)?);
            }
        }
        let mut needed = arguments.filter(|argument| !given.contains_key(argument.name));
        match needed.find_map(|argument| argument.missing) {
            Some(missing) => Err(bad(format!("missing {missing}")).into()),
            None => Ok(Self(given)),
        }
    }

    /// One that may be left out.
    pub fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    /// One that may be left out and means something then.
    pub fn text_or(&self, name: &str, default: &str) -> String {
        self.text(name).unwrap_or_else(|| default.to_owned())
    }

    /// One that had to be there.
    pub fn needed(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether a flag is set.
    pub fn flag(&self, name: &str) -> bool {
        self.needed(name) == "true"
    }
}

fn unknown(name: &str, known: Vec<&'static str>) -> String {
    let hint = nearest(&shown(name), known.iter().copied())
        .map_or(String::new(), |word| format!(", did you mean '{word}'?"));
    format!("unknown argument '{}'{hint} (known here: {})", shown(name), known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGUMENTS: [Argument; 5] = [
        Argument::needed("id", "task ID", "Which."),
        Argument::new("limit", Kind::Whole, "How many."),
        Argument::new("factor", Kind::Number, "How much."),
        Argument::new("failed", Kind::Flag, "Whether."),
        Argument::new("result", Kind::Object, "What."),
    ];

    fn read(passed: Value) -> String {
        let Value::Object(passed) = passed else { panic!("{passed} is no object") };
        match Given::read(ARGUMENTS.iter(), Some(passed)) {
            Ok(given) => given.0.iter().map(|(name, text)| format!("{name}={text} ")).collect(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn values_become_the_text_of_a_command_line() {
        for (passed, wanted) in [
            (json!({"id": "a"}), "id=a "),
            (
                json!({"id": "a", "limit": 3, "factor": 1.5, "failed": true}),
                "factor=1.5 failed=true id=a limit=3 ",
            ),
            (json!({"id": "a", "limit": 3.0}), "id=a limit=3 "),
            (json!({"id": "a", "limit": "3"}), "id=a limit=3 "),
            (json!({"id": "a", "limit": -1}), "id=a limit=-1 "),
            (json!({"id": "a", "limit": null}), "id=a "),
            (json!({"id": "a", "result": {"commit": "x"}}), "id=a result={\"commit\":\"x\"} "),
            (json!({"id": "a", "result": "{}"}), "id=a result={} "),
        ] {
            assert_eq!(read(passed), wanted);
        }
    }

    #[test]
    fn what_is_refused() {
        let known = "(known here: id, limit, factor, failed, result)";
        for (passed, wanted) in [
            (json!({}), "missing task ID".to_owned()),
            (json!({"id": null}), "missing task ID".to_owned()),
            (json!({"id": 5}), "id must be a text, got: 5".to_owned()),
            (json!({"id": "a", "limit": true}), "limit must be a number, got: true".to_owned()),
            (json!({"id": "a", "failed": "yes"}), "failed must be true or false, got: \"yes\"".to_owned()),
            (json!({"id": "a", "result": [1]}), "result must be a JSON object, got: [1]".to_owned()),
            (
                json!({"id": "a", "limt": 1}),
                format!("unknown argument 'limt', did you mean 'limit'? {known}"),
            ),
            (json!({"id": ["x".repeat(200)]}), format!("id must be a text, got: [\"{}…", "x".repeat(98))),
            (json!({"id": "a", "colour": 1}), format!("unknown argument 'colour' {known}")),
            (
                json!({"id": "a", "li\nmit": 1}),
                format!("unknown argument 'li\\nmit', did you mean 'limit'? {known}"),
            ),
        ] {
            assert_eq!(read(passed), wanted);
        }
    }

    #[test]
    fn the_schema_says_the_same() {
        let schema = Value::Object(schema(ARGUMENTS[..2].iter()));
        let wanted = json!({
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "Which."},
                "limit": {"type": "integer", "minimum": 0, "description": "How many."},
            },
            "required": ["id"],
            "additionalProperties": false,
        });
        assert_eq!(schema, wanted);
    }
}
