//! The command line that all benchmarks share, and where their files go.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::Result;
use crate::stats::{median, micros};

/// What a benchmark was asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Fewer and shorter rounds: shows that it runs, not how fast.
    pub quick: bool,
    /// Where scratch databases go; beside the program unless given, because a temporary folder may be memory.
    pub folder: Option<PathBuf>,
    /// Everything else, in order.
    pub rest: Vec<String>,
}

impl Options {
    /// Which benchmark this process was asked for, and how.
    pub fn of_process() -> Result<(String, Self)> {
        let mut options = Self::default();
        let mut arguments = std::env::args().skip(1);
        let benchmark = arguments.next().unwrap_or_default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--folder" => {
                    options.folder = Some(arguments.next().ok_or("--folder needs a path")?.into());
                }
                _ => options.rest.push(argument),
            }
        }
        Ok((benchmark, options))
    }

    /// A folder that goes away with the run.
    pub fn scratch(&self) -> Result<tempfile::TempDir> {
        let folder = match &self.folder {
            Some(folder) => folder.clone(),
            None => own_folder()?,
        };
        Ok(tempfile::Builder::new().prefix("rota-bench-").tempdir_in(folder)?)
    }

    /// `quick` or `full`, whichever applies.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// The folder this program lies in; other programs of the same build are there too.
fn own_folder() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().ok_or("this program has no folder")?.to_owned())
}

/// The `rota` that is measured: `ROTA_BIN`, or the one that was built beside this program.
pub fn built_rota() -> Result<PathBuf> {
    let rota = match std::env::var_os("ROTA_BIN") {
        Some(path) => std::path::absolute(path)?,
        None => own_folder()?.join("rota"),
    };
    if !rota.is_file() {
        return Err(format!("{}: no such program (cargo build --release -p rota-cli)", rota.display()).into());
    }
    Ok(rota)
}

/// The median time of a small durable write in a folder, in microseconds: it differs from machine to machine and, with
/// what else they do, from minute to minute.
pub fn durable_write_micros(folder: &Path) -> Result<f64> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut times = Vec::new();
    for _ in 0..50 {
        let began = Instant::now();
        file.write_all(&[0; 8192])?;
        file.sync_data()?;
        times.push(micros(began.elapsed()));
    }
    Ok(median(&times))
}

/// Says in general terms what the figures were measured on.
pub fn print_machine(folder: &Path) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let sqlite = rusqlite::version();
    println!("{cores} cores, scratch files on {}, SQLite {sqlite} (bundled)\n", file_system(folder));
}

fn file_system(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_else(|_| String::new());
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let found = mounts.filter(|(place, _)| folder.starts_with(place)).max_by_key(|(place, _)| place.len());
    found.map_or_else(|| "an unknown file system".to_owned(), |(_, kind)| kind.to_owned())
}
