//! What MCP over stdio adds to a verb: the same call in this process and through `rota mcp`, one after the other.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use rota_store::sqlite::SqliteStore;
use rota_testbed::block_on;
use rota_verbs::claim::ClaimTask;
use rota_verbs::input::{Id, read};
use rota_verbs::peek::PeekTasks;
use rota_verbs::settle::FinishTask;
use rota_verbs::why::ExplainTask;
use rota_verbs::{Context, Payload, Verb};
use serde_json::{Value, json};

use crate::Result;
use crate::backlog::{self, Shape};
use crate::options::{Options, built_rota, print_machine};
use crate::stats::{median, median_ratio, micros, verdict};

const TARGET_MICROS: f64 = 1_000.0;
const HANDSHAKE: &str = "2025-11-25";

/// Runs it.
pub fn run(options: &Options) -> Result<()> {
    let folder = options.scratch()?;
    let rota = built_rota()?;
    print_machine(folder.path());
    let (ours, theirs) = (folder.path().join("direct.db"), folder.path().join("mcp.db"));
    let calls = options.pick(50, 2_000);
    drop(backlog::fill(&ours, "tasks", calls + 1_000, Shape::Runnable)?);
    rusqlite::Connection::open(&ours)?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    std::fs::copy(&ours, &theirs)?;
    let direct = Context { agent: Some("bench".to_owned()), ..Context::new(SqliteStore::open(&ours)?) };
    let mut server = Server::start(&rota, &theirs)?;
    let mut rows: [(&str, Times); 4] = ["peek", "why", "claim", "done"].map(|verb| (verb, Times::default()));
    for round in 0..calls {
        for (verb, times) in &mut rows {
            let (direct, served) = (in_process(&direct, verb, round)?, server.time(verb, round)?);
            // The first ones open connections and prepare statements.
            if round >= calls / 20 {
                times.direct.push(direct);
                times.served.push(served);
            }
        }
    }
    println!("| verb | in process | over stdio | added | target | | ratio |");
    println!("|---|---|---|---|---|---|---|");
    for (verb, times) in &rows {
        times.print(verb);
    }
    server.end()
}

/// Microseconds of one verb, round by round.
#[derive(Default)]
struct Times {
    direct: Vec<f64>,
    served: Vec<f64>,
}

impl Times {
    fn print(&self, verb: &str) {
        let added: Vec<f64> =
            self.served.iter().zip(&self.direct).map(|(served, direct)| served - direct).collect();
        let (added, ratio) = (median(&added), median_ratio(&self.served, &self.direct));
        let (direct, served) = (median(&self.direct), median(&self.served));
        let verdict = verdict(added <= TARGET_MICROS);
        println!(
            "| {verb} | {direct:.0} µs | {served:.0} µs | {added:.0} µs | ≤ {TARGET_MICROS:.0} µs | {verdict} | {ratio:.2} |"
        );
    }
}

/// The task that a round claims: the backlog's order is that of its numbers.
fn task(round: usize) -> Result<String> {
    Ok(backlog::id(round)?.to_string())
}

fn in_process(cx: &Context, verb: &str, round: usize) -> Result<f64> {
    let id: Id = task(round)?.parse()?;
    let start = Instant::now();
    let text = match verb {
        "peek" => Payload::new(block_on(read::<PeekTasks>("{}")?.run(cx))?).to_text(),
        "why" => Payload::new(block_on(ExplainTask { id }.run(cx))?).to_text(),
        "claim" => {
            let input = ClaimTask { id: Some(id), ..read("{}")? };
            Payload::new(block_on(input.run(cx))?).to_text()
        }
        _ => {
            let input: FinishTask = read(&format!("{{\"id\":\"{}\"}}", id.into_inner()))?;
            Payload::new(block_on(input.run(cx))?).to_text()
        }
    };
    let time = micros(start.elapsed());
    drop(text);
    Ok(time)
}

/// `rota mcp` and the pipes to it.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: String,
}

impl Server {
    fn start(rota: &Path, database: &Path) -> Result<Self> {
        let mut command = Command::new(rota);
        command.args(["mcp", "--agent", "bench", "--store", &format!("sqlite:{}", database.display())]);
        command.env_remove("ROTA_STORE").env_remove("ROTA_CONFIG");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take().ok_or("no pipe")?, child.stdout.take().ok_or("no pipe")?);
        let mut server = Self { child, input, output: BufReader::new(output), line: String::new() };
        let client = json!({"name": "rota-benches", "version": "1"});
        let params = json!({"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": client});
        server.ask(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}))?;
        writeln!(server.input, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(server)
    }

    fn ask(&mut self, message: &Value) -> Result<()> {
        let message = format!("{message}\n");
        self.input.write_all(message.as_bytes())?;
        self.line.clear();
        self.output.read_line(&mut self.line)?;
        Ok(())
    }

    fn time(&mut self, verb: &str, round: usize) -> Result<f64> {
        let (tool, arguments) = match verb {
            "peek" => ("rota_task_peek", json!({})),
            "why" => ("rota_why", json!({"id": task(round)?})),
            "claim" => ("rota_task_claim", json!({"id": task(round)?})),
            _ => ("rota_task_done", json!({"id": task(round)?})),
        };
        let params = json!({"name": tool, "arguments": arguments});
        let start = Instant::now();
        self.ask(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))?;
        let time = micros(start.elapsed());
        if !self.line.contains("\"isError\":false") {
            return Err(format!("{tool}: {}", self.line).into());
        }
        Ok(time)
    }

    fn end(mut self) -> Result<()> {
        drop(self.input);
        self.child.wait()?;
        Ok(())
    }
}
