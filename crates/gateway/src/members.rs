//! The members of a JSON object, found without parsing what is in them: bodies are long, and little of them is looked at.
//! What is not JSON may be taken for it where it does not matter; a provider refuses it anyway.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memchr2;
use memchr::memmem::Finder;

/// The member that says which model is asked.
pub(crate) static MODEL: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("model"));
/// How a letter of a name can be written as an escape.
static ESCAPED_LETTER: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\\u00"));

/// Shows every member of the object that a text is: its name, and its value as it is written. False if the text is no
/// object; members in front of the place where that shows have been shown by then.
pub(crate) fn each<'a>(text: &'a [u8], mut see: impl FnMut(&[u8], &'a [u8])) -> bool {
    let mut scan = Scan { rest: text };
    scan.object(&mut see).is_some() && scan.symbol().is_none()
}

/// The value of the one member of an object that has a name; none if two have it. What follows it is only searched for the
/// name, not taken apart, where nothing there could be it.
pub(crate) fn only<'a>(text: &'a [u8], wanted: &Finder<'_>) -> Option<&'a [u8]> {
    let mut scan = Scan { rest: text };
    scan.expect(b'{')?;
    let mut found = None;
    loop {
        let (name, value) = scan.member()?;
        if *name == *wanted.needle() {
            if found.is_some() {
                return None;
            }
            found = Some(value);
            if wanted.find(scan.rest).is_none() && ESCAPED_LETTER.find(scan.rest).is_none() {
                return found;
            }
        }
        match scan.symbol()? {
            b',' => {}
            b'}' if scan.symbol().is_none() => return found,
            _ => return None,
        }
    }
}

/// The value of the last member of an object whose quoted name this is, found without a look at what stands in front of it.
/// None where the last one of that name is further inside.
pub(crate) fn last<'a>(text: &'a [u8], quoted: &Finder<'_>) -> Option<&'a [u8]> {
    // Inside a string a quote is escaped, so this is a name, or the end of one further inside.
    let at = quoted.find_iter(text).last()?;
    let mut scan = Scan { rest: &text[at + quoted.needle().len()..] };
    scan.expect(b':')?;
    let value = scan.value()?;
    loop {
        match scan.symbol()? {
            b',' => drop(scan.member()?),
            b'}' if scan.symbol().is_none() => return Some(value),
            _ => return None,
        }
    }
}

struct Scan<'a> {
    rest: &'a [u8],
}

impl<'a> Scan<'a> {
    fn object(&mut self, see: &mut impl FnMut(&[u8], &'a [u8])) -> Option<()> {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            return self.expect(b'}');
        }
        loop {
            let (name, value) = self.member()?;
            see(&name, value);
            match self.symbol()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    fn member(&mut self) -> Option<(Cow<'a, [u8]>, &'a [u8])> {
        if self.peek()? != b'"' {
            return None;
        }
        let name = self.name()?;
        self.expect(b':')?;
        Some((name, self.value()?))
    }

    /// The next byte that is no space; it stays.
    fn peek(&mut self) -> Option<u8> {
        while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest.first().copied()
    }

    /// The next byte that is no space.
    fn symbol(&mut self) -> Option<u8> {
        let symbol = self.peek()?;
        self.rest = &self.rest[1..];
        Some(symbol)
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.symbol()? == wanted).then_some(())
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// The string that begins here, with its quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.take(string_length(self.rest)?)
    }

    /// What is in the string that begins here. Names are hardly ever written with escapes.
    fn name(&mut self) -> Option<Cow<'a, [u8]>> {
        let end = 1 + special(self.rest.get(1..)?)?;
        if self.rest[end] == b'"' {
            return self.take(end + 1).map(|quoted| Cow::Borrowed(&quoted[1..end]));
        }
        let quoted = self.string()?;
        serde_json::from_slice::<String>(quoted).ok().map(|name| Cow::Owned(name.into_bytes()))
    }

    fn value(&mut self) -> Option<&'a [u8]> {
        match self.peek()? {
            b'"' => self.string(),
            b'{' | b'[' => self.nested(),
            _ => {
                let is_behind = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
                let end = self.rest.iter().position(is_behind)?;
                self.take(end).filter(|scalar| !scalar.is_empty())
            }
        }
    }

    /// The object or array that begins here.
    fn nested(&mut self) -> Option<&'a [u8]> {
        let (mut at, mut depth) = (0, 0_usize);
        loop {
            match self.rest.get(at)? {
                b'"' => {
                    at += string_length(&self.rest[at..])?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                return self.take(at);
            }
        }
    }
}

