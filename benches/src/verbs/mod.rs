//! The verbs as a user sends them: HTTP calls to `rota serve`, `rota work` and the CLI, on both stores, beside other queues
//! in interleaved rounds of one run. `docs/benchmarks-verbs.md` has the commands and the targets.

mod additions;
mod claims;
mod client;
mod cold;
mod sizes;
mod stores;
mod table;
mod work;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Result;
use crate::options::{Options, built_rota, durable_write_micros, print_machine};
use crate::postgres::Bench;
use stores::Place;

/// The callers of one process, by column.
const CALLERS: [usize; 3] = [1, 4, 16];
/// Tasks in the store at the start of a round.
const BACKLOG: usize = 20_000;
const USAGE: &str =
    "usage: rota-benches verbs [--quick] [--only WORDS] [--baseline PATH] [--sizes] [--folder PATH]

  --only WORDS      measure only rows whose section or name contains one of these comma-separated words
  --baseline PATH   measure another rota beside this one, in the same run
  --sizes           also the time of a claim at 10,000 and at 1,000,000 tasks (takes minutes)";

/// A binary that is measured.
#[derive(Clone, Debug)]
struct Build {
    /// Its rows begin with this word.
    name: &'static str,
    path: PathBuf,
}

/// One run: what was asked for, and where it happens.
struct Run {
    builds: Vec<Build>,
    only: Vec<String>,
    sizes: bool,
    rounds: usize,
    length: Duration,
    quick: bool,
    folder: tempfile::TempDir,
    bench: OnceCell<Bench>,
}

/// Runs it.
pub fn run(options: &Options) -> Result<()> {
    let run = Run::from_options(options)?;
    print_machine(run.folder());
    for build in &run.builds {
        println!("{}: {}", build.name, version(&build.path)?);
    }
    if run.wants_section("postgres") {
        println!("PostgreSQL {}, fsync on, Unix socket", run.bench()?.version()?);
    }
    let (rounds, seconds) = (run.rounds, run.length.as_secs_f64());
    println!("rounds per figure: {rounds}, of {seconds} s each; figures are medians");
    println!("at the start: {}\n", state(&run)?);
    let sections: [fn(&Run) -> Result<bool>; 9] = [
        claims::postgres,
        claims::sqlite,
        work::run,
        additions::postgres,
        additions::sqlite,
        cold::sqlite,
        cold::postgres,
        sizes::sqlite,
        sizes::postgres,
    ];
    let mut all_measured = true;
    for section in sections {
        all_measured &= section(&run)?;
    }
    println!("at the end: {}", state(&run)?);
    if all_measured { Ok(()) } else { Err("some rows could not be measured, see above".into()) }
}

impl Run {
    fn from_options(options: &Options) -> Result<Self> {
        let (mut only, mut baseline, mut sizes) = (Vec::new(), None, false);
        let mut arguments = options.rest.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--sizes" => sizes = true,
                "--only" => {
                    let words = arguments.next().ok_or("--only needs words")?;
                    only.extend(words.split(',').map(str::to_owned));
                }
                "--baseline" => {
                    let path = std::path::absolute(arguments.next().ok_or("--baseline needs a path")?)?;
                    baseline = Some(Build { name: "baseline", path });
                }
                _ => return Err(USAGE.into()),
            }
        }
        let mut builds = vec![Build { name: "rota", path: built_rota()? }];
        builds.extend(baseline);
        let folder = options.scratch()?;
        // The scratch folder is a workspace of its own, wherever it lies.
        std::fs::create_dir(folder.path().join(".git"))?;
        let (rounds, length) = options.pick((1, Duration::from_secs(1)), (3, Duration::from_secs(2)));
        let (quick, bench) = (options.quick, OnceCell::new());
        Ok(Self { builds, only, sizes, rounds, length, quick, folder, bench })
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The PostgreSQL server of this run, started at its first use.
    fn bench(&self) -> Result<&Bench> {
        if self.bench.get().is_none() {
            drop(self.bench.set(Bench::start()?));
        }
        self.bench.get().ok_or_else(|| "no server".into())
    }

    fn postgres(&self) -> Result<Place<'_>> {
        Ok(Place::Postgres(self.bench()?, self.folder()))
    }

    fn sqlite(&self) -> Place<'_> {
        Place::Sqlite(self.folder())
    }

    fn baseline(&self) -> Option<&Build> {
        self.builds.get(1)
    }

    /// Whether a row was asked for.
    fn wants(&self, section: &str, row: &str) -> bool {
        let text = format!("{section}: {row}");
        self.only.is_empty() || self.only.iter().any(|word| text.contains(word.as_str()))
    }

    /// Whether rows of a section may have been asked for: a word that names no other section may be in any of them.
    fn wants_section(&self, section: &str) -> bool {
        let other = if section == "postgres" { "sqlite" } else { "postgres" };
        self.only.is_empty() || self.only.iter().any(|word| !word.contains(other))
    }
}

fn version(rota: &Path) -> Result<String> {
    let mut command = std::process::Command::new(rota);
    command.arg("--version");
    crate::postgres::output_of(command)
}

/// The state of the machine: its load averages, and how long a durable write takes.
fn state(run: &Run) -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_else(|_| "unknown".to_owned());
    let load = text.split(' ').take(3).collect::<Vec<_>>().join(" ");
    let write = durable_write_micros(run.folder())?;
    Ok(format!("load {load}, a durable write of 8 KB takes {write:.0} µs"))
}
