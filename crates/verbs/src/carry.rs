//! `export`, `import`: everything a store remembers, out of one and into another.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rota_store::intents::carry::{End, Export, Output, Source};
use rota_store::intents::import::Import;
use rota_store::intents::rehearse::Rehearse;
use rota_store::{Fault, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;

/// How much was carried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Carried {
    /// From or to which file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Tasks.
    pub tasks: u64,
    /// Edges between them.
    pub edges: u64,
    /// Rows of the journal.
    pub events: u64,
}

impl Carried {
    fn of(file: Option<&Path>, end: End) -> Self {
        let file = file.map(Path::to_owned);
        Self { file, tasks: end.tasks, edges: end.edges, events: end.events }
    }
}

/// Writes one snapshot of the store, or of one scope, to a stream.
pub async fn export_to<W: Write + Send>(cx: &Context, only: Option<String>, writer: W) -> Result<Carried> {
    let sink = Output { path: PathBuf::from("the output"), writer: Mutex::new(writer) };
    let end = cx.store.perform(&Export { call: cx.call(), only, sink: &sink }).await?;
    let mut writer = sink.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
    writer.flush().map_err(|source| Fault::Io { path: sink.path, source })?;
    Ok(Carried::of(None, end))
}

/// The same to a file, which appears when it is whole and durable.
pub async fn export_file(cx: &Context, only: Option<String>, file: &Path) -> Result<Carried> {
    let part = rota_store::part_of(file);
    let failed = |source| Fault::Io { path: file.to_owned(), source };
    let writer = std::io::BufWriter::new(File::create(&part).map_err(failed)?);
    let carried = export_to(cx, only, writer).await;
    if carried.is_err() {
        // Half a file is of no use; that it could not be removed is not what the caller must hear.
        drop(std::fs::remove_file(&part));
    }
    let carried = carried?;
    rota_store::make_whole(&part, file)?;
    Ok(Carried { file: Some(file.to_owned()), ..carried })
}

struct FileSource<'a>(&'a Path);

impl Source for FileSource<'_> {
    fn open(&self) -> std::result::Result<Box<dyn BufRead + Send>, Fault> {
        let file = File::open(self.0).map_err(|source| Fault::Io { path: self.path(), source })?;
        Ok(Box::new(BufReader::new(file)))
    }

    fn path(&self) -> PathBuf {
        self.0.to_owned()
    }
}

/// Takes in an export: all of it, or nothing and the line that is wrong. A dry run undoes it.
pub async fn import(cx: &Context, file: &Path, dry_run: bool) -> Result<Carried> {
    let import = Import { call: cx.call(), source: &FileSource(file) };
    let end =
        if dry_run { cx.store.perform(&Rehearse(&import)).await? } else { cx.store.perform(&import).await? };
    Ok(Carried::of(Some(file), end))
}
