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

use rota_store::sqlite::SqliteStore;
use rota_verbs::Context;

use super::help_of;
use crate::args::{Common, TaskArgs, TaskCommand};
use crate::errors::{CliError, CliResult};
use crate::locate;

/// What a verb of `rota task` works with.
pub(super) struct Run<'a> {
    common: &'a Common,
    /// The verb, for messages.
    verb: &'static str,
}

impl Run<'_> {
    fn context(&self) -> CliResult<Context<SqliteStore>> {
        locate::context(self.common)
    }

    fn json(&self) -> bool {
        self.common.json
    }

    /// A usage error with this verb's usage line.
    fn usage(&self, message: impl Into<String>) -> CliError {
        let help = help_of(&["task", self.verb]);
        let usage = help.lines().find(|line| line.starts_with("Usage:")).map(str::to_owned);
        CliError::Usage { message: message.into(), usage }
    }

    /// The id, or the message that it is missing.
    fn id(&self, id: Option<String>) -> CliResult<String> {
        id.filter(|id| !id.is_empty()).ok_or_else(|| self.usage("missing task ID"))
    }
}

pub fn run(common: &Common, args: TaskArgs) -> CliResult<ExitCode> {
    let Some(command) = args.command else {
        return Err(CliError::Usage { message: "missing command".into(), usage: Some(help_of(&["task"])) });
    };
    let with = |verb| Run { common, verb };
    match command {
        TaskCommand::Create(args) => create::run(&with("create"), args),
        TaskCommand::Peek(args) => list::peek(&with("peek"), args),
        TaskCommand::Claim(args) => claim::run(&with("claim"), args),
        TaskCommand::Renew(args) => settle::renew(&with("renew"), args),
        TaskCommand::Done(args) => settle::done(&with("done"), args),
        TaskCommand::Fail(args) => settle::fail(&with("fail"), args),
        TaskCommand::Release(args) => settle::release(&with("release"), args),
        TaskCommand::Park(args) => settle::park(&with("park"), args),
        TaskCommand::Reset(args) => settle::reset(&with("reset"), args),
        TaskCommand::Pause(args) => settle::pause(&with("pause"), args),
        TaskCommand::Resume(args) => settle::resume(&with("resume"), args),
        TaskCommand::Undelete(args) => settle::undelete(&with("undelete"), args),
        TaskCommand::Block(args) => plan::block(&with("block"), args),
        TaskCommand::Unblock(args) => plan::unblock(&with("unblock"), args),
        TaskCommand::PlanSync(args) => plan::sync(&with("plan-sync"), args),
        TaskCommand::PlanStatus(args) => plan::status(&with("plan-status"), args),
        TaskCommand::List(args) => list::list(&with("list"), args),
        TaskCommand::Show(args) => list::show(&with("show"), args),
        TaskCommand::Deps(args) => list::deps(&with("deps"), args),
        TaskCommand::Attempts(args) => list::attempts(&with("attempts"), args),
        TaskCommand::Update(args) => update::run(&with("update"), args),
        TaskCommand::Delete(args) => delete::run(&with("delete"), args),
        TaskCommand::Agent(args) => agent::run(&with("agent"), args),
    }
}

/// A JSON array of texts.
fn steps(flag: &str, text: &str) -> CliResult<Vec<String>> {
    serde_json::from_str(text)
        .map_err(|error| CliError::value(format!("{flag} (steps) must be a JSON array of texts: {error}")))
}
