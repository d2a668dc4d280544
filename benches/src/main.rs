//! Measuring: ours beside the bare limit, in interleaved rounds of one run, so that a noisy machine is noisy for both.
//!
//! A plain program, never a test: nothing here fails because a machine is slow. `docs/performance.md` has the commands,
//! the targets and the results.

mod agents;
mod backlog;
mod backlog_size;
mod bare;
mod choose;
mod claim_done;
mod cold_start;
mod cores;
mod gateway;
mod loops;
mod mcp;
mod options;
mod plan_sync;
mod postgres;
mod sched_lease;
mod serve;
mod server;
mod stats;
mod supervise;
mod top;
mod verbs;
mod work;
mod worker;

use std::process::ExitCode;

use options::Options;

/// Failures end a benchmark with their text; nobody handles them.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const USAGE: &str = "usage: rota-benches BENCHMARK [--quick] [--folder PATH]

  verbs                        HTTP, rota work and the CLI on both stores beside other queues (needs rota, sqlite3 and
                               benches/peers/install; [--only WORDS] [--baseline PATH] [--sizes])
  claim-done                   a note: the store in process beside a bare rusqlite loop, 1 and 4 processes
  backlog-size [tasks|loops]   the time of a claim from 10,000 to 1,000,000 tasks
  choose [loops|tasks]         choosing among 1,000,000 runnable ones
  cold-start                   rota task peek and claim beside a cold sqlite3 (needs rota and sqlite3)
  mcp                          what MCP over stdio adds to a verb (needs rota)
  gateway                      rota gateway beside nginx, LiteLLM and Portkey (needs rota and nginx; see the docs)
  serve                        rota serve on 1,000,000 tasks: one, a page, /metrics, 200 listeners (needs rota, taskset)
  top                          rota top with 10,000 tasks in a terminal (needs rota and tmux)
  plan-sync                    a plan of 10,000 lines, twice
  sched-lease                  100 leases in one transaction from 10,000 and 1,000,000 entries, and a plan
  work                         rota work -- true beside bare loops that spawn and commit twice (needs rota)
  loops                        rota up: 1,000 loops that do nothing, how soon a child starts, an idle tick (needs rota)
  agents                       rota up with 50 agents and with 1,000,000 tasks: processor, memory, start (needs rota)
  supervise                    an idle cycle of the supervisor on 10,000 open issues (needs git)
  postgres late                what happens to a late worker, beside other queues (needs their install)

--quick shows that it runs, not how fast. Scratch files go beside the program unless --folder says where. ROTA_BIN names
the rota that is measured, otherwise it is the one beside this program.";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let (benchmark, options) = Options::of_process()?;
    match benchmark.as_str() {
        "claim-done" => claim_done::run(&options),
        "backlog-size" => backlog_size::run(&options),
        "choose" => choose::run(&options),
        "cold-start" => cold_start::run(&options),
        "gateway" => gateway::run(&options),
        "bare-serve" => serve::be_bare(&options.rest),
        "bare-hyper" => gateway::be_bare_hyper(&options.rest),
        "gateway-stub" => gateway::be_stub(),
        "mcp" => mcp::run(&options),
        "plan-sync" => plan_sync::run(&options),
        "postgres" => postgres::run(&options),
        "supervise" => supervise::run(&options),
        "sched-lease" => sched_lease::run(&options),
        "serve" => serve::run(&options),
        "agents" => agents::run(&options),
        "loops" => loops::run(&options),
        "agent" => loops::be_agent(&options.rest),
        "top" => top::run(&options),
        "verbs" => verbs::run(&options),
        "work" => work::run(&options),
        "worker" => worker::be_worker(&options.rest),
        _ => Err(USAGE.into()),
    }
}
