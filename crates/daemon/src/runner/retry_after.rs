//! How long an agent that was rate limited asks to wait: a line `retry-after: N` of its output, or the file
//! `artifacts/retry-after`.

/// The file's name.
pub const FILE: &str = "retry-after";
/// The largest file that is read.
pub const FILE_BYTES: u64 = 1_024;

/// The seconds that the last line with a `retry-after: N` asks for.
pub fn in_output(text: &str) -> Option<u64> {
    text.lines().rev().find_map(in_line)
}

/// The seconds that a file asks for: a number, or a line as in the output.
pub fn in_file(bytes: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(bytes);
    in_output(&text).or_else(|| seconds(text.trim()))
}

fn in_line(line: &str) -> Option<u64> {
    const KEY: &str = "retry-after:";
    let line = line.to_ascii_lowercase();
    let place = line.rfind(KEY)?;
    seconds(line[place + KEY.len()..].trim_start())
}

/// Leading digits; a number that is too large is the largest.
fn seconds(text: &str) -> Option<u64> {
    let digits: &str = &text[..text.bytes().take_while(u8::is_ascii_digit).count()];
    (!digits.is_empty()).then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_ask_for_a_wait() {
        for (text, wanted) in [
            ("retry-after: 7\n", Some(7)),
            ("working\nHTTP 429, Retry-After: 30 s\n\n  \n", Some(30)),
            ("retry-after: 5\nRETRY-AFTER:9\nbye\n", Some(9)),
            ("retry-after: soon\n", None),
            ("retry after 9\n", None),
            ("retry-after: 99999999999999999999999\n", Some(u64::MAX)),
            ("", None),
        ] {
            assert_eq!(in_output(text), wanted, "{text}");
        }
        for (text, wanted) in [("12\n", Some(12)), ("retry-after: 3", Some(3)), ("x", None), ("", None)] {
            assert_eq!(in_file(text.as_bytes()), wanted, "{text}");
        }
    }
}
