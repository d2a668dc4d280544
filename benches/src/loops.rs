//! The daemon on SQLite: a thousand loops that do nothing, how soon a child starts, and a tick with nothing to do.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rota_core::TaskId;
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewPriority, NewTask};
use rota_store::intents::claim::{Claim, Wanted};
use rota_store::intents::iterate::Begin;
use rota_store::intents::settle::Settle;
use rota_store::intents::sync_leases::{Awaiting, SyncLeases, SyncLoops};
use rota_store::sqlite::SqliteStore;
use rota_testbed::block_on;

use crate::Result;
use crate::backlog::{self, Shape};
use crate::options::{Options, built_rota, print_machine};
use crate::stats::{median, median_ratio, micros, verdict};
use crate::work::{bare_loops, on_copy};

const RATIO: f64 = 0.7;
const BEYOND_MS: f64 = 10.0;
const TICK_MICROS: f64 = 1_000.0;

/// Runs all three.
pub fn run(options: &Options) -> Result<()> {
    let folder = options.scratch()?;
    print_machine(folder.path());
    let rota = built_rota()?;
    no_op_loops(options, folder.path(), &rota)?;
    chains(options, folder.path(), &rota)?;
    idle_tick(options, folder.path())
}

fn up(rota: &Path, workspace: &Path) -> Result<()> {
    let mut command = Command::new(rota);
    command.args(["up", "--until-idle"]).current_dir(workspace).env("ROTA_LOG", "warn");
    command.env_remove("ROTA_CONFIG").env_remove("ROTA_SCOPE").env_remove("ROTA_STORE");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err("rota up failed".into()) }
}

/// A workspace with a configuration and a copy of a database.
pub fn workspace(folder: &Path, template: &Path, config: &str) -> Result<tempfile::TempDir> {
    let workspace = tempfile::tempdir_in(folder)?;
    std::fs::create_dir(workspace.path().join(".rota"))?;
    std::fs::write(workspace.path().join("rota.yml"), config)?;
    let file = workspace.path().join(".rota/rota.db");
    std::fs::copy(template, &file)?;
    std::fs::File::open(&file)?.sync_all()?;
    Ok(workspace)
}

/// Everything into the file itself.
pub fn checkpoint(file: &Path) -> Result<()> {
    Ok(rusqlite::Connection::open(file)?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
}

fn no_op_loops(options: &Options, folder: &Path, rota: &Path) -> Result<()> {
    let loops = options.pick(100, 1_000);
    let (ours, bare) = (folder.join("loops.db"), folder.join("tasks.db"));
    drop(backlog::fill(&ours, "loops", loops, Shape::Runnable)?);
    drop(backlog::fill(&bare, "tasks", loops, Shape::Runnable)?);
    checkpoint(&ours)?;
    checkpoint(&bare)?;
    let kind = "{run: [\"true\"]}";
    let config = format!(
        "disk: {{min_free_gb: 0}}\nloops: {{plan: {kind}, spec: {kind}, phase: {kind}, ralph: {kind}}}\n"
    );
    let (mut rates, mut bare_rates) = (Vec::new(), Vec::new());
    // Removed at the end: some file systems look past what was removed lately whenever they make a file.
    let mut workspaces = Vec::new();
    for round in 0..options.pick(2, 6) {
        let bare_seconds = on_copy(&bare, |file| bare_loops(file, 1))?;
        let workspace = workspace(folder, &ours, &config)?;
        let start = Instant::now();
        up(rota, workspace.path())?;
        let seconds = start.elapsed().as_secs_f64();
        workspaces.push(workspace);
        if round > 0 {
            rates.push(loops as f64 / seconds);
            bare_rates.push(loops as f64 / bare_seconds);
        }
    }
    let ratio = median_ratio(&rates, &bare_rates);
    println!(
        "| {loops} loops that do nothing, 50 slots | bare loop, loops/s | rota up, loops/s | ratio | target | |"
    );
    println!("|---|---|---|---|---|---|");
    let (bare, ours) = (median(&bare_rates), median(&rates));
    println!("| | {bare:.0} | {ours:.0} | {ratio:.2} | ≥ {RATIO} | {} |\n", verdict(ratio >= RATIO));
    Ok(())
}

/// Nanoseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "two processes compare it, finer than milliseconds")]
fn stamp() -> Result<u128> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())
}

/// The body of an agent: a parent leaves a child and says when it ended, a child says when it began.
pub fn be_agent(arguments: &[String]) -> Result<()> {
    let began = stamp()?;
    let [folder] = arguments else { return Err("agent: wrong arguments".into()) };
    let (task, artifacts) = (std::env::var("ROTA_TASK")?, std::env::var("ROTA_ARTIFACTS")?);
    let folder = PathBuf::from(folder);
    if task.starts_with("child") {
        std::fs::write(folder.join(&task), began.to_string())?;
        return Ok(());
    }
    let line = format!("{{\"id\":\"child-{task}\",\"t\":\"Child\",\"kind\":\"spec\"}}\n");
    std::fs::write(Path::new(&artifacts).join("children.jsonl"), line)?;
    std::fs::write(folder.join(&task), stamp()?.to_string())?;
    Ok(())
}

