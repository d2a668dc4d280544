//! The plain, diffable copy of the policy in force, beside the configuration. Nobody decides by it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rota_store::intents::policy::CurrentPolicy;
use rota_store::{Fault, Published, Store};
use serde::Serialize;

use crate::Result;
use crate::context::Context;
use crate::payload::indented_json;

/// Two threads that publish at once write two files, of which the later one stays.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Writes the copy. Whoever publishes at the same time writes too, so each looks again after writing: the last one to
/// write leaves what is in force.
pub async fn write<S: Store>(cx: &Context<S>, file: &Path) -> Result<()> {
    let mut written = None;
    loop {
        let (published, _) = cx.store.perform(&CurrentPolicy { call: cx.call() }).await?;
        if written.as_ref() == Some(&published.version) {
            return Ok(());
        }
        replace(file, &published)?;
        written = Some(published.version.clone());
    }
}

/// In one step: a reader sees the old one or the new one.
fn replace(file: &Path, published: &Published) -> std::result::Result<(), Fault> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Mirror<'a, T: Serialize> {
        based_on: &'a str,
        #[serde(flatten)]
        document: T,
    }
    let copy = Mirror { based_on: &published.version, document: published.policy.document() };
    let mut part = file.as_os_str().to_owned();
    part.push(format!(".{}.{}", std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed)));
    let part = PathBuf::from(part);
    std::fs::write(&part, indented_json(&copy))
        .map_err(|source| Fault::Io { path: file.to_owned(), source })?;
    rota_store::make_whole(&part, file)
}
