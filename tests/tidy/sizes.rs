//! A function fits a screen, a file stays short, and a module says what it is for.

use rota_tests::source::{Without, code, functions, lines_of_code};
use rota_tests::tree::{SourceFile, files};

use crate::none;

const FILE_LINES: usize = 600;
/// Lines of code: what a test expects to see may be as long as it is.
const TEST_FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;
/// Tests are data: a table of cases may be longer than a screen.
const TEST_FUNCTION_LINES: usize = 160;

fn rust() -> Vec<SourceFile> {
    files().into_iter().filter(|file| file.has_extension("rs")).collect()
}

#[test]
fn files_stay_short() {
    let mut findings = Vec::new();
    for file in rust() {
        let (lines, limit) = if file.is_test() {
            (lines_of_code(&code(&file.text, Without::CommentsAndTexts)), TEST_FILE_LINES)
        } else {
            (file.text.lines().count(), FILE_LINES)
        };
        if lines > limit {
            findings.push(format!("{}: {lines} lines, at most {limit}", file.path));
        }
    }
    none("a file that needs a table of contents is two files", findings);
}

#[test]
fn functions_fit_a_screen() {
    let mut findings = Vec::new();
    for file in rust() {
        let code = code(&file.text, Without::CommentsAndTexts);
        let tests_begin =
            code.lines().position(|line| line.starts_with("#[cfg(test)]")).unwrap_or(usize::MAX);
        for function in functions(&code) {
            let is_test = file.is_test() || function.line > tests_begin;
            let limit = if is_test { TEST_FUNCTION_LINES } else { FUNCTION_LINES };
            if function.lines > limit {
                let (path, name, lines) = (&file.path, &function.name, function.lines);
                findings.push(format!("{path}:{}: {name} has {lines} lines, at most {limit}", function.line));
            }
        }
    }
    none("a function fits a screen", findings);
}

#[test]
fn every_module_says_what_it_is_for() {
    let silent = rust().into_iter().filter(|file| !file.text.starts_with("//! "));
    none("the first line is `//! …`", silent.map(|file| file.path).collect());
}
