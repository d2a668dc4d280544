//! A managed section of a text file: the lines between two markers. All other bytes of the file belong to its owner.
//!
//! The first marker has the hash of the text between the two, so that an edited section can be told from an outdated one,
//! and notes what `add` did to the file, so that `remove` can undo it exactly.

use sha2::{Digest, Sha256};

use super::State;

/// Noted where the file did not exist: `remove` deletes it.
const NEW: &str = "new";
/// Noted where the last line of the file had no end: `remove` takes the added one away.
const JOINED: &str = "joined";

/// How a comment looks in the file.
#[derive(Clone, Copy, Debug)]
pub enum Comment {
    /// `<!-- … -->`
    Markdown,
    /// `# …`
    Toml,
}

impl Comment {
    fn line(self, text: &str) -> String {
        match self {
            Self::Markdown => format!("<!-- {text} -->"),
            Self::Toml => format!("# {text}"),
        }
    }

    /// The text of a comment line; none for any other line.
    fn text(self, line: &[u8]) -> Option<&str> {
        let line = std::str::from_utf8(line).ok()?.trim();
        match self {
            Self::Markdown => line.strip_prefix("<!--")?.strip_suffix("-->").map(str::trim),
            Self::Toml => line.strip_prefix('#').map(str::trim),
        }
    }
}

/// The section that a file should have.
#[derive(Clone, Debug)]
pub struct Section {
    /// How its markers are written.
    pub comment: Comment,
    /// The lines between the markers, with `\n` at the end of each.
    pub body: String,
}

/// A section that is in a file.
struct Found {
    /// Where its first marker begins.
    start: usize,
    /// Behind the line of its last marker.
    end: usize,
    hash: String,
    notes: Vec<String>,
    body: String,
    /// The line ending of its first marker.
    eol: &'static str,
    /// Whether the line of its last marker has an end.
    is_terminated: bool,
}

fn hash(body: &str) -> String {
    let digest = Sha256::digest(body.as_bytes());
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The line ending of the first line.
fn eol_of(text: &[u8]) -> &'static str {
    match text.iter().position(|byte| *byte == b'\n') {
        Some(at) if at > 0 && text[at - 1] == b'\r' => "\r\n",
        _ => "\n",
    }
}

impl Section {
    /// How the section in a file compares to this one.
    pub fn state(&self, text: &[u8]) -> Result<State, String> {
        let Some(found) = self.find(text)? else { return Ok(State::Missing) };
        let is_current = found.body == self.body && found.hash == hash(&self.body);
        Ok(if is_current { State::Current } else { State::Stale })
    }

    /// Whether somebody edited the section by hand.
    pub fn is_edited(&self, text: &[u8]) -> bool {
        self.find(text).is_ok_and(|found| found.is_some_and(|found| hash(&found.body) != found.hash))
    }

    /// The file with this section: replaced where there is one, else behind everything else. `None` is no file.
    pub fn add(&self, text: Option<&[u8]>) -> Result<Vec<u8>, String> {
        let Some(text) = text else { return Ok(self.written(&[NEW.to_owned()], "\n").into_bytes()) };
        if let Some(found) = self.find(text)? {
            let mut section = self.written(&found.notes, found.eol);
            if !found.is_terminated {
                section.truncate(section.len() - found.eol.len());
            }
            return Ok([&text[..found.start], section.as_bytes(), &text[found.end..]].concat());
        }
        let eol = eol_of(text);
        let mut all = text.to_vec();
        let is_joined = !text.is_empty() && !text.ends_with(b"\n");
        if is_joined {
            all.extend_from_slice(eol.as_bytes());
        }
        if !text.is_empty() {
            all.extend_from_slice(eol.as_bytes());
        }
        let notes = if is_joined { vec![JOINED.to_owned()] } else { Vec::new() };
        all.extend_from_slice(self.written(&notes, eol).as_bytes());
        Ok(all)
    }

    /// The file without the section; `None` where the file should not exist.
    pub fn remove(&self, text: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let Some(found) = self.find(text)? else { return Ok(Some(text.to_vec())) };
        let (mut before, after) = (&text[..found.start], &text[found.end..]);
        let noted = |note: &str| found.notes.iter().any(|known| known == note);
        if before.is_empty() && after.is_empty() && noted(NEW) {
            return Ok(None);
        }
        if !before.is_empty() {
            before = before.strip_suffix(found.eol.as_bytes()).unwrap_or(before);
            // With text behind the section, two lines would become one.
            if noted(JOINED) && after.is_empty() {
                before = before.strip_suffix(found.eol.as_bytes()).unwrap_or(before);
            }
        }
        Ok(Some([before, after].concat()))
    }

    /// The bytes of the file that are not the section's.
    pub fn without(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        Ok(match self.find(text)? {
            Some(found) => [&text[..found.start], &text[found.end..]].concat(),
            None => text.to_vec(),
        })
    }

    /// The section as a file has it.
    pub fn written(&self, notes: &[String], eol: &str) -> String {
        let mut first = format!("rota:begin {}", hash(&self.body));
        for note in notes {
            first = format!("{first} {note}");
        }
        let lines = [self.comment.line(&first)]
            .into_iter()
            .chain(self.body.lines().map(str::to_owned))
            .chain([self.comment.line("rota:end")]);
        lines.map(|line| line + eol).collect()
    }

