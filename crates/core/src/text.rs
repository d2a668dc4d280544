//! How text from users is shown: one line, control characters and bidirectional marks escaped.

use std::borrow::Cow;

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
    fn nearest_word() {
        let known = ["maxConcurrent", "maxAttempts", "leaseTtlMs"];
        assert_eq!(nearest("maxConcurent", known), Some("maxConcurrent"));
        assert_eq!(nearest("max_attempts", known), Some("maxAttempts"));
        assert_eq!(nearest("colour", known), None);
    }
}
