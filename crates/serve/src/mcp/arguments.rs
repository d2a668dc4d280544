//! Reads the arguments of a call against the schema of its tool.

use std::collections::BTreeMap;

use rota_core::Refusal;
use rota_core::text::{escaped, nearest};
use rota_verbs::{Result, input};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::tools::Tool;
use crate::http::{takes, typed};

/// The arguments of a call: every name is known, every value of its kind, everything required is there.
#[derive(Debug, Default)]
pub struct Given {
    /// Fields of the verb's input.
    pub fields: BTreeMap<String, Box<RawValue>>,
    /// Scope, agent, lease and time.
    pub options: BTreeMap<String, String>,
}

impl Given {
    /// Checks what was passed. An absent value and `null` are the same.
    pub fn read(tool: &Tool, allow_now: bool, passed: Option<Map<String, Value>>) -> Result<Self> {
        let arguments = tool.arguments(allow_now);
        let mut given = Self::default();
        for (name, value) in passed.unwrap_or_default() {
            let Some((_, schema)) = arguments.iter().find(|(known, _)| *known == name) else {
                return Err(bad(unknown(&name, &arguments)).into());
            };
            if value.is_null() {
                continue;
            }
            let value = checked(&name, schema, &value)?;
            if tool.operation.fields.contains_key(&name) {
                given.fields.insert(name, value);
            } else {
                given.options.insert(name, serde_json::from_str(value.get()).unwrap_or_default());
            }
        }
        match tool.operation.required.iter().find(|name| !given.fields.contains_key(*name)) {
            Some(name) => {
                let title = tool.operation.title_of(name).unwrap_or(name);
                Err(bad(format!("missing {title}")).into())
            }
            None => Ok(given),
        }
    }

    /// The verb's input.
    pub fn input(&self) -> String {
        serde_json::to_string(&self.fields).unwrap_or_else(|error| unreachable!("{error}"))
    }

    /// A field that is a text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.fields.get(name).and_then(|value| serde_json::from_str(value.get()).ok())
    }

    /// What the call says of its caller, scope or time.
    pub fn option(&self, name: &str) -> Option<String> {
        self.options.get(name).cloned()
    }
}

fn bad(problem: String) -> Refusal {
    Refusal::BadValue { problem }
}

/// The schema of a field as an argument, which is left out instead of null.
pub fn non_null(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(kinds) = schema.get("type").and_then(Value::as_array) {
        schema["type"] = kinds.iter().find(|kind| *kind != "null").cloned().unwrap_or_default();
    }
    if let Some(map) = schema.as_object_mut() {
        map.remove("title");
        map.remove("maximum");
    }
    schema
}

/// A value of the kind that the schema states. A model may write a number, a list or an object as a text.
fn checked(name: &str, schema: &Value, value: &Value) -> Result<Box<RawValue>> {
    input::without_nul(name, value)?;
    let is = |kind: &str| takes(schema, kind);
    let is_number = is("integer") || is("number");
    let accepted = match value {
        Value::String(text) if is("object") || is("array") => {
            return Ok(RawValue::from_string(text.clone()).unwrap_or_else(|_| raw(value)));
        }
        Value::String(text) if !is("boolean") => return Ok(typed(schema, text)),
        Value::Number(_) => is_number,
        Value::Bool(_) => is("boolean"),
        Value::Object(_) => is("object"),
        Value::Array(_) => is("array"),
        _ => false,
    };
    if accepted {
        return Ok(raw(value));
    }
    let wanted = match () {
        () if is_number => "a number",
        () if is("boolean") => "true or false",
        () if is("object") => "a JSON object",
        () if is("array") => "a list of texts",
        () => "a text",
    };
    Err(bad(format!("{name} must be {wanted}, got: {}", shown(&value.to_string()))).into())
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|error| unreachable!("a value is JSON: {error}"))
}

/// What a caller sent, escaped and at most a line's worth of it.
fn shown(text: &str) -> String {
    const CHARACTERS: usize = 100;
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", escaped(&text[..end])),
        None => escaped(text).into_owned(),
    }
}

fn unknown(name: &str, known: &[(String, Value)]) -> String {
    let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    let hint = nearest(&shown(name), names.iter().copied())
        .map_or(String::new(), |word| format!(", did you mean '{word}'?"));
    format!("unknown argument '{}'{hint} (known here: {})", shown(name), names.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mcp::tools::ToolSet;

    fn read(tool: &str, passed: Value) -> String {
        let Value::Object(passed) = passed else { panic!("{passed} is no object") };
        let tool = ToolSet::All.find(tool).unwrap_or_else(|problem| panic!("{problem}"));
        match Given::read(tool, false, Some(passed)) {
            Ok(given) => format!("{} {:?}", given.input(), given.options),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn values_become_the_fields_of_the_verb() {
        for (passed, wanted) in [
            (json!({"id": "a"}), r#"{"id":"a"} {}"#),
            (json!({"id": "a", "lease": 3, "next": true}), r#"{"id":"a","lease":3,"next":true} {}"#),
            (json!({"id": "a", "lease": "3"}), r#"{"id":"a","lease":3} {}"#),
            (json!({"id": "a", "lease": "x"}), r#"{"id":"a","lease":"x"} {}"#),
            (json!({"id": "a", "lease": null, "agent": "b"}), r#"{"id":"a"} {"agent": "b"}"#),
            (json!({"id": "a", "result": {"commit": "x"}}), r#"{"id":"a","result":{"commit":"x"}} {}"#),
            (json!({"id": "a", "result": "{}"}), r#"{"id":"a","result":{}} {}"#),
        ] {
            assert_eq!(read("rota_task_done", passed), wanted);
        }
    }

    #[test]
    fn refused_arguments() {
        for (passed, wanted) in [
            (json!({}), "missing task ID"),
            (json!({"id": null}), "missing task ID"),
            (json!({"id": 5}), "id must be a text, got: 5"),
            (json!({"id": "a", "lease": true}), "lease must be a number, got: true"),
            (json!({"id": "a", "next": "yes"}), "next must be true or false, got: \"yes\""),
            (json!({"id": "a", "result": [1]}), "result must be a JSON object, got: [1]"),
            (json!({"id": "a", "agent": 1}), "agent must be a text, got: 1"),
        ] {
            assert_eq!(read("rota_task_done", passed), wanted);
        }
        let known = "(known here: id, withDeps, scope, now)";
        for (passed, wanted) in [
            (json!({"id": "a", "withDep": 1}), "unknown argument 'withDep', did you mean 'withDeps'?"),
            (json!({"id": "a", "colour": 1}), "unknown argument 'colour'"),
            (json!({"id": "a", "with\nDeps": 1}), "unknown argument 'with\\nDeps', did you mean 'withDeps'?"),
        ] {
            assert_eq!(read("rota_task_show", passed), format!("{wanted} {known}"));
        }
        let long = read("rota_task_show", json!({"id": ["x".repeat(200)]}));
        assert_eq!(long, format!("id must be a text, got: [\"{}…", "x".repeat(98)));
    }
}
