//! Files that appear whole or not at all.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::fault::Fault;

/// The name under which a file is written until it is whole, in the same folder.
pub fn part_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".part-{}", std::process::id()));
    PathBuf::from(name)
}

/// Makes what was written durable and gives it its name.
pub fn make_whole(part: &Path, file: &Path) -> Result<(), Fault> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = File::open(part)
        .and_then(|written| written.sync_all())
        .and_then(|()| std::fs::rename(part, file))
        .and_then(|()| File::open(folder)?.sync_all());
    made.map_err(|source| Fault::Io { path: file.to_owned(), source })
}
