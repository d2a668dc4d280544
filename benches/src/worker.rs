//! Workers: each a process of its own that claims and settles until its time is up, on the bare side or on ours.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rota_core::lease::Caller;
use rota_core::transition;
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::claim::{Claim, Grant, Wanted};
use rota_store::intents::settle::{Settle, Step};
use rota_store::sqlite::SqliteStore;
use rota_testbed::block_on;

use crate::Result;
use crate::bare::Bare;

/// Whose code runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// rusqlite, nothing else.
    Bare,
    /// The store.
    Rota,
}

/// What a process got done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share {
    /// Tasks claimed and settled.
    pub tasks: f64,
    /// For how long it worked.
    pub seconds: f64,
    /// The longest it took from one turn to the next, in milliseconds.
    pub longest_ms: f64,
    /// The time it was on a processor, in microseconds: a busy machine does not change it much.
    pub cpu_micros: f64,
}

/// Something that works in turns; after each it says how many tasks it got done, and hears whether to go on.
pub trait Loop {
    /// Claims `batch` tasks in one transaction and settles them in a second one, until told to stop or until nothing is left.
    fn turns(&mut self, batch: usize, go_on: &mut dyn FnMut(usize) -> bool) -> Result<()>;
}

struct Rota {
    store: SqliteStore,
    claim: Claim,
}

impl Rota {
    fn open(path: &Path, agent: &str) -> Result<Self> {
        let claim = Claim {
            call: Call { actor: Some(agent.to_owned()), ..Call::in_scope("default") },
            queue: "tasks".to_owned(),
            limit: 1,
            agent: Some(agent.to_owned()),
            ttl_ms: None,
            wanted: Wanted::default(),
            host: None,
        };
        Ok(Self { store: SqliteStore::open(path)?, claim })
    }

    fn settle(&self, granted: Vec<Grant>) -> Result<()> {
        let steps = granted.into_iter().map(|grant| {
            let caller = Caller { agent: self.claim.agent.clone(), lease: grant.task.lease() };
            Step { id: grant.task.id, command: transition::Command::Done { caller, result: None } }
        });
        let settle = Settle { call: self.claim.call.clone(), steps: steps.collect(), then: None };
        for step in block_on(self.store.perform(&settle))?.steps {
            step?;
        }
        Ok(())
    }
}

impl Loop for Rota {
    fn turns(&mut self, batch: usize, go_on: &mut dyn FnMut(usize) -> bool) -> Result<()> {
        self.claim.limit = batch;
        loop {
            let granted = block_on(self.store.perform(&self.claim))?;
            let count = granted.len();
            if count == 0 {
                return Ok(());
            }
            self.settle(granted)?;
            if !go_on(count) {
                return Ok(());
            }
        }
    }
}

/// The body of a worker process: gets ready, then works for as long as each line of input says, and reports.
pub fn be_worker(arguments: &[String]) -> Result<()> {
    let [side, batch, file, most, agent] = arguments else { return Err("worker: wrong arguments".into()) };
    let (batch, most): (usize, usize) = (batch.parse()?, most.parse()?);
    let file = Path::new(file);
    let mut worker: Box<dyn Loop> = match side.as_str() {
        "bare" => Box::new(Bare::open(file, agent)?),
        _ => Box::new(Rota::open(file, agent)?),
    };
    println!("ready");
    for millis in std::io::stdin().lines() {
        let length = Duration::from_millis(millis?.parse()?);
        let cpu_before = cpu_micros();
        let (start, mut last) = (Instant::now(), Instant::now());
        let (mut tasks, mut longest) = (0, Duration::ZERO);
        worker.turns(batch, &mut |count| {
            tasks += count;
            longest = longest.max(last.elapsed());
            last = Instant::now();
            start.elapsed() < length && tasks < most
        })?;
        let (seconds, longest_ms) = (start.elapsed().as_secs_f64(), longest.as_secs_f64() * 1e3);
        println!("{tasks} {seconds} {longest_ms} {}", cpu_micros() - cpu_before);
    }
    Ok(())
}

/// Worker processes of one side on one file. They stay, so that the sides can take turns in short slices.
pub struct Crew {
    workers: Vec<(Child, BufReader<ChildStdout>)>,
}

impl Crew {
    /// Starts so many; each does at most `most` tasks in a slice.
    pub fn start(side: Side, batch: usize, processes: usize, file: &Path, most: usize) -> Result<Self> {
        let side = if side == Side::Bare { "bare" } else { "rota" };
        let start = |number: usize| -> Result<(Child, BufReader<ChildStdout>)> {
            let mut child = Command::new(std::env::current_exe()?)
                .args(["worker", side, &batch.to_string()])
                .arg(file)
                .args([most.to_string(), format!("agent-{number}")])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let output = child.stdout.take().ok_or("a worker without output")?;
            Ok((child, BufReader::new(output)))
        };
        let mut crew = Self { workers: (0..processes).map(start).collect::<Result<Vec<_>>>()? };
        for (_, output) in &mut crew.workers {
            line(output)?;
        }
        Ok(crew)
    }

    /// Lets all of them work at once for a while.
    pub fn work(&mut self, length: Duration) -> Result<Vec<Share>> {
        for (child, _) in &mut self.workers {
            writeln!(child.stdin.as_mut().ok_or("a worker without input")?, "{}", length.as_millis())?;
        }
        let share = |(_, output): &mut (Child, BufReader<ChildStdout>)| -> Result<Share> {
            let report = line(output)?;
            let numbers =
                report.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<f64>, _>>()?;
            let [tasks, seconds, longest_ms, cpu_micros] = numbers[..] else {
                return Err("a worker failed".into());
            };
            Ok(Share { tasks, seconds, longest_ms, cpu_micros })
        };
        self.workers.iter_mut().map(share).collect()
    }

    /// Sends them home.
    pub fn stop(self) -> Result<()> {
        for (mut child, _) in self.workers {
            drop(child.stdin.take());
            child.wait()?;
        }
        Ok(())
    }
}

/// This thread's time on a processor so far; 0 where the system does not say.
fn cpu_micros() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_else(|_| String::new());
    let nanos = text.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    nanos.map_or(0.0, |nanos| nanos / 1e3)
}

fn line(output: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    Ok(line)
}
