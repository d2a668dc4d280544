//! Pages that must agree with the code: every error has its entry, every requirement its proof, and the proofs exist.

use std::collections::BTreeSet;

use rota_tests::source::{Without, code, functions};
use rota_tests::tree::{files, root};

use crate::none;

fn page(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What the arms of `fn code` in a source file return.
fn codes(path: &str) -> BTreeSet<String> {
    let text = page(path);
    let visible = code(&text, Without::Comments);
    let body = visible.split_once("fn code(").map_or("", |(_, rest)| rest);
    let body = body.split_once("\n    }\n").map_or(body, |(body, _)| body);
    let arms = body.split("=> \"").skip(1).filter_map(|rest| rest.split_once('"'));
    arms.map(|(word, _)| word.to_owned()).collect()
}

/// What is answered over HTTP before a verb is asked: the word behind the status, and those of authentication.
fn http_codes() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let answers =
        |path: &str| path.starts_with("crates/serve/src/") || path == "crates/verbs/src/lease_token.rs";
    for file in files().iter().filter(|file| answers(&file.path)) {
        let visible = code(&file.text, Without::Comments);
        for start in ["Problem::new(", "forbidden("] {
            for rest in visible.split(start).skip(1) {
                let call = rest.split_once(';').map_or(rest, |(call, _)| call);
                let word = call.split('"').nth(1).unwrap_or_default();
                let is_code = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
                if !word.is_empty() && word.bytes().all(is_code) {
                    found.insert(word.to_owned());
                }
            }
        }
    }
    let auth = page("crates/auth/src/lib.rs");
    let words = auth.split_once("fn word(").map_or("", |(_, rest)| rest);
    let words = words.split("=> \"").skip(1).filter_map(|rest| rest.split_once('"'));
    found.extend(words.map(|(word, _)| word.to_owned()).filter(|word| word.ends_with("_denied")));
    found
}

/// What `### `code`` headings a page has.
fn entries(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
    headings.map(str::to_owned).collect()
}

#[test]
fn every_error_has_its_entry() {
    let mut codes_of = codes("crates/core/src/refusal.rs");
    let faults = codes("crates/store/src/fault.rs");
    assert!(codes_of.len() > 15 && faults.len() > 10, "the codes were not found");
    codes_of.extend(faults);
    let over_http = http_codes();
    assert!(over_http.len() > 12, "the codes of HTTP were not found: {over_http:?}");
    codes_of.extend(over_http);
    let text = page("docs/errors.md");
    let entries = entries(&text);
    let missing = codes_of.difference(&entries).map(|code| format!("{code} is not on the page"));
    let unknown = entries.difference(&codes_of).map(|code| format!("{code} is not in the code"));
    none("docs/errors.md", missing.chain(unknown).collect());
}

/// One row of the requirements: its id and what shows it.
struct Row {
    line: usize,
    id: String,
    proof: String,
}

/// Table rows whose first cell is an id like `002-17`, `I2-3` or `C1`.
fn rows(text: &str) -> Vec<Row> {
    let is_id = |cell: &str| {
        let digits = cell.chars().next_back().is_some_and(|last| last.is_ascii_digit());
        digits && cell.chars().all(|character| character.is_ascii_alphanumeric() || character == '-')
    };
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if let (true, [id, .., proof]) = (line.starts_with('|'), cells.as_slice())
            && is_id(id)
        {
            found.push(Row { line: number + 1, id: (*id).to_owned(), proof: (*proof).to_owned() });
        }
    }
    found
}

/// The `file.rs::test` pairs in a cell.
fn named_tests(proof: &str) -> Vec<(String, String)> {
    let words = proof.split('`').skip(1).step_by(2);
    words
        .filter_map(|word| word.split_once("::"))
        .map(|(path, name)| (path.to_owned(), name.to_owned()))
        .collect()
}

