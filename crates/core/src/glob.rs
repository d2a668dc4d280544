//! Globs on names: `*` any text, `?` one character, `[ab]`, `[a-z]`, `[!a]` one of a set. Case-sensitive.

/// A comma-separated list of globs; matches if any of them matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Globs(Vec<Vec<char>>);

impl Globs {
    /// Parses a list; empty parts are dropped, so an empty list matches nothing.
    pub fn parse(list: &str) -> Self {
        let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
        Self(parts.map(|part| part.chars().collect()).collect())
    }

    /// Whether any of them matches the whole text.
    pub fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        self.0.iter().any(|pattern| matches(pattern, &text))
    }
}

/// Backtracks only to the last star, so the cost stays pattern × text.
fn matches(pattern: &[char], text: &[char]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
                continue;
            }
            Some(_) => one(&pattern[at..], text[from]),
            None => None,
        };
        match (step, star) {
            (Some(width), _) => {
                at += width;
                from += 1;
            }
            (None, Some((star_at, taken))) => {
                star = Some((star_at, taken + 1));
                (at, from) = (star_at + 1, taken + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|character| *character == '*')
}

/// The length of the pattern that this character matches, if it does.
fn one(pattern: &[char], character: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['[', rest @ ..] => {
            let (negated, set) = match rest {
                ['!', set @ ..] => (true, set),
                set => (false, set),
            };
            let Some(end) = set.iter().skip(1).position(|c| *c == ']').map(|found| found + 1) else {
                return (character == '[').then_some(1);
            };
            let inside = in_set(&set[..end], character);
            (inside != negated).then_some(1 + usize::from(negated) + end + 1)
        }
        [literal, ..] => (*literal == character).then_some(1),
        [] => None,
    }
}

fn in_set(set: &[char], character: char) -> bool {
    match set {
        [low, '-', high, rest @ ..] => (*low..=*high).contains(&character) || in_set(rest, character),
        [one, rest @ ..] => *one == character || in_set(rest, character),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (globs, text, wanted) in [
            ("specs/*.md", "specs/a.md", true),
            ("specs/*.md", "specs/a/b.md", true),
            ("specs/*.md", "specs/a.txt", false),
            ("a,b*", "bcd", true),
            ("a,b*", "ab", false),
            ("", "", false),
            ("*", "", true),
            ("?", "ü", true),
            ("?", "", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[!a-c]x", "zx", true),
            ("[]]", "]", true),
            ("[ab", "[ab", true),
            ("A", "a", false),
        ] {
            assert_eq!(Globs::parse(globs).matches(text), wanted, "{globs} on {text}");
        }
        let hostile = Globs::parse(&"*a".repeat(40));
        assert!(!hostile.matches(&"a".repeat(39)));
    }
}
