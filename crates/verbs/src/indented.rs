//! JSON for people: two spaces per level. What users gave is written as they gave it, numbers and order untouched, and
//! indented like the rest.

use std::io::{self, Write};

use memchr::memchr2;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// The JSON of a value of ours, two spaces per level, with a newline at the end.
pub fn indented_json<T: Serialize>(value: &T) -> String {
    let mut text = Vec::with_capacity(1_024);
    let written = value.serialize(&mut Serializer::with_formatter(&mut text, Indented::default()));
    text.push(b'\n');
    match (written, String::from_utf8(text)) {
        (Ok(()), Ok(text)) => rota_core::text::json_escaped(text),
        (Err(error), _) => panic!("a payload is not JSON: {error}"),
        (_, Err(error)) => panic!("a payload is not JSON: {error}"),
    }
}

/// As serde writes it, but for what is JSON already: that would stay on one line.
#[derive(Default)]
struct Indented {
    pretty: PrettyFormatter<'static>,
    level: usize,
}

macro_rules! pretty {
    ($($name:ident($($given:ident: $type:ty)?),)*) => {
        $(fn $name<W: ?Sized + Write>(&mut self, writer: &mut W $(, $given: $type)?) -> io::Result<()> {
            self.pretty.$name(writer $(, $given)?)
        })*
    };
}

impl Formatter for Indented {
    pretty! {
        begin_array_value(first: bool), end_array_value(), begin_object_value(), end_object_value(),
    }

    /// Every key of every payload begins here, so it is written in one piece.
    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        const BREAK: &[u8] = b",\n                ";
        match BREAK.get(usize::from(first)..2 + 2 * self.level) {
            Some(piece) => writer.write_all(piece),
            None => self.pretty.begin_object_key(writer, first),
        }
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.level += 1;
        self.pretty.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.level -= 1;
        self.pretty.end_array(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.level += 1;
        self.pretty.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.level -= 1;
        self.pretty.end_object(writer)
    }

    fn write_raw_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, compact: &str) -> io::Result<()> {
        write_indented(writer, compact, self.level)
    }
}

/// Compact JSON with line breaks and two spaces per level.
fn write_indented<W: ?Sized + Write>(writer: &mut W, compact: &str, mut level: usize) -> io::Result<()> {
    let mut rest = compact.as_bytes();
    // What is between two of these is copied as it is.
    while let Some(at) = rest.iter().position(|byte| b"{[}],:\"".contains(byte)) {
        writer.write_all(&rest[..at])?;
        let behind = &rest[at..];
        let length = match behind {
            [b'"', ..] => string_length(behind),
            [b'{', b'}', ..] | [b'[', b']', ..] => 2,
            _ => 1,
        };
        let (piece, behind) = behind.split_at(length);
        if matches!(piece, b"}" | b"]") {
            level = level.saturating_sub(1);
            break_line(writer, level)?;
        }
        writer.write_all(piece)?;
        match piece {
            b"{" | b"[" => {
                level += 1;
                break_line(writer, level)?;
            }
            b"," => break_line(writer, level)?,
            b":" => writer.write_all(b" ")?,
            _ => {}
        }
        rest = behind;
    }
    writer.write_all(rest)
}

fn break_line<W: ?Sized + Write>(writer: &mut W, level: usize) -> io::Result<()> {
    writer.write_all(b"\n")?;
    (0..level).try_for_each(|_| writer.write_all(b"  "))
}

/// How long the string is that a text begins with, quotes included.
fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(near) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += near + 1;
        if text[at - 1] == b'"' {
            return at;
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use rota_core::Json;
    use serde_json::{Value, json};

    use super::*;

    /// Whether as a value of ours or as a text that was given: as everybody writes it.
    #[test]
    fn indents_like_everybody() {
        let nested = (0..40).fold(json!("\u{fc}\n\\"), |inner, number| json!([inner, true, number]));
        for value in [
            json!({"a": [1, {"b": "x, {\\\"[", "c": []}], "d": {}, "e": "\\", "f": null, "": ""}),
            json!({"\u{fc}": nested}),
            json!([]),
            json!("x"),
            json!(-1.5),
        ] {
            let wanted = |value: &Value| serde_json::to_string_pretty(value).ok().map(|text| text + "\n");
            assert_eq!(Some(indented_json(&value)), wanted(&value));
            let given = [Some(Json::of(&value)), None];
            assert_eq!(Some(indented_json(&given)), wanted(&json!([value, null])));
        }
    }

    #[test]
    fn numbers_stay_as_they_are_written() {
        let given = Json::parse(r#"{"n":1.0e400}"#).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(indented_json(&[given]), "[\n  {\n    \"n\": 1.0e400\n  }\n]\n");
    }
}