/// How long the string is that a text begins with, with its quotes.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut end = 1;
    loop {
        end += special(text.get(end..)?)?;
        if text[end] == b'"' {
            return Some(end + 1);
        }
        end += 2;
    }
}

/// How far strings are looked at word by word: most are short, and not worth a search.
const SHORT: usize = 32;

/// Where the next quote or backslash is.
fn special(text: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    /// The high bit of the first byte that is zero, and of none before it.
    const fn zeros(word: u64) -> u64 {
        word.wrapping_sub(ONES) & !word & HIGH
    }
    let (words, _) = text[..text.len().min(SHORT)].as_chunks();
    for (index, bytes) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*bytes);
        let found = zeros(word ^ (ONES * b'"' as u64)) | zeros(word ^ (ONES * b'\\' as u64));
        if found != 0 {
            return Some(index * size_of::<u64>() + found.trailing_zeros() as usize / 8);
        }
    }
    let seen = words.len() * size_of::<u64>();
    memchr2(b'"', b'\\', &text[seen..]).map(|near| seen + near)
}

/// The text that a value is, if it is one.
pub(crate) fn text(value: &[u8]) -> Option<Cow<'_, str>> {
    let inside = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let is_plain = inside.iter().all(|byte| (b' '..0x7f).contains(byte) && *byte != b'\\');
    if is_plain {
        return std::str::from_utf8(inside).ok().map(Cow::Borrowed);
    }
    serde_json::from_slice::<String>(value).ok().map(Cow::Owned)
}

