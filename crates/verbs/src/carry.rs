//! `export`, `import`: everything a store remembers, out of one and into another.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rota_store::intents::carry::{End, Export, Output, Source};
use rota_store::intents::import::Import;
use rota_store::intents::rehearse::Rehearse;
use rota_store::{Error, Fault, Store};
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

/// How often an export is begun whose read took too long.
const ATTEMPTS: usize = 3;

/// Writes one snapshot of the store, or of one scope, to a stream. It is read into a file first: a stream that is not
/// read on must not keep the store's snapshot.
pub async fn export_to<W: Write + Send>(
    cx: &Context,
    only: Option<String>,
    mut writer: W,
) -> Result<Carried> {
    let failed = |source| Fault::Io { path: PathBuf::from("the output"), source };
    let mut spool = spool().map_err(|source| Fault::Io { path: std::env::temp_dir(), source })?;
    let end = export_into(cx, only, &spool, Path::new("the output")).await?;
    let copied = spool.rewind().and_then(|()| std::io::copy(&mut spool, &mut writer));
    copied.and_then(|_| writer.flush()).map_err(failed)?;
    Ok(Carried::of(None, end))
}

/// A file without a name, which goes with the process.
fn spool() -> std::io::Result<File> {
    let path = rota_store::part_of(&std::env::temp_dir().join("rota-export"));
    let file = rota_store::create_private(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Writes one snapshot to an empty file, from the start again where reading took too long.
async fn export_into(cx: &Context, only: Option<String>, mut file: &File, path: &Path) -> Result<End> {
    let failed = |source| Fault::Io { path: path.to_owned(), source };
    for attempt in 1.. {
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        let sink = Output { path: path.to_owned(), writer: Mutex::new(BufWriter::new(file)) };
        let written = cx.store.perform(&Export { call: cx.call(), only: only.clone(), sink: &sink }).await;
        if matches!(written, Err(Error::Fault(Fault::LongRead { .. }))) && attempt < ATTEMPTS {
            continue;
        }
        let end = written?;
        let writer = sink.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        writer.into_inner().map_err(|error| failed(error.into_error()))?;
        return Ok(end);
    }
    unreachable!("the last attempt returns")
}

/// The same to a file, which appears when it is whole and durable.
pub async fn export_file(cx: &Context, only: Option<String>, file: &Path) -> Result<Carried> {
    let part = rota_store::part_of(file);
    let failed = |source| Fault::Io { path: file.to_owned(), source };
    let exported = export_into(cx, only, &File::create(&part).map_err(failed)?, file).await;
    if exported.is_err() {
        // Half a file is of no use; that it could not be removed is not what the caller must hear.
        drop(std::fs::remove_file(&part));
    }
    let end = exported?;
    rota_store::make_whole(&part, file)?;
    Ok(Carried::of(Some(file), end))
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
