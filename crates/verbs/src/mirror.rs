//! The plain, diffable copy of a published policy.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rota_store::{Fault, Published};
use serde::Serialize;

use crate::Result;
use crate::payload::indented_json;

/// Two threads that publish at once write two files, of which the later one stays.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Writes what was published to a file, in one step: a reader sees the old one or the new one.
pub fn write(path: &Path, published: &Published) -> Result<()> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Mirror<'a, T: Serialize> {
        based_on: &'a str,
        #[serde(flatten)]
        document: T,
    }
    let mirror = Mirror { based_on: &published.version, document: published.policy.document() };
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}.{}", std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed)));
    let fresh = PathBuf::from(fresh);
    let written = std::fs::write(&fresh, indented_json(&mirror)).and_then(|()| std::fs::rename(&fresh, path));
    Ok(written.map_err(|source| Fault::Io { path: path.to_owned(), source })?)
}
