//! `rota setup`: what it writes, checks and takes out again.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use expect_test::expect;

use crate::support::Lab;

/// Every file below a folder but `.git`, with its mode and content.
fn files(folder: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() && name != ".git" {
            found.extend(
                files(&path).into_iter().map(|(file, mode, bytes)| (format!("{name}/{file}"), mode, bytes)),
            );
        } else if path.is_file() {
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            found.push((name, mode, std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// A project, and a `rota` on the path.
fn project() -> Lab {
    let lab = Lab::new();
    std::fs::create_dir(lab.path().join(".git")).unwrap();
    lab
}

#[test]
fn writes_checks_and_removes() {
    project().check(
        "setup claude --check
        setup claude
        setup claude
        setup claude --check
        setup claude --check --json
        setup codex --check
        setup agents-md
        setup codex --check --json
        setup claude --remove
        setup claude --check
        setup agents-md --remove --json",
        expect![[r#"
            $ setup claude --check
            missing  CLAUDE.md
            missing  .mcp.json
            missing  .claude/settings.json
            [2]
            $ setup claude
            created   CLAUDE.md
            created   .mcp.json
            created   .claude/settings.json
            $ setup claude
            unchanged CLAUDE.md
            unchanged .mcp.json
            unchanged .claude/settings.json
            $ setup claude --check
            current  CLAUDE.md
            current  .mcp.json
            current  .claude/settings.json
            $ setup claude --check --json
            {
              "schemaVersion": 1,
              "client": "claude",
              "state": "current",
              "files": [
                {
                  "file": "CLAUDE.md",
                  "state": "current"
                },
                {
                  "file": ".mcp.json",
                  "state": "current"
                },
                {
                  "file": ".claude/settings.json",
                  "state": "current"
                }
              ]
            }
            $ setup codex --check
            missing  AGENTS.md
            missing  .codex/config.toml
            missing  .codex/hooks.json
            [2]
            $ setup agents-md
            created   AGENTS.md
            $ setup codex --check --json
            {
              "schemaVersion": 1,
              "client": "codex",
              "state": "stale",
              "files": [
                {
                  "file": "AGENTS.md",
                  "state": "current"
                },
                {
                  "file": ".codex/config.toml",
                  "state": "missing"
                },
                {
                  "file": ".codex/hooks.json",
                  "state": "missing"
                }
              ]
            }
            [3]
            $ setup claude --remove
            deleted   CLAUDE.md
            deleted   .mcp.json
            deleted   .claude/settings.json
            $ setup claude --check
            missing  CLAUDE.md
            missing  .mcp.json
            missing  .claude/settings.json
            [2]
            $ setup agents-md --remove --json
            {
              "schemaVersion": 1,
              "client": "agents-md",
              "files": [
                {
                  "file": "AGENTS.md",
                  "change": "deleted"
                }
              ]
            }
        "#]],
    );
}

#[test]
fn refuses_what_it_does_not_know() {
    project().check(
        "setup
        setup cursor
        setup claude --check --remove",
        expect![[r#"
            $ setup
            ! error: missing agent: claude, codex or agents-md
            ! Usage: rota setup [OPTIONS] [agent]
            [1]
            $ setup cursor
            ! error: unknown agent 'cursor' (known: claude, codex or agents-md)
            ! Usage: rota setup [OPTIONS] [agent]
            [1]
            $ setup claude --check --remove
            ! error: --check and --remove are mutually exclusive
            ! Usage: rota setup [OPTIONS] [agent]
            [1]
        "#]],
    );
}

#[test]
fn removal_leaves_every_file_as_it_was() {
    for client in ["claude", "codex", "agents-md"] {
        let lab = project();
        let write = |name: &str, text: &str| {
            let path = lab.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        };
        write("CLAUDE.md", "# Mine\r\nno end");
        write("AGENTS.md", "");
        write(".mcp.json", "{\"mcpServers\":{ \"x\" : {} } }\n");
        write(".claude/settings.json", "{\n\t\"model\": \"x\",\n\t\"hooks\": {}\n}");
        write(".codex/config.toml", "model = \"x\"");
        let before = files(lab.path());
        lab.line(&format!("setup {client} --remind")).stdout.contains("updated");
        let with = files(lab.path());
        assert_ne!(with, before, "{client}");
        assert!(
            with.iter().all(|(name, mode, _)| *mode == 0o640 || name.ends_with("hooks.json")),
            "{with:?}"
        );
        assert_eq!(lab.line(&format!("setup {client} --check")).code, 0);
        assert!(!lab.line(&format!("setup {client}")).stdout.contains("updated"));
        assert_eq!(files(lab.path()), with, "{client} twice");
        lab.line(&format!("setup {client} --remove")).ok();
        assert_eq!(files(lab.path()), before, "{client}");
    }
    let lab = project();
    lab.line("setup claude");
    lab.line("setup claude --remove").ok();
    assert_eq!(std::fs::read_dir(lab.path()).unwrap().count(), 1, "only .git is left");
}

#[test]
fn one_file_that_cannot_be_edited_leaves_all_untouched() {
    let lab = project();
    std::fs::create_dir(lab.path().join(".claude")).unwrap();
    std::fs::write(lab.path().join(".claude/settings.json"), "{ // mine\n}").unwrap();
    let before = files(lab.path());
    lab.check(
        "setup claude
        setup claude --check",
        expect![[r#"
            $ setup claude
            ! error: .claude/settings.json is not valid JSON (key must be a string at line 1 column 3); nothing was changed
            [1]
            $ setup claude --check
            ! error: .claude/settings.json is not valid JSON (key must be a string at line 1 column 3); nothing was changed
            [1]
        "#]],
    );
    assert_eq!(files(lab.path()), before);
}

#[test]
fn links_are_followed_inside_the_project_only() {
    let lab = project();
    let outside = Lab::new();
    std::fs::write(outside.path().join("settings.json"), "{}").unwrap();
    symlink(outside.path(), lab.path().join(".claude")).unwrap();
    let ran = lab.line("setup claude");
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains(".claude/settings.json leads out of the project"), "{}", ran.stderr);
    assert!(!lab.path().join("CLAUDE.md").exists());
    assert_eq!(std::fs::read(outside.path().join("settings.json")).unwrap(), b"{}");
    std::fs::remove_file(lab.path().join(".claude")).unwrap();
    std::fs::write(lab.path().join("AGENTS.md"), "# Mine\n").unwrap();
    symlink("AGENTS.md", lab.path().join("CLAUDE.md")).unwrap();
    lab.line("setup claude");
    assert!(lab.path().join("CLAUDE.md").is_symlink());
    assert!(std::fs::read_to_string(lab.path().join("AGENTS.md")).unwrap().contains("rota:begin"));
    assert_eq!(lab.line("setup agents-md --check").code, 0);
    lab.line("setup claude --remove").ok();
    assert_eq!(std::fs::read(lab.path().join("AGENTS.md")).unwrap(), b"# Mine\n");
}

/// The plugin has the same instructions and hooks.
#[test]
fn the_plugin_says_the_same() {
    let plugin = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/claude-code"));
    let read = |name: &str| std::fs::read_to_string(plugin.join(name)).unwrap();
    let lab = project();
    lab.line("setup claude");
    let section = std::fs::read_to_string(lab.path().join("CLAUDE.md")).unwrap();
    let body: Vec<&str> = section.lines().filter(|line| !line.starts_with("<!-- rota:")).collect();
    assert!(read("skills/rota/SKILL.md").ends_with(&(body.join("\n") + "\n")));
    let hooks = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["hooks"].clone();
    let written = std::fs::read_to_string(lab.path().join(".claude/settings.json")).unwrap();
    assert_eq!(hooks(&read("hooks/hooks.json")), hooks(&written));
}
