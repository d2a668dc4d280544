//! Rust source without what is not code. A small reader, not a parser: it knows comments, texts and characters, and
//! keeps every line where it is.

/// What to blank out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Without {
    /// Comments only.
    Comments,
    /// Comments and what is inside of texts and characters.
    CommentsAndTexts,
}

/// The source with spaces for what is left out.
pub fn code(source: &str, without: Without) -> String {
    let mut reader = Reader { rest: source, out: String::with_capacity(source.len()), without };
    while let Some(character) = reader.rest.chars().next() {
        reader.step(character);
    }
    reader.out
}

struct Reader<'a> {
    rest: &'a str,
    out: String,
    without: Without,
}

impl Reader<'_> {
    fn step(&mut self, character: char) {
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            return self.blank(end);
        }
        if self.rest.starts_with("/*") {
            return self.blank(block_comment(self.rest));
        }
        if let Some((open, close)) = raw_text(self.rest).filter(|_| !self.after_word()) {
            let body = &self.rest[open..];
            let end = body.find(&close).map_or(self.rest.len(), |at| open + at + close.len());
            return self.text(end);
        }
        if character == '"' {
            return self.text(quoted(self.rest, '"'));
        }
        if character == '\'' && is_character(self.rest) {
            return self.text(quoted(self.rest, '\''));
        }
        self.keep(character.len_utf8());
    }

    fn after_word(&self) -> bool {
        self.out.chars().next_back().is_some_and(|before| before.is_alphanumeric() || before == '_')
    }

    fn keep(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes);
        self.out.push_str(taken);
        self.rest = rest;
    }

    fn text(&mut self, bytes: usize) {
        if self.without == Without::Comments { self.keep(bytes) } else { self.blank(bytes) }
    }

    fn blank(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes);
        self.out.extend(taken.chars().map(|character| if character == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }
}

/// Where a comment that may hold others ends.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// How long the opening of a raw text is, and what closes it.
fn raw_text(text: &str) -> Option<(usize, String)> {
    let after = ["r", "br", "cr"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    let opens = after[hashes..].starts_with('"');
    opens.then(|| (text.len() - after.len() + hashes + 1, format!("\"{}", "#".repeat(hashes))))
}

/// Where a quoted text ends, its quotes included.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        if character == quote && !escaped {
            return at + 1;
        }
        escaped = character == '\\' && !escaped;
    }
    text.len()
}

/// `'a'` and `'\n'` are characters, `'a` alone is a lifetime.
fn is_character(text: &str) -> bool {
    let mut rest = text.chars().skip(1);
    matches!((rest.next(), rest.next()), (Some('\\'), _) | (Some(_), Some('\'')))
}

/// Whether the code has this as a whole word.
pub fn has_word(code: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// A function and how many lines it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Where it begins, from 1.
    pub line: usize,
    /// From `fn` to the closing brace, but for lines without code: comments, and lines inside of a text.
    pub lines: usize,
}

/// Every function with a body, by counting braces. `code` must be without comments and texts.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let begins =
            code[..at].chars().next_back().is_none_or(|before| before.is_whitespace() || before == '(');
        let name: String =
            code[at + 3..].chars().take_while(|next| next.is_alphanumeric() || *next == '_').collect();
        let Some(length) = body(&code[at..]).filter(|_| begins && !name.is_empty()) else { continue };
        let line = code[..at].matches('\n').count() + 1;
        let lines = lines_of_code(&code[at..at + length]);
        found.push(Function { name, line, lines });
    }
    found
}

/// How many lines are not blank.
pub fn lines_of_code(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

/// How far it is to the closing brace; none for a declaration.
fn body(code: &str) -> Option<usize> {
    let (mut depth, mut inside) = (0_usize, 0_usize);
    for (at, character) in code.char_indices() {
        match character {
            '(' | '[' => inside += 1,
            ')' | ']' => inside = inside.saturating_sub(1),
            ';' if depth == 0 && inside == 0 => return None,
            '{' => depth += 1,
            '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_texts_are_left_out() {
        for (source, left) in [
            ("a // f64", "a"),
            ("a /* b /* c */ d */ e", "a e"),
            (r#"let x = "f64 // no";"#, "let x = ;"),
            (r###"r#"a " b"# c"###, "c"),
            (r#"'"' x "y""#, "x"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("'\\'' y", "y"),
            ("for r in x {}", "for r in x {}"),
        ] {
            let blanked = code(source, Without::CommentsAndTexts);
            assert_eq!(blanked.split_whitespace().collect::<Vec<_>>().join(" "), left, "{source}");
            assert_eq!(blanked.chars().count(), source.chars().count(), "{source}");
        }
        assert_eq!(code("\"a\" // b", Without::Comments).trim_end(), "\"a\"");
    }

    #[test]
    fn whole_words_only() {
        assert!(has_word("x: f64,", "f64"));
        assert!(!has_word("of64 f64x", "f64"));
        assert!(!has_word("random", "rand"));
    }

    #[test]
    fn functions_are_measured() {
        let source =
            "trait T { fn a(&self); fn b() {\n} }\nfn c(x: [u8; 2]) -> u8 {\n  if x { 1 }\n\n  2\n}\n";
        let measured: Vec<(String, usize, usize)> =
            functions(source).into_iter().map(|found| (found.name, found.line, found.lines)).collect();
        assert_eq!(measured, [("b".to_owned(), 1, 2), ("c".to_owned(), 3, 4)]);
    }
}
