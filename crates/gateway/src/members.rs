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
            // Most are short, and not worth a search.
            let near = self
                .rest
                .get(end..)?
                .iter()
                .take(SHORT)
                .position(|byte| KINDS[usize::from(*byte)] & QUOTED != 0);
            end += match near {
                Some(near) => near,
                None => memchr2(b'"', b'\\', &self.rest[end..])?,
            };
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

/// How far strings are looked at byte by byte.
const SHORT: usize = 32;
/// What ends a string, or hides its end.
const QUOTED: u8 = 1;
const BEHIND_A_SCALAR: u8 = 2;
const STRUCTURE: u8 = 4;
/// What each byte may be.
static KINDS: [u8; 256] = {
    let mut kinds = [0; 256];
    let list: [(&[u8], u8); 3] =
        [(b"\"\\", QUOTED), (b",}] \t\r\n", BEHIND_A_SCALAR), (b"\"{}[]", STRUCTURE)];
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
