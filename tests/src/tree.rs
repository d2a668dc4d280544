//! The files of the tree, as they are on disk: tracked or not, but for what is built, ignored or git's own.

use std::path::{Path, PathBuf};

/// One text file.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Its path from the root, with `/`.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// Every text file, by path. Files that are not UTF-8 are left out.
pub fn files() -> Vec<SourceFile> {
    let root = root();
    let mut found = Vec::new();
    collect(&root, "", &mut found);
    found.sort_by(|left, right| left.path.cmp(&right.path));
    assert!(found.len() > 50, "the tree at {} has only {} files", root.display(), found.len());
    found
}

fn is_skipped(name: &str) -> bool {
    let hidden = name.starts_with('.') && name != ".ci" && name != ".gitignore";
    hidden || name == "node_modules" || name == "target" || name.starts_with("target-")
}

fn collect(root: &Path, below: &str, into: &mut Vec<SourceFile>) {
    let folder = root.join(below);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let entry = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_skipped(&name) {
            continue;
        }
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.path().is_dir() {
            collect(root, &path, into);
        } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
            into.push(SourceFile { path, text });
        }
    }
}

impl SourceFile {
    /// Whether its name ends so.
    pub fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    /// Whether it is only there for tests.
    pub fn is_test(&self) -> bool {
        let in_tests = self.path.starts_with("tests/") || self.path.contains("/tests/");
        in_tests || self.path.starts_with("crates/conformance/") || self.path.starts_with("crates/testbed/")
    }
}
