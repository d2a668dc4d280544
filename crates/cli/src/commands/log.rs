//! `rota log [--task ID] [-n N] [-f]`

use std::process::ExitCode;
use std::time::Duration;

use crate::block_on;
use rota_store::Cursor;
use rota_verbs::Payload;
use rota_verbs::input::Count;
use rota_verbs::log::{EventPayload, FollowJournal, Followed, ReadJournal, TailJournal};

use crate::args::{Common, LogArgs};
use crate::backend::Backend;
use crate::errors::CliResult;
use crate::{locate, output};

/// How long a follower waits to be told before it looks by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub fn run(common: &Common, args: LogArgs) -> CliResult<ExitCode> {
    let backend = locate::backend(common)?;
    if args.follow {
        return go_on(&backend, common, args.input);
    }
    let events = backend.ask(args.input)?;
    output::emit(common.json, events, output::log::text)
}

fn go_on(backend: &Backend, common: &Common, input: ReadJournal) -> CliResult<ExitCode> {
    let (task, limit) = (input.task, input.limit.map(Count::get));
    let newest = backend.ask(TailJournal { task: task.clone(), limit: limit.unwrap_or(0) })?;
    let mut cursor = if limit.is_some() { print(common, newest)? } else { Cursor::START };
    let mut watch = match backend {
        Backend::Store(cx) => Some(block_on(cx.store.watch())?),
        Backend::Server(_) => None,
    };
    loop {
        let behind = backend.ask(FollowJournal { task: task.clone(), after: cursor.into() })?;
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
