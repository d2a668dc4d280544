//! `docs/cli.md`: every help text, written from the definition of the command line. `UPDATE_DOCS=1` writes it anew.

use clap::CommandFactory;

use crate::args::Cli;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");

fn page() -> String {
    let mut root = Cli::command();
    root.build();
    let mut text = "# Command line\n\nEvery command with its help, as `--help` prints it. Written from the definition \
                    in `crates/cli/src/args.rs`; a test keeps it so (`UPDATE_DOCS=1 cargo test -p rota-cli` writes it \
                    anew).\n"
        .to_owned();
    add(&mut text, &mut root, "rota");
    text
}

fn add(text: &mut String, command: &mut clap::Command, name: &str) {
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    text.push_str(&format!("\n## `{name}`\n\n```text\n{}\n```\n", lines.join("\n").trim_end()));
    for sub in command.get_subcommands_mut() {
        let path = format!("{name} {}", sub.get_name());
        add(text, sub, &path);
    }
}

#[test]
fn the_page_is_what_the_definition_says() {
    let wanted = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &wanted).unwrap();
    }
    let stored = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        stored == wanted,
        "docs/cli.md is not what --help says: run UPDATE_DOCS=1 cargo test -p rota-cli"
    );
}
