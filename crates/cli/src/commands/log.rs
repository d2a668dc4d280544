//! `rota log [--task ID] [-n N] [-f]`

use std::process::ExitCode;
use std::time::Duration;

use rota_store::{AnyStore, Cursor, block_on};
use rota_verbs::log::{EventPayload, Followed, Log, follow, log, tail};
use rota_verbs::{Context, Payload};

use super::number;
use crate::args::{Common, LogArgs};
use crate::errors::CliResult;
use crate::{locate, output};

/// How long a follower waits to be told before it looks by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub fn run(common: &Common, args: LogArgs) -> CliResult<ExitCode> {
    let cx = locate::context(common)?;
    let limit = args.limit.as_deref().map(|text| number("-n", text)).transpose()?;
    if args.follow {
        return go_on(&cx, common, args.task.as_deref(), limit);
    }
    let events = block_on(log(&cx, Log { task: args.task, after: 0, limit, newest: limit.is_some() }))?;
    output::emit(common.json, events, output::log::text)
}

fn go_on(
    cx: &Context<AnyStore>,
    common: &Common,
    task: Option<&str>,
    limit: Option<usize>,
) -> CliResult<ExitCode> {
    let newest = block_on(tail(cx, task, limit.unwrap_or(0)))?;
    let mut cursor = if limit.is_some() { print(common, newest)? } else { Cursor::START };
    let mut watch = block_on(cx.store.watch())?;
    loop {
        let behind = block_on(follow(cx, task, cursor))?;
        let at_end = behind.at_end;
        cursor = print(common, behind)?;
        if at_end {
            block_on(watch.wait(LOOK_AGAIN))?;
        }
    }
}

fn print(common: &Common, followed: Followed) -> CliResult<Cursor> {
    followed.events.into_iter().try_for_each(|event| line(common, event))?;
    Ok(followed.cursor)
}

/// One event per line, also as JSON, so that a reader can act on each.
fn line(common: &Common, event: EventPayload) -> CliResult<()> {
    let text = if common.json { Payload::new(event).to_line() } else { output::log::line(&event) };
    output::print(&text)
}