    fn find(&self, text: &[u8]) -> Result<Option<Found>, String> {
        let mut found: Option<Found> = None;
        let (mut at, mut is_open) = (0, false);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let marker = self.comment.text(line).unwrap_or_default();
            let end = at + line.len();
            if let Some(words) = marker.strip_prefix("rota:begin ") {
                if found.is_some() {
                    return Err("has two sections of `rota setup`; delete one of them".to_owned());
                }
                let mut words = words.split_whitespace().map(str::to_owned);
                let (hash, notes) = (words.next().unwrap_or_default(), words.collect());
                let (body, eol) = (String::new(), if line.ends_with(b"\r\n") { "\r\n" } else { "\n" });
                found = Some(Found { start: at, end, hash, notes, body, eol, is_terminated: false });
                is_open = true;
            } else if let Some(open) = found.as_mut().filter(|_| is_open) {
                open.end = end;
                if marker == "rota:end" {
                    open.is_terminated = line.ends_with(b"\n");
                    is_open = false;
                } else {
                    let text = String::from_utf8_lossy(line);
                    open.body.push_str(text.trim_end_matches(['\r', '\n']));
                    open.body.push('\n');
                }
            }
            at = end;
        }
        if is_open {
            let end = self.comment.line("rota:end");
            return Err(format!("has a section of `rota setup` without its last line, {end}"));
        }
        Ok(found)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn section(body: &str) -> Section {
        Section { comment: Comment::Markdown, body: body.to_owned() }
    }

    const BEGIN: &str = "<!-- rota:begin abe260dc8e6b";

    #[test]
    fn a_section_goes_behind_the_text_and_leaves_without_a_trace() {
        let own = section("Use Rota.\n");
        for (before, after) in [
            (None, "BEGIN new -->\nUse Rota.\n<!-- rota:end -->\n"),
            (Some(""), "BEGIN -->\nUse Rota.\n<!-- rota:end -->\n"),
            (Some("# A\n"), "# A\n\nBEGIN -->\nUse Rota.\n<!-- rota:end -->\n"),
            (Some("# A"), "# A\n\nBEGIN joined -->\nUse Rota.\n<!-- rota:end -->\n"),
            (Some("# A\r\nb\r\n"), "# A\r\nb\r\n\r\nBEGIN -->\r\nUse Rota.\r\n<!-- rota:end -->\r\n"),
            (Some("# A\r\nb"), "# A\r\nb\r\n\r\nBEGIN joined -->\r\nUse Rota.\r\n<!-- rota:end -->\r\n"),
        ] {
            let expected = after.replace("BEGIN", BEGIN);
            let added = own.add(before.map(str::as_bytes)).unwrap();
            assert_eq!(String::from_utf8(added.clone()).unwrap(), expected, "{before:?}");
            assert_eq!(own.add(Some(&added)).unwrap(), added, "twice: {before:?}");
            assert_eq!(own.state(&added), Ok(State::Current), "{before:?}");
            assert_eq!(own.remove(&added).unwrap().as_deref(), before.map(str::as_bytes), "{before:?}");
        }
    }

    #[test]
    fn an_older_or_edited_section_is_replaced_in_its_place() {
        let added = section("Old.\n").add(Some(b"# A")).unwrap();
        let text = [added.as_slice(), b"# B\n"].concat();
        let new = section("New.\nText.\n");
        assert_eq!(new.state(&text), Ok(State::Stale));
        assert!(!new.is_edited(&text));
        let updated = new.add(Some(&text)).unwrap();
        assert_eq!(new.state(&updated), Ok(State::Current));
        assert_eq!(new.remove(&updated).unwrap().unwrap(), b"# A\n# B\n");
        let edited = String::from_utf8(updated).unwrap().replace("Text.", "My text.");
        assert_eq!(new.state(edited.as_bytes()), Ok(State::Stale));
        assert!(new.is_edited(edited.as_bytes()));
    }

    #[test]
    fn line_endings_that_git_converts_make_nothing_stale() {
        let own = section("Use Rota.\nTwice.\n");
        let added = String::from_utf8(own.add(Some(b"# A\n")).unwrap()).unwrap();
        let converted = added.replace('\n', "\r\n");
        assert_eq!(own.state(converted.as_bytes()), Ok(State::Current));
        assert_eq!(own.remove(converted.as_bytes()).unwrap().unwrap(), b"# A\r\n");
    }

    #[test]
    fn markers_that_do_not_pair_are_refused() {
        let own = section("Use Rota.\n");
        let added = String::from_utf8(own.add(Some(b"# A\n")).unwrap()).unwrap();
        for broken in [added.replace("<!-- rota:end -->\n", ""), format!("{added}{added}")] {
            assert!(own.add(Some(broken.as_bytes())).is_err());
            assert!(own.remove(broken.as_bytes()).is_err());
        }
    }

    proptest! {
        #[test]
        fn adding_and_removing_is_the_identity(
            text in proptest::option::of(proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'a'), Just(b'#'), Just(b' '), any::<u8>()],
                0..40,
            )),
            is_toml in any::<bool>(),
        ) {
            let comment = if is_toml { Comment::Toml } else { Comment::Markdown };
            let own = Section { comment, body: "one\n\ntwo\n".to_owned() };
            let added = own.add(text.as_deref()).unwrap();
            prop_assert_eq!(own.add(Some(&added)).unwrap(), added.clone());
            prop_assert_eq!(own.state(&added), Ok(State::Current));
            prop_assert_eq!(own.remove(&added).unwrap(), text);
        }
    }
}
