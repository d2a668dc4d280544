//! `rota log [--task ID] [-n N] [-f]`

use std::process::ExitCode;
use std::time::Duration;

use crate::block_on;
use rota_store::Cursor;
use rota_verbs::Payload;
use rota_verbs::log::{EventPayload, Followed};
use rota_verbs::table::{FollowJournal, ReadJournal, TailJournal};

use super::number;
use crate::args::{Common, LogArgs};
use crate::desk::Desk;
use crate::errors::CliResult;
use crate::{locate, output};

/// How long a follower waits to be told before it looks by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub fn run(common: &Common, args: LogArgs) -> CliResult<ExitCode> {
    let desk = locate::desk(common)?;
    let limit = args.limit.as_deref().map(|text| number("-n", text)).transpose()?;
    if args.follow {
        return go_on(&desk, common, args.task.as_deref(), limit);
    }
    let events = desk.ask(ReadJournal { task: args.task, limit })?;
    output::emit(common.json, events, output::log::text)
}

fn go_on(desk: &Desk, common: &Common, task: Option<&str>, limit: Option<usize>) -> CliResult<ExitCode> {
    let task = task.map(str::to_owned);
    let newest = desk.ask(TailJournal { task: task.clone(), limit: limit.unwrap_or(0) })?;
    let mut cursor = if limit.is_some() { print(common, newest)? } else { Cursor::START };
    let mut watch = match desk {
        Desk::Store(cx) => Some(block_on(cx.store.watch())?),
        Desk::Server(_) => None,
    };
    loop {
        let behind = desk.ask(FollowJournal { task: task.clone(), after: cursor.to_string() })?;
        let at_end = behind.at_end;
        cursor = print(common, behind)?;
        if at_end {
            match &mut watch {
                Some(watch) => block_on(watch.wait(LOOK_AGAIN))?,
                None => std::thread::sleep(LOOK_AGAIN),
            }
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
