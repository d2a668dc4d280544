//! What a daemon costs while it has nothing to decide: fifty agents that run, a million tasks that rest, and how soon a
//! daemon that was killed has its agents again.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::backlog::{self, Shape};
use crate::loops::{checkpoint, workspace};
use crate::options::{Options, built_rota, print_machine};
use crate::stats::verdict;

const AGENTS: usize = 50;
/// The kernel counts processor time in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

/// Runs both.
pub fn run(options: &Options) -> Result<()> {
    let folder = options.scratch()?;
    print_machine(folder.path());
    let rota = built_rota()?;
    fifty_agents(options, folder.path(), &rota)?;
    a_million_tasks(options, folder.path(), &rota)
}

fn command(rota: &Path, workspace: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(rota);
    command.args(words).current_dir(workspace).env("ROTA_LOG", "warn").env("ROTA_HOST", "bench");
    command.env_remove("ROTA_CONFIG").env_remove("ROTA_SCOPE").env_remove("ROTA_STORE");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Starts a daemon and waits until it says that so many loops run; returns how long that took.
fn daemon(rota: &Path, workspace: &Path, running: usize) -> Result<(Child, Duration)> {
    let start = Instant::now();
    let daemon = command(rota, workspace, &["up"]).spawn()?;
    loop {
        let asked = command(rota, workspace, &["status", "--json"]).stdout(Stdio::piped()).output()?;
        let status: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap_or_default();
        if status["running"].as_array().is_some_and(|loops| loops.len() == running) {
            return Ok((daemon, start.elapsed()));
        }
        if start.elapsed() > Duration::from_secs(60) {
            return Err("the daemon does not come up".into());
        }
    }
}

fn end(rota: &Path, workspace: &Path, mut daemon: Child) -> Result<()> {
    command(rota, workspace, &["down", "--kill"]).status()?;
    daemon.wait()?;
    Ok(())
}

/// Seconds of processor time that a process has used.
pub fn processor_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let behind = stat.rsplit_once(')').ok_or("no such line")?.1;
    let fields: Vec<&str> = behind.split_whitespace().collect();
    let ticks =
        |place: usize| fields.get(place).and_then(|text| text.parse::<f64>().ok()).ok_or("no such field");
    Ok((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// Megabytes: resident, and its share where pages are shared.
fn memory(pid: u32) -> Result<(f64, f64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line")?;
        line.trim().trim_end_matches(" kB").parse::<f64>().map_err(|_| "no such number")
    };
    Ok((of("Rss:")? / 1024.0, of("Pss:")? / 1024.0))
}

/// The shims of all agents, once each has begun.
fn shims(workspace: &Path) -> Result<Vec<u32>> {
    let agents = workspace.join(".rota/run/agents");
    let start = Instant::now();
    loop {
        let mut pids: Vec<u32> = Vec::new();
        for run in std::fs::read_dir(&agents)? {
            let Ok(text) = std::fs::read_to_string(run?.path()) else { continue };
            for line in text.lines() {
                let line: serde_json::Value = serde_json::from_str(line)?;
                if let Some(pid) = line["began"]["shim"]["pid"].as_u64() {
                    pids.push(pid.try_into()?);
                }
            }
        }
        if pids.len() == AGENTS {
            return Ok(pids);
        }
        if start.elapsed() > Duration::from_secs(60) {
            return Err(format!("{} of {AGENTS} shims have begun", pids.len()).into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn fifty_agents(options: &Options, folder: &Path, rota: &Path) -> Result<()> {
    let file = folder.join("agents.db");
    drop(backlog::fill(&file, "loops", AGENTS, Shape::Runnable)?);
    checkpoint(&file)?;
    let kind = "{run: [sleep, \"1000\"]}";
    let config = format!(
        "disk: {{min_free_gb: 0}}\nloops: {{plan: {kind}, spec: {kind}, phase: {kind}, ralph: {kind}}}\n"
    );
    let workspace = workspace(folder, &file, &config)?;
    let (mut first, _) = daemon(rota, workspace.path(), AGENTS)?;
    let shims = shims(workspace.path())?;
    let all: Vec<u32> = shims.iter().copied().chain([first.id()]).collect();
    let used = |pids: &[u32]| pids.iter().map(|pid| processor_seconds(*pid)).sum::<Result<f64>>();
    let (before, start) = (used(&all)?, Instant::now());
    std::thread::sleep(options.pick(Duration::from_secs(2), Duration::from_secs(60)));
    let percent = (used(&all)? - before) / start.elapsed().as_secs_f64() * 100.0;
    let (daemon_rss, daemon_pss) = memory(first.id())?;
    let (mut shim_rss, mut shim_pss) = (0.0, 0.0);
    for shim in &shims {
        let (rss, pss) = memory(*shim)?;
        shim_rss += rss;
        shim_pss += pss;
    }
    let megabytes = daemon_pss + shim_pss;
    println!("| {AGENTS} agents that run | | target | |\n|---|---|---|---|");
    println!("| processor, daemon and shims | {percent:.2} % | < 3 % | {} |", verdict(percent < 3.0));
    println!("| memory, daemon and shims | {megabytes:.1} MB | < 150 MB | {} |", verdict(megabytes < 150.0));
    println!("| of it the daemon (resident) | {daemon_pss:.1} MB ({daemon_rss:.1}) | | |");
    let each = shims.len() as f64;
    println!("| of it each shim (resident) | {:.2} MB ({:.1}) | | |", shim_pss / each, shim_rss / each);
    let mut took = Vec::new();
    for _ in 0..options.pick(1, 5) {
        first.kill()?;
        first.wait()?;
        let (next, time) = daemon(rota, workspace.path(), AGENTS)?;
        first = next;
        took.push(time.as_secs_f64());
    }
    let longest = took.iter().copied().fold(0.0, f64::max);
    println!(
        "| killed, until the next one has them | {:.0} ms at most of {} | < 2 s | {} |\n",
        longest * 1e3,
        took.len(),
        verdict(longest < 2.0)
    );
    end(rota, workspace.path(), first)
}

fn a_million_tasks(options: &Options, folder: &Path, rota: &Path) -> Result<()> {
    let tasks = options.pick(10_000, 1_000_000);
    let file = folder.join("million.db");
    drop(backlog::fill(&file, "loops", tasks, Shape::Runnable)?);
    checkpoint(&file)?;
    let workspace = workspace(folder, &file, "disk: {min_free_gb: 0}\nloops: {other: {run: [\"true\"]}}\n")?;
    let (daemon, took) = daemon(rota, workspace.path(), 0)?;
    let before = processor_seconds(daemon.id())?;
    let start = Instant::now();
    std::thread::sleep(options.pick(Duration::from_secs(2), Duration::from_secs(60)));
    let percent = (processor_seconds(daemon.id())? - before) / start.elapsed().as_secs_f64() * 100.0;
    let (resident, _) = memory(daemon.id())?;
    let seconds = took.as_secs_f64();
    println!("| rota up on {tasks} stored loops | | target | |\n|---|---|---|---|");
    println!("| started and answering | {:.0} ms | < 2 s | {} |", seconds * 1e3, verdict(seconds < 2.0));
    println!("| processor, idle | {percent:.2} % | < 1 % | {} |", verdict(percent < 1.0));
    println!("| memory, resident | {resident:.1} MB | < 64 MB | {} |", verdict(resident < 64.0));
    end(rota, workspace.path(), daemon)
}