/// Whether something is said beside tests: an issue, a decision, a figure, a script, or honestly that nothing is.
fn is_said_otherwise(proof: &str) -> bool {
    let issue = (3..=10).any(|number| proof.contains(&format!("issue {number}")));
    let others = ["13.", "performance.md", "examples/", "no requirement", "not yet shown"];
    issue || others.iter().any(|word| proof.contains(word))
}

#[test]
fn every_requirement_has_a_proof_that_exists() {
    let text = page("docs/requirements.md");
    let rows = rows(&text);
    assert!(rows.len() > 200, "only {} rows were found", rows.len());
    let sources = files();
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for row in &rows {
        if !seen.insert(&row.id) {
            findings.push(format!("line {}: {} is there twice", row.line, row.id));
        }
        let tests = named_tests(&row.proof);
        if tests.is_empty() && !is_said_otherwise(&row.proof) {
            findings.push(format!("line {}: {} has no proof: {}", row.line, row.id, row.proof));
        }
        for (path, name) in tests {
            let candidates = [path.clone(), format!("crates/{path}")];
            let file = sources.iter().find(|file| candidates.contains(&file.path));
            let exists = file.is_some_and(|file| {
                let code = code(&file.text, Without::CommentsAndTexts);
                functions(&code).iter().any(|function| function.name == name)
            });
            if !exists {
                findings.push(format!("line {}: {}: no test {path}::{name}", row.line, row.id));
            }
        }
    }
    none("docs/requirements.md", findings);
}

/// The tests that a row of SECURITY.md names, each with its file. A name alone is a test of the file named before it; `cli/`
/// stands for the folder of the CLI's tests.
fn shown_by(proof: &str) -> Vec<(String, Option<String>)> {
    let mut tests: Vec<(String, Option<String>)> = Vec::new();
    for word in proof.split('`').skip(1).step_by(2) {
        let (file, name) = match word.split_once("::") {
            Some((file, name)) => (file.to_owned(), Some(name.to_owned())),
            None if word.ends_with(".rs") => (word.to_owned(), None),
            None => (tests.last().map_or_else(String::new, |(file, _)| file.clone()), Some(word.to_owned())),
        };
        let short = file.strip_prefix("cli/").filter(|rest| !rest.starts_with("tests/"));
        tests.push((short.map_or(file.clone(), |rest| format!("cli/tests/it/{rest}")), name));
    }
    tests
}

#[test]
fn every_line_of_the_security_page_has_a_test_that_exists() {
    let text = page("SECURITY.md");
    let sources = files();
    let (mut rows, mut findings) = (0, Vec::new());
    for (number, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, proof] = cells.as_slice() else { continue };
        if !line.starts_with('|') || *proof == "shown by" {
            continue;
        }
        rows += 1;
        let tests = shown_by(proof);
        if tests.is_empty() {
            findings.push(format!("line {}: no test is named", number + 1));
        }
        for (path, name) in tests {
            let wanted = format!("crates/{}", path.trim_start_matches("crates/"));
            let file = sources.iter().find(|file| file.path == wanted);
            let exists = file.is_some_and(|file| {
                let code = code(&file.text, Without::CommentsAndTexts);
                let has = |name: &String| functions(&code).iter().any(|function| function.name == *name);
                name.as_ref().is_none_or(has)
            });
            if !exists {
                findings.push(format!("line {}: no test {path} {name:?}", number + 1));
            }
        }
    }
    assert!(rows > 20, "only {rows} rows were found");
    none("SECURITY.md", findings);
}

#[test]
fn rows_and_tests_are_read() {
    let rows =
        rows("| a | b |\n|---|---|\n| 002-17 | says | `core/src/rank.rs::x`, issue 3 |\n| C1 | y | z |");
    assert_eq!(rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["002-17", "C1"]);
    assert_eq!(named_tests(&rows[0].proof), [("core/src/rank.rs".to_owned(), "x".to_owned())]);
    assert!(is_said_otherwise(&rows[0].proof) && !is_said_otherwise(&rows[1].proof));
}
