//! Text from users and agents: shared between copies, and made safe to show. Every interface shows it through
//! [`escaped`] (one line), [`escaped_lines`] (many lines, any bytes) or [`json_escaped`] (JSON).

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An immutable text. Its clones share it, because a task is copied by every transition and its texts rarely change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(Arc<str>);

impl Text {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// In a schema it is any text.
#[cfg(feature = "schema")]
impl schemars::JsonSchema for Text {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Arc::from(text))
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for Text {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<Text> for String {
    fn eq(&self, other: &Text) -> bool {
        self == other.as_str()
    }
}

/// Whether a character can mislead a terminal, a log or a reader, or is invisible: control characters (C0, C1),
/// bidirectional marks, zero-width and other invisible characters, tags. The two emoji selectors are allowed.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// The text with every character escaped that could end the line or control a terminal.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_unsafe(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// The same for arbitrary output: line breaks and tabs stay, bytes that are not UTF-8 are shown as `\xNN`.
pub fn escaped_lines(bytes: &[u8]) -> Cow<'_, str> {
    let is_kept = |character: char| matches!(character, '\n' | '\t') || !is_unsafe(character);
    if let Ok(text) = std::str::from_utf8(bytes)
        && text.chars().all(is_kept)
    {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_kept(character) {
                shown.push(character);
            } else {
                shown.extend(character.escape_default());
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    Cow::Owned(shown)
}

/// JSON with the same characters written as `\uNNNN`, which is equivalent for a parser. In JSON they occur only
/// inside strings.
pub fn json_escaped(json: String) -> String {
    let is_unsafe = |character: char| character >= '\u{7f}' && is_unsafe(character);
    if json.bytes().all(|byte| byte < 0x7f) || !json.chars().any(is_unsafe) {
        return json;
    }
    let mut shown = String::with_capacity(json.len() + 8);
    for character in json.chars() {
        if is_unsafe(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The known word nearest to `given`, if it is near enough to be a typo.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 1 + given.chars().count() / 3;
    known
        .into_iter()
        .map(|word| (edit_distance(given, word), word))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, word)| word)
}

fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, left_char) in left.chars().enumerate() {
        let mut diagonal = line;
        row[0] = line + 1;
        for (column, right_char) in right.iter().enumerate() {
            let same = left_char.eq_ignore_ascii_case(right_char);
            let changed = diagonal + usize::from(!same);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_steers_a_terminal() {
        assert_eq!(escaped("plain ü €"), "plain ü €");
        assert_eq!(escaped("a\nb\t\u{1b}[2J\u{202e}"), r"a\nb\t\u{1b}[2J\u{202e}");
        for hidden in
            ["\u{9b}", "\u{200b}", "\u{200d}", "\u{2060}", "\u{ad}", "\u{e0041}", "\u{e01ef}", "\u{61c}"]
        {
            assert!(escaped(hidden).starts_with(r"\u{"), "{hidden:?}");
        }
        assert_eq!(escaped("caf\u{e9} \u{2714}\u{fe0f} \u{4e16}"), "caf\u{e9} \u{2714}\u{fe0f} \u{4e16}");
    }

    #[test]
    fn many_lines_stay_lines() {
        assert_eq!(escaped_lines(b"a\tb\nc"), "a\tb\nc");
        assert_eq!(
            escaped_lines(b"a\x1b[31m\xff\r\n\xc2\x9b\xe2\x82"),
            "a\\u{1b}[31m\\xff\\r\n\\u{9b}\\xe2\\x82"
        );
    }

    #[test]
    fn json_stays_json() {
        let value = "a\u{7f}\u{9b}\u{202e}\u{200b}\u{e0041}\u{fc}\n";
        let json = serde_json::to_string(value).unwrap_or_else(|error| panic!("{error}"));
        let shown = json_escaped(json);
        assert_eq!(shown, "\"a\\u007f\\u009b\\u202e\\u200b\\udb40\\udc41\u{fc}\\n\"");
        assert_eq!(serde_json::from_str::<String>(&shown).ok().as_deref(), Some(value));
    }

    #[test]
    fn a_text_is_kept_once_and_written_as_itself() {
        let text = Text::from("a \"b\"");
        assert!(Arc::ptr_eq(&text.0, &text.clone().0));
        let json = serde_json::to_string(&text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(json, r#""a \"b\"""#);
        assert_eq!(serde_json::from_str::<Text>(&json).ok(), Some(text));
    }

    #[test]
    fn nearest_word() {
        let known = ["maxConcurrent", "maxAttempts", "leaseTtlMs"];
        assert_eq!(nearest("maxConcurent", known), Some("maxConcurrent"));
        assert_eq!(nearest("max_attempts", known), Some("maxAttempts"));
        assert_eq!(nearest("colour", known), None);
    }
}