/// The number that a value is, if it is one of those that count things; one that is too large is the largest.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok().filter(|text| !text.is_empty())?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> (String, bool) {
        let mut shown = Vec::new();
        let is_object = each(text.as_bytes(), |name, value| {
            shown.push(format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)))
        });
        (shown.join(" "), is_object)
    }

    #[test]
    fn the_only_one_of_a_name() {
        let long = format!(r#"{{"model": "m", "text": "{}"}}"#, "word ".repeat(1_000));
        for (text, wanted) in [
            (r#"{"model":"m"}"#, Some("m")),
            (r#"{"a": [1, {"model": "no"}], "model": "m"}"#, Some("m")),
            (r#"{"model": "m", "a": {"model": "no"}}"#, Some("m")),
            (r#"{"model": "m", "a": "a model"}"#, Some("m")),
            (r#"{"model": "m", "a": "\u0041"}"#, Some("m")),
            (r#"{"mod\u0065l": "m"}"#, Some("m")),
            (&long, Some("m")),
            (r#"{"model": "m", "model": "n"}"#, None),
            (r#"{"model": "m", "mod\u0065l": "n"}"#, None),
            (r#"{"mod\u0065l": "m", "model": "n"}"#, None),
            (r#"{"other": "m"}"#, None),
            (r#"{}"#, None),
            (r#"["model"]"#, None),
            (r#"{"a": 1, "model": "m"} {}"#, Some("m")),
            (r#"{"model": "m", "model": "n"#, None),
            ("", None),
        ] {
            let found = only(text.as_bytes(), &MODEL).and_then(super::text);
            assert_eq!(found.as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn the_last_one_of_a_name() {
        let quoted = Finder::new(b"\"usage\"");
        for (text, wanted) in [
            (r#"{"a":1,"usage":{"b":2}}"#, Some(r#"{"b":2}"#)),
            (r#"{"a":1, "usage" : 7 , "c":[{"d":"}"}] } "#, Some("7")),
            (r#"{"a":{"usage":1},"usage":2,"c":"usage of words"}"#, Some("2")),
            (r#"{"a":"\"usage\":{}","usage":3}"#, Some("3")),
            (r#"{"usage":1,"usage":2}"#, Some("2")),
            (r#"{"usage":3,"a":"\"usage\":{}"}"#, Some("3")),
            (r#"{"usage":3,"a":{"usage":4}}"#, None),
            (r#"{"usage":3,"a":[{"usage":4}]}"#, None),
            (r#"{"usage":3,"a":"usage"}"#, None),
            (r#"{"usage":3,"a":{"the \"usage":4}}"#, None),
            (r#"{"usage":3"#, None),
            (r#"{"usage":3}}"#, None),
            (r#"{"usage":3,}"#, None),
            (r#"{"usage"}"#, None),
            (r#"{"a":1}"#, None),
            ("", None),
        ] {
            let found = last(text.as_bytes(), &quoted).map(String::from_utf8_lossy);
            assert_eq!(found.as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn members_as_they_are_written() {
        for (text, expected) in [
            ("{}", ""),
            (" { } \n", ""),
            (r#"{"a":1}"#, "a=1"),
            (r#"{ "a" : -1.5e3 , "b":null}"#, "a=-1.5e3 b=null"),
            (r#"{"a":"x\"}{","b":"\\"}"#, r#"a="x\"}{" b="\\""#),
            (r#"{"a":{"b":[1,{"c":"}]"}]},"d":[]}"#, r#"a={"b":[1,{"c":"}]"}]} d=[]"#),
            (r#"{"\u006dodel":"m","model":"n"}"#, r#"model="m" model="n""#),
            ("{\"\u{fc}\":\"\u{fc}\"}", "\u{fc}=\"\u{fc}\""),
        ] {
            assert!(serde_json::from_str::<serde_json::Value>(text).is_ok(), "{text}");
            assert_eq!(shown(text), (expected.to_owned(), true), "{text}");
        }
    }

    /// Also beside bytes that differ from those looked for by one, and by the highest bit.
    #[test]
    fn the_first_quote_or_backslash() {
        for fill in [b'a', b'!', b'#', b'[', b']', 0, 0xa2, 0xdc, 0xff] {
            for length in 0..80 {
                let mut text = vec![fill; length];
                assert_eq!(special(&text), None, "{text:?}");
                for at in (0..length).rev() {
                    text[at] = if at % 2 == 0 { b'"' } else { b'\\' };
                    assert_eq!(special(&text), Some(at), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn texts_and_numbers() {
        for (value, expected) in [
            (r#""claude""#, Some("claude")),
            (r#""""#, Some("")),
            (r#""a\"b\u00fc""#, Some("a\"b\u{fc}")),
            ("\"\u{fc}\"", Some("\u{fc}")),
            ("\"\n\"", None),
            (r#"""#, None),
            (r#""a"#, None),
            ("null", None),
            ("12", None),
        ] {
            assert_eq!(text(value.as_bytes()).as_deref(), expected, "{value}");
            assert_eq!(serde_json::from_str::<String>(value).ok().as_deref(), expected, "{value}");
        }
        assert_eq!(text(b"\"\xff\""), None);
        for (value, expected) in [
            ("0", Some(0)),
            ("12", Some(12)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", Some(u64::MAX)),
        ] {
            assert_eq!(number(value.as_bytes()), expected, "{value}");
        }
        for value in ["-1", "+1", "1.0", "1e3", "null", "\"1\"", ""] {
            assert_eq!(number(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn what_is_no_object() {
        for text in [
            "",
            " ",
            "{",
            "}",
            "[]",
            "1",
            "\"a\"",
            "{a:1}",
            "{'a':1}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1"#,
            r#"{"a":1,}"#,
            r#"{"a":"x}"#,
            r#"{"a":"x\"}"#,
            r#"{"a":[}"#,
            r#"{"a":1}}"#,
            r#"{"a":1} {"#,
            r#"{,"a":1}"#,
            r#"{"a":1 "b":2}"#,
            r#"/* */{"a":1}"#,
            "{\"\\x\":1}",
        ] {
            assert!(
                serde_json::from_str::<serde_json::Value>(text).is_err() || !text.starts_with('{'),
                "{text}"
            );
            assert!(!shown(text).1, "{text}");
        }
    }
}
