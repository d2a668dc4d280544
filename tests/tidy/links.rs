//! Every relative link in a page leads somewhere, anchors included.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use rota_tests::tree::{SourceFile, files, root};

use crate::none;

/// The lines of a page that are not code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return false;
        }
        !fenced
    })
}

/// What `[text](target)` points to.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        if let Some(end) = rest.find(')') {
            found.push(&rest[..end]);
            rest = &rest[end..];
        }
    }
    found
}

/// The name that a heading can be linked by.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept =
        text.chars().filter(|character| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_'));
    kept.map(|character| if character == ' ' { '-' } else { character }).collect()
}

fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

#[test]
fn every_relative_link_leads_somewhere() {
    let pages: Vec<SourceFile> = files().into_iter().filter(|file| file.has_extension("md")).collect();
    let anchors: BTreeMap<PathBuf, Vec<String>> = pages
        .iter()
        .map(|page| {
            let headings = prose(&page.text).filter(|line| line.starts_with('#')).map(anchor);
            (PathBuf::from(&page.path), headings.collect())
        })
        .collect();
    let mut findings = Vec::new();
    for page in &pages {
        for target in prose(&page.text).flat_map(targets) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, wanted) = target.split_once('#').unwrap_or((target, ""));
            let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
            let path = if file.is_empty() { PathBuf::from(&page.path) } else { normal(&folder.join(file)) };
            let has_anchor =
                || anchors.get(&path).is_some_and(|known| known.iter().any(|known| known == wanted));
            if !root().join(&path).exists() || (!wanted.is_empty() && !has_anchor()) {
                findings.push(format!("{}: {target}", page.path));
            }
        }
    }
    none("links that lead nowhere", findings);
}

#[test]
fn links_and_anchors_are_read() {
    assert_eq!(targets("see [a](b.md#c) and [d](../e)"), ["b.md#c", "../e"]);
    assert_eq!(anchor("## `store_busy`: wait, try again"), "store_busy-wait-try-again");
    assert_eq!(normal(Path::new("docs/guides/../errors.md")), Path::new("docs/errors.md"));
    assert_eq!(prose("a\n```\nb\n```\nc").collect::<Vec<_>>(), ["a", "c"]);
}
