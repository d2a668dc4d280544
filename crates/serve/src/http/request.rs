//! Reading a request: what the path, the query and the body say, as the text of a verb's input; and who asks, from where
//! and when, which every operation takes in its query.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use percent_encoding::percent_decode_str;
use rota_core::text::escaped;
use rota_verbs::{Claimant, Context, Result, Said, checked_name, input};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::operations::Operation;
use super::problem;
use crate::listen::Problem;

/// What every operation takes in its query, and what it means.
pub const SURROUNDINGS: [(&str, &str); 6] = [
    ("scope", "Namespace of tasks, queues and policy."),
    ("agent", "Who asks."),
    ("leaseId", "The lease this call speaks for."),
    ("ambientLease", "A lease that counts only for the task it names."),
    ("now", "Decide as if it were this time (RFC 3339)."),
    ("host", "The host that would run tasks."),
];

/// What a request asks for.
pub struct Asked {
    /// The verb's input.
    pub input: String,
    /// What it says of its surroundings.
    pub surroundings: BTreeMap<String, String>,
}

fn bad(detail: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "bad_request", detail)
}

/// Reads everything that a request says.
pub fn read(
    operation: &Operation,
    named: &[(&'static str, &str)],
    parts: &Parts,
    body: &[u8],
) -> std::result::Result<Asked, Problem> {
    let mut fields: BTreeMap<String, Box<RawValue>> = BTreeMap::new();
    if operation.route.method.has_no_body() {
        if !body.is_empty() {
            return Err(bad(format!("{} takes no body", operation.route.method.word())));
        }
    } else if !body.is_empty() {
        fields = object(parts, body)?;
        fields.iter_mut().for_each(|(name, value)| make_whole(operation.fields.get(name), value));
        for (name, value) in &fields {
            // Only an escape can stand for NUL in JSON.
            if value.get().contains("\\u0000") {
                without_nul(name, &serde_json::from_str(value.get()).unwrap_or_default())?;
            }
        }
    }
    let mut surroundings = BTreeMap::new();
    for (name, value) in query(parts)? {
        let twice = if SURROUNDINGS.iter().any(|(known, _)| *known == name) {
            surroundings.insert(name.clone(), value).is_some()
        } else if operation.route.method.has_no_body() && operation.fields.contains_key(&name) {
            let value = typed(&operation.fields[&name], &value);
            fields.insert(name.clone(), value).is_some()
        } else {
            return Err(unknown_parameter(&name));
        };
        if twice {
            return Err(bad(format!("query parameter '{}' is given twice", escaped(&name))));
        }
    }
    for (name, part) in named {
        let text = percent_decode_str(part).decode_utf8();
        let text = text.map_err(|_| bad(format!("the {name} in the path is not valid UTF-8")))?;
        without_nul(name, &Value::from(&*text))?;
        if fields.insert((*name).to_owned(), typed(&operation.fields[*name], &text)).is_some() {
            return Err(bad(format!("'{name}' is given by the path already")));
        }
    }
    let input = serde_json::to_string(&fields).map_err(|error| bad(error.to_string()))?;
    Ok(Asked { input, surroundings })
}

/// The fields of a body; a name that is there twice is refused, as what stands for it cannot be told.
fn object(parts: &Parts, body: &[u8]) -> std::result::Result<BTreeMap<String, Box<RawValue>>, Problem> {
    let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let detail = "the body must be application/json, and the Content-Type must say so";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
    }
    let text = std::str::from_utf8(body).map_err(|_| bad("the body is not valid UTF-8".to_owned()))?;
    serde_json::from_str::<Fields>(text)
        .map(|fields| fields.0)
        .map_err(|error| bad(format!("the body is no JSON object with each field once: {error}")))
}

struct Fields(BTreeMap<String, Box<RawValue>>);

impl<'de> serde::Deserialize<'de> for Fields {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Each;
        impl<'de> serde::de::Visitor<'de> for Each {
            type Value = Fields;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Fields, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if fields.contains_key(&name) {
                        return Err(serde::de::Error::custom(format_args!(
                            "'{}' is there twice",
                            escaped(&name)
                        )));
                    }
                    fields.insert(name, value);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

/// What the query says, each name once.
pub fn query_once(parts: &Parts) -> std::result::Result<BTreeMap<String, String>, Problem> {
    let mut once = BTreeMap::new();
    for (name, value) in query(parts)? {
        if once.insert(name.clone(), value).is_some() {
            return Err(bad(format!("query parameter '{}' is given twice", escaped(&name))));
        }
    }
    Ok(once)
}

/// A name that means nothing here.
pub fn unknown_parameter(name: &str) -> Problem {
    bad(format!("unknown query parameter '{}'", escaped(name)))
}

fn query(parts: &Parts) -> std::result::Result<Vec<(String, String)>, Problem> {
    let text = parts.uri.query().unwrap_or_default();
    let decoded = |part: &str| {
        let part = part.replace('+', " ");
        let text = percent_decode_str(&part).decode_utf8().map(std::borrow::Cow::into_owned);
        text.map_err(|_| bad("the query is not valid UTF-8".to_owned()))
    };
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            without_nul(&name, &Value::from(value.as_str()))?;
            Ok((name, value))
        })
        .collect()
}

fn without_nul(name: &str, value: &Value) -> std::result::Result<(), Problem> {
    input::without_nul(name, value).map_err(|error| problem(&Said::of(&error)))
}

fn raw(text: &str) -> Box<RawValue> {
    to_raw_value(text).unwrap_or_else(|error| unreachable!("a text is JSON: {error}"))
}

/// Whether a schema takes values of a type.
pub fn takes(schema: &Value, word: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == word,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == word),
        _ => false,
    }
}

