//! Words that must not be in the tree.

use rota_tests::source::{Without, code, has_word};
use rota_tests::tree::files;

use crate::none;

#[test]
fn nothing_is_left_unfinished() {
    // In two parts, so that this file does not find itself.
    let macros = [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")];
    let marks = [concat!("FIX", "ME"), concat!("XX", "X")];
    let mut findings = Vec::new();
    for file in files() {
        if file.has_extension("rs") {
            let code = code(&file.text, Without::CommentsAndTexts);
            findings.extend(
                macros.iter().filter(|word| code.contains(**word)).map(|word| (file.path.clone(), *word)),
            );
        }
        findings.extend(
            marks.iter().filter(|word| has_word(&file.text, word)).map(|word| (file.path.clone(), *word)),
        );
    }
    none("unfinished work", findings.into_iter().map(|(path, word)| format!("{path}: {word}")).collect());
}

/// Tests whose subject is time that passes outside, with the reason.
const MAY_SLEEP: [(&str, &str); 3] = [
    ("crates/cli/tests/it/kill9.rs", "kills processes at random moments"),
    ("crates/cli/tests/it/daemon_kill9.rs", "kills daemons at random moments"),
    ("crates/cli/tests/it/top.rs", "a terminal does not say when its screen changed"),
];

#[test]
fn tests_never_sleep() {
    let sleeps = |text: &str| code(text, Without::CommentsAndTexts).contains(concat!("thread::", "sleep"));
    let tests = files().into_iter().filter(|file| file.has_extension("rs") && file.is_test());
    let may = |path: &str| MAY_SLEEP.iter().any(|(known, _)| *known == path);
    let findings = tests.filter(|file| !may(&file.path) && sleeps(&file.text)).map(|file| file.path);
    none("a test waits for a signal or drives the clock", findings.collect());
}

/// Paths of one machine work on that machine only.
#[test]
fn no_path_of_a_machine() {
    let paths = [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
    let mut findings = Vec::new();
    for file in files() {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(path) = paths.iter().find(|path| line.contains(**path)) {
                findings.push(format!("{}:{}: {path}", file.path, number + 1));
            }
        }
    }
    none("no path of a machine", findings);
}
