//! The pages tell the truth: every `console` block of the README and the guides is run as it is written, and what
//! comes out must be what the page shows. Times are compared by their shape.
//!
//! `UPDATE_DOCS=1 cargo test --workspace` writes what came out into the pages.

use std::path::{Path, PathBuf};
use std::process::Command;

use rota_tests::tree::root;

const PAGES: [&str; 8] = [
    "README.md",
    "docs/guides/loops.md",
    "docs/guides/mcp.md",
    "docs/guides/plan-and-claim.md",
    "docs/guides/queue-policy.md",
    "docs/guides/supervise-local.md",
    "docs/guides/why.md",
    "docs/guides/work.md",
];

/// The binary beside this test's own folder; `cargo test --workspace` builds it for the tests of the CLI.
fn binary() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_else(|error| panic!("own path: {error}"));
    let binary = own.parent().and_then(Path::parent).map(|folder| folder.join("rota")).unwrap_or_default();
    assert!(binary.is_file(), "{} is missing: cargo build -p rota-cli", binary.display());
    binary
}

/// One command of a block and what the page shows for it.
#[derive(Default)]
struct Shown {
    command: String,
    output: String,
}

/// `$ ` begins a command; lines up to the next one are its output. A trailing `\` or an open here-document goes on.
fn commands(block: &str) -> Vec<Shown> {
    let mut list: Vec<Shown> = Vec::new();
    let mut until: Option<String> = None;
    for line in block.lines() {
        if let Some(end) = &until {
            let last = list.last_mut().unwrap_or_else(|| panic!("a block begins with a command"));
            last.command.push_str(&format!("\n{line}"));
            if line == end {
                until = None;
            }
        } else if let Some(command) = line.strip_prefix("$ ") {
            until = command
                .split_once("<<'")
                .and_then(|(_, rest)| rest.split_once('\''))
                .map(|(end, _)| end.to_owned());
            list.push(Shown { command: command.to_owned(), output: String::new() });
        } else {
            let last = list.last_mut().unwrap_or_else(|| panic!("a block begins with a command"));
            last.output.push_str(&format!("{line}\n"));
        }
    }
    list
}

/// Every digit of a time is a `0`, so that times differ only in their shape.
fn without_times(text: &str) -> String {
    let is_time = |word: &str| {
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        word.ends_with('Z') && word.contains('T') && digits >= 14
    };
    let mut shown = String::new();
    for part in text.split_inclusive([' ', '\n', '"', ',']) {
        let word = part.trim_end_matches([' ', '\n', '"', ',']);
        if is_time(word) {
            shown.extend(
                part.chars().map(|character| if character.is_ascii_digit() { '0' } else { character }),
            );
        } else {
            shown.push_str(part);
        }
    }
    shown
}

fn run(command: &str, folder: &Path, bin: &Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("exec 2>&1\n{command}")]).current_dir(folder).env_clear();
    shell.env("PATH", format!("{}:{path}", bin.display())).env("ROTA_HOST", "host-1").env("HOME", folder);
    let output = shell.output().unwrap_or_else(|error| panic!("bash: {error}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a page's blocks in one folder, one after the other, and returns the page as it should be.
fn replay(text: &str, bin: &Path) -> String {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("temporary folder: {error}"));
    let mut page = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("```console\n") {
        let (block, after) = after.split_once("```\n").unwrap_or_else(|| panic!("a block without an end"));
        page.push_str(&format!("{before}```console\n"));
        for shown in commands(block) {
            let output = run(&shown.command, folder.path(), bin);
            let same = without_times(&output) == without_times(&shown.output);
            page.push_str(&format!("$ {}\n{}", shown.command, if same { shown.output } else { output }));
        }
        page.push_str("```\n");
        rest = after;
    }
    page.push_str(rest);
    page
}

#[test]
fn every_console_block_is_true() {
    let bin_folder = tempfile::tempdir().unwrap_or_else(|error| panic!("temporary folder: {error}"));
    std::os::unix::fs::symlink(binary(), bin_folder.path().join("rota"))
        .unwrap_or_else(|error| panic!("link to rota: {error}"));
    for name in PAGES {
        let path = root().join(name);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(text.contains("```console\n"), "{name} has no console block");
        let replayed = replay(&text, bin_folder.path());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, replayed).unwrap_or_else(|error| panic!("{name}: {error}"));
            continue;
        }
        let differing = text.lines().zip(replayed.lines()).find(|(page, run)| page != run);
        assert!(text == replayed, "{name} is not what comes out, first at: {differing:?}");
    }
}

#[test]
fn commands_and_times_are_read() {
    let list = commands("$ a <<'E'\nx\nE\none\n$ b\n");
    assert_eq!(list.len(), 2);
    assert_eq!((list[0].command.as_str(), list[0].output.as_str()), ("a <<'E'\nx\nE", "one\n"));
    assert_eq!(without_times("at 2026-01-02T03:04:05.678Z, 7\n"), "at 0000-00-00T00:00:00.000Z, 7\n");
}
