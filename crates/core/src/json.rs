//! A JSON text kept as it was given, but for white space: numbers, key order and duplicates are not touched.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// One valid JSON value on one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Json(String);

impl Json {
    /// Checks the syntax and folds white space between tokens.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let raw: &RawValue = serde_json::from_str(text)?;
        Ok(Self(without_white_space(raw.get())))
    }

    /// The JSON of a value of ours. Panics on a type that cannot be written as JSON (a map with odd keys), which is
    /// a bug in this program.
    pub fn of<T: Serialize>(value: &T) -> Self {
        match serde_json::to_string(value) {
            Ok(text) => Self(text),
            Err(error) => panic!("a value of ours is not JSON: {error}"),
        }
    }

    /// Takes back a text that was a `Json` before, e.g. from a store's column.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value under `key`, if this is an object that has it.
    pub fn has_key(&self, key: &str) -> bool {
        serde_json::from_str::<std::collections::BTreeMap<String, serde::de::IgnoredAny>>(&self.0)
            .is_ok_and(|object| object.contains_key(key))
    }

    /// Whether this is an object.
    pub fn is_object(&self) -> bool {
        self.0.starts_with('{')
    }
}

/// Adds a member to the text of an object that is being written: the brace or comma before it, the key, the value.
/// Panics on a type that cannot be written as JSON, which is a bug in this program.
pub(crate) fn push_member<T: Serialize + ?Sized>(text: &mut Vec<u8>, key: &str, value: &T) {
    text.push(if text.is_empty() || text.ends_with(b":") { b'{' } else { b',' });
    push_key(text, key);
    if let Err(error) = serde_json::to_writer(text, value) {
        panic!("a value of ours is not JSON: {error}");
    }
}

/// A key of ours, which needs no escapes, and its colon.
pub(crate) fn push_key(text: &mut Vec<u8>, key: &str) {
    text.push(b'"');
    text.extend_from_slice(key.as_bytes());
    text.extend_from_slice(b"\":");
}

fn without_white_space(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for character in text.chars() {
        if in_string {
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
        } else if character.is_ascii_whitespace() {
            continue;
        } else {
            in_string = character == '"';
        }
        folded.push(character);
    }
    folded
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = RawValue::from_string(self.0.clone()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(without_white_space(raw.get())))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Json {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Json".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::Schema::from(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_numbers_order_and_strings() {
        for (given, kept) in [
            (
                "{ \"b\" : 1.0e400,\n \"a\": 12345678901234567890123 }",
                "{\"b\":1.0e400,\"a\":12345678901234567890123}",
            ),
            (r#"{"a":" \" \\ "}"#, r#"{"a":" \" \\ "}"#),
            (" [ 1 , 2 ] ", "[1,2]"),
        ] {
            assert_eq!(Json::parse(given).map(|json| json.0).ok().as_deref(), Some(kept));
        }
        assert!(Json::parse("{").is_err());
        assert!(Json::parse("{} {}").is_err());
        assert!(Json::parse(r#"{"commit":1}"#).is_ok_and(|json| json.has_key("commit")));
        assert!(Json::parse(r#"["commit"]"#).is_ok_and(|json| !json.has_key("commit")));
    }
}
