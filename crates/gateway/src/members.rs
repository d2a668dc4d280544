//! The members of a JSON object, found without parsing what is in them: bodies are long, and little of them is looked at.
//! What is not JSON may be taken for it where it does not matter; a provider refuses it anyway.

use std::borrow::Cow;

use memchr::memchr2;

/// Shows every member of the object that a text is: its name, and its value as it is written. False if the text is no
/// object; members in front of the place where that shows have been shown by then.
pub(crate) fn each<'a>(text: &'a [u8], mut see: impl FnMut(&[u8], &'a [u8])) -> bool {
    let mut scan = Scan { rest: text };
    scan.object(&mut see).is_some() && scan.symbol().is_none()
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
            if self.peek()? != b'"' {
                return None;
            }
            let quoted = self.string()?;
            self.expect(b':')?;
            let value = self.value()?;
            see(&unquoted(quoted)?, value);
            match self.symbol()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// The next byte that is no space; it stays.
    fn peek(&mut self) -> Option<u8> {
        let spaces = self.rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
        self.rest = &self.rest[spaces..];
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
        let mut end = 1;
        loop {
            end += special(self.rest.get(end..)?)?;
            if self.rest[end] == b'"' {
                return self.take(end + 1);
            }
            end += 2;
        }
    }

    fn value(&mut self) -> Option<&'a [u8]> {
        match self.peek()? {
            b'"' => self.string(),
            b'{' | b'[' => self.nested(),
            _ => {
                let end =
                    self.rest.iter().position(|byte| KINDS[usize::from(*byte)] & BEHIND_A_SCALAR != 0)?;
                self.take(end).filter(|scalar| !scalar.is_empty())
            }
        }
    }

    /// The object or array that begins here.
    fn nested(&mut self) -> Option<&'a [u8]> {
        let whole = self.rest;
        let mut depth = 0_usize;
        loop {
            let next = self.rest.iter().position(|byte| KINDS[usize::from(*byte)] & STRUCTURE != 0)?;
            self.rest = &self.rest[next..];
            match self.rest[0] {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                _ => depth -= 1,
            }
            self.rest = &self.rest[1..];
            if depth == 0 {
                return Some(&whole[..whole.len() - self.rest.len()]);
            }
        }
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
    let mut at = 0;
    while at < SHORT {
        let Some(bytes) = text[at..].first_chunk() else { break };
        let word = u64::from_le_bytes(*bytes);
        let found = zeros(word ^ (ONES * b'"' as u64)) | zeros(word ^ (ONES * b'\\' as u64));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += size_of::<u64>();
    }
    memchr2(b'"', b'\\', &text[at..]).map(|near| at + near)
}

const BEHIND_A_SCALAR: u8 = 1;
const STRUCTURE: u8 = 2;
/// What each byte may be.
static KINDS: [u8; 256] = {
    let mut kinds = [0; 256];
    let list: [(&[u8], u8); 2] = [(b",}] \t\r\n", BEHIND_A_SCALAR), (b"\"{}[]", STRUCTURE)];
    let mut which = 0;
    while which < list.len() {
        let (bytes, kind) = list[which];
        let mut index = 0;
        while index < bytes.len() {
            kinds[bytes[index] as usize] |= kind;
            index += 1;
        }
        which += 1;
    }
    kinds
};

/// What is between quotes; names are hardly ever written with escapes.
fn unquoted(quoted: &[u8]) -> Option<Cow<'_, [u8]>> {
    let inside = &quoted[1..quoted.len() - 1];
    if inside.contains(&b'\\') {
        return serde_json::from_slice::<String>(quoted).ok().map(|name| Cow::Owned(name.into_bytes()));
    }
    Some(Cow::Borrowed(inside))
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