fn chains(options: &Options, folder: &Path, rota: &Path) -> Result<()> {
    let count = options.pick(20, 500);
    let template = folder.join("chains.db");
    let store = SqliteStore::open(&template)?;
    let parent = |number: usize| -> Result<NewTask> {
        let id = TaskId::new(&format!("parent-{number}"))?;
        Ok(NewTask {
            kind: Some("plan".into()),
            priority: NewPriority::Unset,
            ..NewTask::new(id, "loops", "Parent")
        })
    };
    let tasks = (0..count).map(parent).collect::<Result<Vec<_>>>()?;
    block_on(store.perform(&Add { call: Call::in_scope("default"), tasks }))?;
    drop(store);
    checkpoint(&template)?;
    let stamps = folder.join("stamps");
    std::fs::create_dir_all(&stamps)?;
    let agent =
        format!("{{run: [\"{}\", \"agent\", \"{}\"]}}", std::env::current_exe()?.display(), stamps.display());
    let config = format!(
        "disk: {{min_free_gb: 0}}\nconcurrency: {{max_loops: 1}}\nloops: {{plan: {agent}, spec: {agent}}}\n"
    );
    let workspace = workspace(folder, &template, &config)?;
    up(rota, workspace.path())?;
    let read = |name: String| -> Result<f64> {
        Ok(std::fs::read_to_string(stamps.join(name))?.parse::<f64>()? / 1e6)
    };
    let mut waits = Vec::with_capacity(count);
    for number in 0..count {
        waits.push(read(format!("child-parent-{number}"))? - read(format!("parent-{number}"))?);
    }
    let mut bare = two_commits_and_a_spawn(folder, &stamps, count)?;
    waits.sort_by(f64::total_cmp);
    bare.sort_by(f64::total_cmp);
    let at = |list: &[f64], share: f64| list[((list.len() - 1) as f64 * share) as usize];
    let beyond = at(&waits, 0.99) - at(&bare, 0.99);
    println!("| parent done → child started, {count} chains | p50 | p99 | beyond, p99 | target | |");
    println!("|---|---|---|---|---|---|");
    println!(
        "| two bare durable commits and a spawn | {:.1} ms | {:.1} ms | | | |",
        at(&bare, 0.5),
        at(&bare, 0.99)
    );
    println!(
        "| rota up | {:.1} ms | {:.1} ms | {beyond:.1} ms | ≤ {BEYOND_MS} ms | {} |\n",
        at(&waits, 0.5),
        at(&waits, 0.99),
        verdict(beyond <= BEYOND_MS)
    );
    Ok(())
}

/// Until the same program says that it began.
fn two_commits_and_a_spawn(folder: &Path, stamps: &Path, count: usize) -> Result<Vec<f64>> {
    let connection = rusqlite::Connection::open(folder.join("bare-commits.db"))?;
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (x INTEGER)")?;
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let name = format!("child-bare-{number}");
        let start = stamp()?;
        for _ in 0..2 {
            connection.execute("INSERT INTO t VALUES (?1)", [i64::try_from(number)?])?;
        }
        let mut agent = Command::new(std::env::current_exe()?);
        agent.arg("agent").arg(stamps).env("ROTA_TASK", &name).env("ROTA_ARTIFACTS", folder);
        if !agent.stdin(Stdio::null()).status()?.success() {
            return Err("the bare agent failed".into());
        }
        let began: u128 = std::fs::read_to_string(stamps.join(&name))?.parse()?;
        times.push((began - start) as f64 / 1e6);
    }
    Ok(times)
}

/// What a tick asks of the store where nothing of a large backlog may run.
fn idle_tick(options: &Options, folder: &Path) -> Result<()> {
    let count = options.pick(1_000, 100_000);
    let store = backlog::fill(&folder.join("idle.db"), "loops", count, Shape::MostlyHeldBack)?;
    let call = Call::in_scope("default");
    let claim = Claim {
        call: call.clone(),
        queue: "loops".to_owned(),
        limit: 50,
        agent: None,
        ttl_ms: None,
        wanted: Wanted::default(),
        host: Some("host".to_owned()),
    };
    // A kind that nothing has: everything is looked past, nothing is granted.
    let begin = Begin::new(claim, vec!["other".to_owned()], true);
    let awaiting = Some(Awaiting { after_seq: 0, limit: 200 });
    let loops = SyncLoops { awaiting, ..SyncLoops::looking(begin) };
    let settle = Settle { call, steps: Vec::new(), then: None };
    let tick = SyncLeases { settle, loops: Some(loops) };
    let mut times = Vec::new();
    for _ in 0..options.pick(20, 500) {
        let start = Instant::now();
        if !block_on(store.perform(&tick))?.settled.granted.is_empty() {
            return Err("something was granted".into());
        }
        times.push(micros(start.elapsed()));
    }
    let tick = median(&times);
    println!("| a tick, {count} pending, none runnable | target | |\n|---|---|---|");
    println!("| {tick:.0} µs | ≤ {TICK_MICROS} µs | {} |", verdict(tick <= TICK_MICROS));
    Ok(())
}
