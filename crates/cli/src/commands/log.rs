//! `rota log [--task ID] [-n N] [-f]`

use std::process::ExitCode;
use std::time::Duration;

use rota_store::AnyStore;
use rota_verbs::log::{EventPayload, Log, log};
use rota_verbs::{Context, Payload};

use super::number;
use crate::args::{Common, LogArgs};
use crate::errors::CliResult;
use crate::{locate, output};

/// How often a follower looks for new events of a store that cannot tell.
const POLL: Duration = Duration::from_millis(200);

pub fn run(common: &Common, args: LogArgs) -> CliResult<ExitCode> {
    let cx = locate::context(common)?;
    let limit = args.limit.as_deref().map(|text| number("-n", text)).transpose()?;
    let first = Log { task: args.task.clone(), after: 0, limit, newest: limit.is_some() };
    let events = rota_store::block_on(log(&cx, first))?;
    if !args.follow {
        return output::emit(common.json, events, output::log::text);
    }
    let mut last = 0;
    for event in events.events {
        last = event.seq;
        line(common, event)?;
    }
    follow(&cx, common, args.task, last)
}

fn follow(cx: &Context<AnyStore>, common: &Common, task: Option<String>, from: u64) -> CliResult<ExitCode> {
    let mut after = from;
    loop {
        let next = Log { task: task.clone(), after, limit: Some(1_000), newest: false };
        let events = rota_store::block_on(log(cx, next))?;
        let idle = events.events.is_empty();
        for event in events.events {
            after = event.seq;
            line(common, event)?;
        }
        if idle {
            std::thread::sleep(POLL);
        }
    }
}

/// One event per line, also as JSON, so that a reader can act on each.
fn line(common: &Common, event: EventPayload) -> CliResult<()> {
    let text = if common.json { Payload::new(event).to_line() } else { output::log::line(&event) };
    output::print(&text)
}
