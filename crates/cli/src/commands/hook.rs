//! `rota hook`: what an agent's hooks run. It reads the event on standard input, and like `rota prime` it is silent
//! about everything that goes wrong: a scheduler that is out of reach must not disturb a session.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use rota_core::transition::{Command, RateLimit};
use rota_core::{Caller, LeaseId};
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::settle::{Settle, Step};
use rota_verbs::settle::ReleaseTask;
use rota_verbs::{TaskPayload, checked_name};
use serde::Deserialize;
use serde_json::json;

use super::prime;
use crate::agent_session::{agent_name, is_plain};
use crate::args::Common;
use crate::args_setup::HookArgs;
use crate::backend::Backend;
use crate::errors::CliResult;
use crate::{locate, output};

/// The most that is read of an event; the text of the last message is in it.
const MAX_EVENT_BYTES: u64 = 4 << 20;

/// The fields of an event that matter here, as Claude Code and Codex write them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    session_id: String,
    /// Whether the agent already goes on because a Stop hook told it to.
    stop_hook_active: bool,
}

pub fn run(common: &Common, args: HookArgs) -> CliResult<ExitCode> {
    let answer = prime::within_timeout(common, move |common| answer(common, &args));
    output::print(&answer.unwrap_or_default())?;
    Ok(ExitCode::SUCCESS)
}

fn answer(common: &Common, args: &HookArgs) -> CliResult<String> {
    let event = read_event();
    let mut common = common.clone();
    if locate::agent(&common)?.is_none() && is_plain(&event.session_id) {
        common.agent = Some(agent_name(&args.client, &event.session_id));
    }
    if args.event == "session-start" {
        return prime::text(&common);
    }
    // An agent that Rota started has a runner, which settles its task.
    let has_runner = locate::variable("ROTA_LEASE")?.is_some();
    let agent = checked_name("agent", locate::agent(&common)?)?;
    let Some(agent) = agent.filter(|_| !has_runner) else { return Ok(String::new()) };
    if !prime::is_store_there(&common)? {
        return Ok(String::new());
    }
    let backend = locate::backend(&common)?;
    let held = prime::held_by(&backend, &agent)?;
    match args.event.as_str() {
        "session-end" => {
            held.iter().for_each(|task| release(&backend, task));
        }
        "stop-failure" => held.iter().for_each(|task| end_rate_limited(&backend, task)),
        "stop" if !event.stop_hook_active && !held.is_empty() => return Ok(reminder(&held)),
        _ => {}
    }
    Ok(String::new())
}

fn read_event() -> Event {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Event::default();
    }
    let mut bytes = Vec::new();
    let read = stdin.lock().take(MAX_EVENT_BYTES).read_to_end(&mut bytes);
    read.ok().and_then(|_| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn release(backend: &Backend, task: &TaskPayload) {
    // One that is refused is not held any more.
    let _released = backend.ask(ReleaseTask { id: task.id.clone().into() });
}

/// Settles as rate limited: no attempt is counted, and the task waits. A server has no verb for it and releases.
fn end_rate_limited(backend: &Backend, task: &TaskPayload) {
    let lease = task.lease_id.as_deref().and_then(|lease| LeaseId::parse(lease).ok());
    let (Backend::Store(cx), Some(lease)) = (backend, lease) else { return release(backend, task) };
    let command = Command::RateLimit { caller: Caller::lease(lease), limit: RateLimit::default() };
    let call = Call {
        actor: cx.agent.clone(),
        now: cx.now,
        allow_future: cx.allow_future,
        ..Call::in_scope(&cx.scope)
    };
    let steps = vec![Step { id: task.id.clone(), command }];
    let _settled = crate::block_on(cx.store.perform(&Settle { call, steps, then: None }));
}

/// Lets the agent go on, once, with a reason.
fn reminder(held: &[TaskPayload]) -> String {
    let tasks: Vec<String> = held.iter().map(prime::held_line).collect();
    let reason = format!(
        "You still hold {}. Settle it before you stop: done if it is finished, fail with a reason if it cannot be done, \
         release if you stop early.",
        tasks.join(", ")
    );
    json!({"decision": "block", "reason": reason}).to_string() + "\n"
}
