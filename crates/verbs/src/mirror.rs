//! The plain, diffable copy of the policy in force, beside the configuration. Nobody decides by it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rota_core::Json;
use rota_store::intents::policy::CurrentPolicy;
use rota_store::{Fault, Store};

use crate::Result;
use crate::context::Context;
use crate::indented::indented_json;

/// Two threads that publish at once write two files, of which the later one stays.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Writes the copy. Whoever publishes at the same time writes too, so each looks again after writing: the last one to
/// write leaves what is in force.
pub async fn write(cx: &Context, file: &Path) -> Result<()> {
    let mut written = None;
    loop {
        let (published, _) = cx.store.perform(&CurrentPolicy { call: cx.call() }).await?;
        if written.as_ref() == Some(&published.version) {
            return Ok(());
        }
        replace(file, &published.version, &published.policy.to_json())?;
        written = Some(published.version.clone());
    }
}

/// The same for whoever has no store but somebody to ask for the version in force and its document.
pub fn write_asking<E: From<Fault>>(
    file: &Path,
    ask: impl Fn() -> std::result::Result<(String, Json), E>,
) -> std::result::Result<(), E> {
    let mut written = None;
    loop {
        let (version, document) = ask()?;
        if written.as_ref() == Some(&version) {
            return Ok(());
        }
        replace(file, &version, &document)?;
        written = Some(version);
    }
}

/// In one step: a reader sees the old one or the new one.
fn replace(file: &Path, version: &str, document: &Json) -> std::result::Result<(), Fault> {
    // A document is an object, and never an empty one.
    let copy = format!("{{\"basedOn\":{},{}", Json::of(&version).as_str(), &document.as_str()[1..]);
    let copy = Json::from_stored(copy);
    let mut part = file.as_os_str().to_owned();
    part.push(format!(".{}.{}", std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed)));
    let part = PathBuf::from(part);
    std::fs::write(&part, indented_json(&copy))
        .map_err(|source| Fault::Io { path: file.to_owned(), source })?;
    rota_store::make_whole(&part, file)
}
