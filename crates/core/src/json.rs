//! JSON text stored as given, except for white space: numbers, key order and duplicates are preserved.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::limits;

/// One valid JSON value on one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Json(String);

impl Json {
    /// Checks syntax and depth, and removes white space between tokens.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let raw: &RawValue = serde_json::from_str(text)?;
        Self::folded(raw.get())
    }

    /// The JSON of one of our own values. Panics on a type that has no JSON form (a map with non-string keys), which
    /// is a bug in this program.
    pub fn of<T: Serialize>(value: &T) -> Self {
        match serde_json::to_string(value) {
            Ok(text) => Self(text),
            Err(error) => panic!("a value of ours is not JSON: {error}"),
        }
    }

    /// Restores a text that was a `Json` before, e.g. from a store's column.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    fn folded<E: serde::de::Error>(text: &str) -> Result<Self, E> {
        if has_lone_surrogate(text) {
            return Err(E::custom("it has half of a surrogate pair, which is no character"));
        }
        let too_deep =
            || E::custom(format_args!("it is nested more than {} levels deep", limits::JSON_DEPTH));
        without_white_space(text).map(Self).ok_or_else(too_deep)
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

/// Appends a member to the text of an object: the brace or comma before it, the key, the value. Panics on a type that
/// has no JSON form, which is a bug in this program.
pub(crate) fn push_member<T: Serialize + ?Sized>(text: &mut Vec<u8>, key: &str, value: &T) {
    text.push(if text.is_empty() || text.ends_with(b":") { b'{' } else { b',' });
    push_key(text, key);
    if let Err(error) = serde_json::to_writer(text, value) {
        panic!("a value of ours is not JSON: {error}");
    }
}

/// A key that needs no escapes, and its colon.
pub(crate) fn push_key(text: &mut Vec<u8>, key: &str) {
    text.push(b'"');
    text.extend_from_slice(key.as_bytes());
    text.extend_from_slice(b"\":");
}

/// Whether a valid JSON text has an unpaired surrogate escape like `\ud800`: the grammar allows it, but most parsers
/// reject the whole document.
fn has_lone_surrogate(text: &str) -> bool {
    let (mut rest, mut is_first_half) = (text, false);
    while let Some(at) = rest.find('\\') {
        let escape = &rest[at + 1..];
        let unit = escape.strip_prefix('u').and_then(|digits| u16::from_str_radix(digits.get(..4)?, 16).ok());
        let is_second_half = unit.is_some_and(|unit| (0xdc00..0xe000).contains(&unit));
        if is_second_half != (is_first_half && at == 0) || (is_first_half && !is_second_half) {
            return true;
        }
        is_first_half = unit.is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
        rest = &escape[if unit.is_some() { 5 } else { 1 }..];
    }
    is_first_half
}

/// `None` if it is nested too deeply.
fn without_white_space(text: &str) -> Option<String> {
    let mut folded = String::with_capacity(text.len());
    let (mut in_string, mut escaped, mut depth) = (false, false, 0);
    for character in text.chars() {
        if in_string {
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
        } else if character.is_ascii_whitespace() {
            continue;
        } else {
            in_string = character == '"';
            match character {
                '{' | '[' if depth == limits::JSON_DEPTH => return None,
                '{' | '[' => depth += 1,
                '}' | ']' => depth -= 1,
                _ => {}
            }
        }
        folded.push(character);
    }
    Some(folded)
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
        Self::folded(raw.get())
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
        let nested = |depth: usize| format!("{}\"[[\"{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Json::parse(&nested(limits::JSON_DEPTH)).is_ok());
        assert!(
            Json::parse(&nested(limits::JSON_DEPTH + 1))
                .is_err_and(|error| error.to_string().contains("deep"))
        );
        assert!(serde_json::from_str::<Json>(&nested(limits::JSON_DEPTH + 1)).is_err());
        for (given, is_whole) in [
            (r#""\ud83d\ude00""#, true),
            (r#""\\ud800 \u0041\n\ud83d\ude00\ud83d\ude00""#, true),
            (r#""\ud800""#, false),
            (r#""\ud800x\udc00""#, false),
            (r#""\udc00""#, false),
            (r#""\ud800\ud800\udc00""#, false),
            (r#""\ud83d\n""#, false),
            (r#"{"\ude00":1}"#, false),
        ] {
            assert_eq!(Json::parse(given).is_ok(), is_whole, "{given}");
        }
        assert!(Json::parse("{").is_err());
        assert!(Json::parse("{} {}").is_err());
        assert!(Json::parse(r#"{"commit":1}"#).is_ok_and(|json| json.has_key("commit")));
        assert!(Json::parse(r#"["commit"]"#).is_ok_and(|json| !json.has_key("commit")));
    }
}