/// The value of a query as the field's schema wants it: a number or a flag where it takes one, else a text.
pub fn typed(schema: &Value, text: &str) -> Box<RawValue> {
    let takes = |word: &str| takes(schema, word);
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_value = (takes("integer") && plain) || (takes("boolean") && matches!(text, "true" | "false"));
    let value = is_value.then(|| RawValue::from_string(text.to_owned()).ok()).flatten();
    value.unwrap_or_else(|| raw(text))
}

/// A whole number is one for JSON also where it is written with a fraction of zeros.
fn make_whole(schema: Option<&Value>, value: &mut Box<RawValue>) {
    let Some((whole, fraction)) = value.get().split_once('.') else { return };
    let is_whole = !fraction.is_empty() && fraction.bytes().all(|byte| byte == b'0');
    if is_whole
        && schema.is_some_and(|schema| takes(schema, "integer"))
        && let Ok(number) = RawValue::from_string(whole.to_owned())
    {
        *value = number;
    }
}

/// The server's surroundings, but for what a request names.
pub fn context(server: &Context, said: &BTreeMap<String, String>) -> std::result::Result<Context, Problem> {
    let given = |name: &str| said.get(name).cloned();
    let read = || -> Result<Context> {
        let scope = checked_name("scope", given("scope"))?;
        Ok(Context {
            scope: scope.unwrap_or_else(|| server.scope.clone()),
            agent: checked_name("agent", given("agent"))?,
            lease: given("leaseId").filter(|lease| !lease.is_empty()),
            ambient_lease: given("ambientLease").filter(|lease| !lease.is_empty()),
            token: None,
            allow_future: server.allow_future,
            now: given("now").map(|text| input::now(&text)).transpose()?,
            host: checked_name("host", given("host"))?.or_else(|| server.host.clone()),
            store: server.store.clone(),
            runners: Arc::clone(&server.runners),
            settings: server.settings.clone(),
            claimant: Claimant::Caller,
            folder: server.folder.clone(),
        })
    };
    read().map_err(|error| problem(&Said::of(&error)))
}
