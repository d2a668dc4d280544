//! Stores that a build fills once and that are copied for each round, so that every round begins with the same backlog,
//! whatever schema the build has.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Build;
use crate::Result;
use crate::postgres::Bench;
use crate::server::{Server, rota_command};

/// Where stores are made.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// Databases of a server; the folder is for the workspace.
    Postgres(&'a Bench, &'a Path),
    /// Files in a folder.
    Sqlite(&'a Path),
}

/// A number for each new store of this process.
fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<'a> Place<'a> {
    /// The word for it in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres(..) => "PostgreSQL",
            Self::Sqlite(_) => "SQLite",
        }
    }

    /// The workspace that commands run in.
    pub const fn folder(self) -> &'a Path {
        match self {
            Self::Postgres(_, folder) | Self::Sqlite(folder) => folder,
        }
    }

    /// A new, empty store.
    pub fn empty(self) -> Result<Copied<'a>> {
        let name = format!("store_{}", number());
        if let Self::Postgres(bench, _) = self {
            bench.sql("postgres", &format!("CREATE DATABASE {name}"))?;
        }
        Ok(Copied { place: self, name })
    }

    fn file(self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}.db"))
    }

    fn url(self, name: &str) -> String {
        match self {
            Self::Postgres(bench, _) => bench.url(name),
            Self::Sqlite(_) => format!("sqlite:{}", self.file(name).display()),
        }
    }
}

/// A store that goes away with this value.
pub struct Copied<'a> {
    place: Place<'a>,
    name: String,
}

impl Copied<'_> {
    /// Its URL.
    pub fn url(&self) -> String {
        self.place.url(&self.name)
    }

    /// Its file, where it is one.
    pub fn file(&self) -> PathBuf {
        self.place.file(&self.name)
    }

    /// A `rota serve` on it.
    pub fn serve(&self, build: &Build) -> Result<Server> {
        Server::start(&build.path, self.place.folder(), &self.url())
    }

    /// Prepares it for being copied or measured: statistics are there, nothing is left to be written back.
    pub fn settle(&self) -> Result<()> {
        match self.place {
            Place::Postgres(bench, _) => {
                bench.sql(&self.name, "VACUUM ANALYZE")?;
                bench.sql(&self.name, "CHECKPOINT")?;
            }
            Place::Sqlite(_) => {
                let connection = rusqlite::Connection::open(self.file())?;
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Copied<'_> {
    fn drop(&mut self) {
        match self.place {
            Place::Postgres(bench, _) => {
                let text = format!("DROP DATABASE {} WITH (FORCE)", self.name);
                if let Err(error) = bench.sql("postgres", &text) {
                    eprintln!("{error}");
                }
            }
            Place::Sqlite(folder) => {
                let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
                let stem = format!("{}.db", self.name);
                for file in files.filter(|file| file.file_name().to_string_lossy().starts_with(&stem)) {
                    drop(std::fs::remove_file(file.path()));
                }
            }
        }
    }
}

/// A backlog that a build makes by `rota task plan-sync`, at the first use.
pub struct Template<'a> {
    place: Place<'a>,
    build: &'a Build,
    tasks: usize,
    filled: OnceCell<Copied<'a>>,
}

impl<'a> Template<'a> {
    /// A backlog of so many runnable tasks.
    pub fn new(place: Place<'a>, build: &'a Build, tasks: usize) -> Self {
        Self { place, build, tasks, filled: OnceCell::new() }
    }

    /// The name of the build.
    pub fn build(&self) -> &'a Build {
        self.build
    }

    /// Where it is.
    pub fn place(&self) -> Place<'a> {
        self.place
    }

    /// The number of tasks in it.
    pub fn tasks(&self) -> usize {
        self.tasks
    }

    /// A copy, ready to be measured.
    pub fn copy(&self) -> Result<Copied<'a>> {
        if self.filled.get().is_none() {
            drop(self.filled.set(self.fill()?));
        }
        let from = self.filled.get().ok_or("no backlog")?;
        let copied = Copied { place: self.place, name: format!("store_{}", number()) };
        match self.place {
            Place::Postgres(bench, _) => {
                bench.sql("postgres", &format!("CREATE DATABASE {} TEMPLATE {}", copied.name, from.name))?;
                bench.sql("postgres", "CHECKPOINT")?;
            }
            Place::Sqlite(_) => {
                std::fs::copy(from.file(), copied.file())?;
                std::fs::File::open(copied.file())?.sync_all()?;
            }
        }
        Ok(copied)
    }

    fn fill(&self) -> Result<Copied<'a>> {
        let store = self.place.empty()?;
        let mut plan = String::new();
        for number in 0..self.tasks {
            write!(plan, r#"{{"id":"task-{number:07}","t":"Task number {number}","p":2,"cat":"code","#)?;
            writeln!(
                plan,
                r#""d":"Do the work that one sentence of the usual length describes.","deps":[]}}"#
            )?;
        }
        let arguments = ["task", "plan-sync"];
        let mut command = rota_command(&self.build.path, self.place.folder(), &store.url(), &arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().ok_or("no pipe")?;
        let writer = std::thread::spawn(move || stdin.write_all(plan.as_bytes()));
        let output = child.wait_with_output()?;
        writer.join().map_err(|_| "the plan was not written")??;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: plan-sync: {reason}", self.build.name).into());
        }
        store.settle()?;
        Ok(store)
    }
}
