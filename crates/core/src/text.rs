//! Text from users: kept once however many hold it, and shown on one line with control characters and bidirectional
//! marks escaped.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A text that nobody changes. Its clones share it: a task is copied with every step, what is written in it is not.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(Arc<str>);

impl Text {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Any text, for whoever reads or writes it.
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

/// Whether a terminal or log could take this character for more than itself.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// The text with everything escaped that could end the line or steer a terminal.
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

/// The known word nearest to `given`, if one is near enough to be meant.
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
