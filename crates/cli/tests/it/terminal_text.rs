//! Text from agents and users never steers a terminal, hides in it or turns it around, whichever verb shows it.

use crate::daemon::{configure, up_until_idle};
use crate::support::Lab;

/// An escape sequence, a C1 control, a bidirectional override, a zero-width space, a word joiner, a tag.
const TRICKS: &str = "a\u{1b}[31m\u{9b}2J\u{202e}\u{200b}\u{2060}\u{e0041}z";

#[track_caller]
fn assert_plain(what: &str, text: &str) {
    let hidden = |character: &char| {
        let number = u32::from(*character);
        (character.is_control() && !matches!(character, '\n' | '\t'))
            || (0x200b..=0x200f).contains(&number)
            || (0x202a..=0x202e).contains(&number)
            || (0x2060..=0x206f).contains(&number)
            || (0xe0000..=0xe0fff).contains(&number)
    };
    assert!(text.chars().find(hidden).is_none(), "{what}: {text:?}");
}

#[test]
fn every_verb_shows_titles_and_reasons_escaped() {
    let lab = Lab::new();
    lab.run(&["task", "create", "t", TRICKS, "-d", TRICKS]).ok();
    lab.run(&["task", "claim", "t", "--agent", "w"]).ok();
    lab.run(&["task", "fail", "t", "--agent", "w", "--reason", TRICKS]).ok();
    lab.run(&["queue", "add", "--app", "app", "--repo", TRICKS, "--note", TRICKS]).ok();
    for verb in [
        "task show t",
        "task list",
        "task peek",
        "task attempts t",
        "why t",
        "log",
        "queue list",
        "task list --markdown",
    ] {
        for json in ["", " --json"] {
            let ran = lab.line(&format!("{verb}{json}"));
            assert_eq!(ran.code, 0, "{verb}{json}: {}", ran.stderr);
            assert_plain(verb, &ran.stdout);
        }
    }
    let shown: serde_json::Value = serde_json::from_str(&lab.line("task show t --json").ok()).unwrap();
    assert_eq!(shown["title"], TRICKS, "the JSON means what was given");
    let ran = lab.run(&["task", "show", TRICKS]);
    assert_plain("an error", &ran.stderr);
    assert!(ran.code != 0 && ran.stderr.contains(r"\u{202e}"), "{}", ran.stderr);
}

/// Into a pipe too: what reads it may show it.
#[test]
fn logs_of_a_loop_are_shown_escaped() {
    let lab = Lab::new();
    std::fs::write(lab.path().join("said"), [TRICKS.as_bytes(), b"\xff\r\n\tnext\n"].concat()).unwrap();
    configure(&lab, "  ralph: {run: [cat, said]}\n");
    lab.line("loop add --kind ralph --id r").ok();
    up_until_idle(&lab);
    let shown = lab.line("loop logs r").ok();
    assert_plain("loop logs", &shown);
    assert_eq!(shown, "a\\u{1b}[31m\\u{9b}2J\\u{202e}\\u{200b}\\u{2060}\\u{e0041}z\\xff\\r\n\tnext\n");
    let json = lab.line("loop logs r --json").ok();
    assert_plain("loop logs --json", &json);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["text"].as_str().unwrap().find(TRICKS),
        Some(0)
    );
    let raw = lab.command().args(["loop", "logs", "r", "--raw"]).output().unwrap().stdout;
    assert_eq!(raw, std::fs::read(lab.path().join("said")).unwrap());
    assert_eq!(lab.line("loop logs r --raw --json").code, 1);
}
