//! C4: `docs/state-machine.md` says what the code does. The text around the generated parts is written by hand.

use std::path::Path;

use rota_core::status::Status;
use rota_core::transition::{TABLE, diagram_as_mermaid, table_as_markdown};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/state-machine.md");

/// The page with what lies between the markers of `name` replaced.
fn with_part(page: &str, name: &str, generated: &str) -> String {
    let (begin, end) =
        (format!("<!-- begin generated: {name} -->\n"), format!("<!-- end generated: {name} -->\n"));
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("no line {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no line {end}"));
    format!("{before}{begin}{generated}{end}{after}")
}

#[test]
fn the_page_is_the_code() {
    let path = Path::new(PAGE);
    let page = std::fs::read_to_string(path).unwrap();
    let diagram = format!("```mermaid\n{}```\n", diagram_as_mermaid());
    let wanted = with_part(&with_part(&page, "diagram", &diagram), "table", &table_as_markdown());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    } else {
        assert!(
            page == wanted,
            "docs/state-machine.md differs from the code; regenerate it with: UPDATE_DOCS=1 cargo test -p rota-core"
        );
    }
}

#[test]
fn the_diagram_has_every_state_and_verb() {
    let diagram = diagram_as_mermaid();
    for rule in TABLE {
        assert!(diagram.contains(rule.past), "{}", rule.past);
    }
    for status in Status::ALL {
        assert!(diagram.contains(&format!("--> {status}: ")), "nothing leads to {status}");
        assert!(diagram.contains(&format!(" {status} --> ")), "nothing leads out of {status}");
    }
}
