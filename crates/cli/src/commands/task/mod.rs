//! `rota task`: every verb on tasks.

mod agent;
mod claim;
mod create;
mod delete;
mod list;
mod plan;
mod settle;
mod update;

use std::process::ExitCode;

use rota_verbs::Verb;

use super::help_of;
use crate::args::{Common, TaskArgs, TaskCommand};
use crate::errors::{CliError, CliResult};
use crate::locate;

/// What a verb of `rota task` works with.
pub(super) struct Run<'a> {
    common: &'a Common,
}

impl Run<'_> {
    fn ask<V: Verb>(&self, input: V) -> CliResult<V::Payload> {
        locate::desk(self.common)?.ask(input)
    }

    fn json(&self) -> bool {
        self.common.json
    }
}

pub fn run(common: &Common, args: TaskArgs) -> CliResult<ExitCode> {
    let Some(command) = args.command else {
        return Err(CliError::Usage { message: "missing command".into(), usage: Some(help_of(&["task"])) });
    };
    let verb = verb(&command);
    dispatch(&Run { common }, command).map_err(|error| error.with_usage_of(&["task", verb]))
}

fn dispatch(run: &Run<'_>, command: TaskCommand) -> CliResult<ExitCode> {
    match command {
        TaskCommand::Create(args) => create::run(run, args),
        TaskCommand::Peek(args) => list::peek(run, args),
        TaskCommand::Claim(args) => claim::run(run, args),
        TaskCommand::Renew(args) => settle::renew(run, args),
        TaskCommand::Done(args) => settle::done(run, args),
        TaskCommand::Fail(args) => settle::fail(run, args),
        TaskCommand::Release(args) => settle::release(run, args),
        TaskCommand::Park(args) => settle::park(run, args),
        TaskCommand::Reset(args) => settle::reset(run, args),
        TaskCommand::Pause(args) => settle::pause(run, args),
        TaskCommand::Resume(args) => settle::resume(run, args),
        TaskCommand::Undelete(args) => settle::undelete(run, args),
        TaskCommand::Block(args) => plan::block(run, args),
        TaskCommand::Unblock(args) => plan::unblock(run, args),
        TaskCommand::PlanSync(args) => plan::sync(run, args),
        TaskCommand::PlanStatus(args) => plan::status(run, args),
        TaskCommand::List(args) => list::list(run, args),
        TaskCommand::Show(args) => list::show(run, args),
        TaskCommand::Deps(args) => list::deps(run, args),
        TaskCommand::Attempts(args) => list::attempts(run, args),
        TaskCommand::Update(args) => update::run(run, args),
        TaskCommand::Delete(args) => delete::run(run, args),
        TaskCommand::Agent(args) => agent::run(run, args),
    }
}

/// The word of a verb, for its usage line.
fn verb(command: &TaskCommand) -> &'static str {
    match command {
        TaskCommand::Create(_) => "create",
        TaskCommand::Peek(_) => "peek",
        TaskCommand::Claim(_) => "claim",
        TaskCommand::Renew(_) => "renew",
        TaskCommand::Done(_) => "done",
        TaskCommand::Fail(_) => "fail",
        TaskCommand::Release(_) => "release",
        TaskCommand::Park(_) => "park",
        TaskCommand::Reset(_) => "reset",
        TaskCommand::Pause(_) => "pause",
        TaskCommand::Resume(_) => "resume",
        TaskCommand::Undelete(_) => "undelete",
        TaskCommand::Block(_) => "block",
        TaskCommand::Unblock(_) => "unblock",
        TaskCommand::PlanSync(_) => "plan-sync",
        TaskCommand::PlanStatus(_) => "plan-status",
        TaskCommand::List(_) => "list",
        TaskCommand::Show(_) => "show",
        TaskCommand::Deps(_) => "deps",
        TaskCommand::Attempts(_) => "attempts",
        TaskCommand::Update(_) => "update",
        TaskCommand::Delete(_) => "delete",
        TaskCommand::Agent(_) => "agent",
    }
}

/// A JSON array of texts.
fn steps(flag: &str, text: &str) -> CliResult<Vec<String>> {
    serde_json::from_str(text)
        .map_err(|error| CliError::value(format!("{flag} (steps) must be a JSON array of texts: {error}")))
}
