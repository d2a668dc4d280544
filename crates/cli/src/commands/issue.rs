//! `rota issue`: the tracker that is the store itself.

use std::process::ExitCode;

use rota_core::text::escaped;
use rota_store::block_on;
use rota_verbs::issues::{self, AddIssue, IssuePayload};

use super::help_of;
use crate::args::Common;
use crate::args_supervise::{IssueArgs, IssueCommand};
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

pub fn run(common: &Common, args: IssueArgs) -> CliResult<ExitCode> {
    let Some(command) = args.command else {
        return Err(CliError::Usage { message: "missing command".into(), usage: Some(help_of(&["issue"])) });
    };
    let verb = match &command {
        IssueCommand::Add(_) => "add",
        IssueCommand::List(_) => "list",
        IssueCommand::Show(_) => "show",
        IssueCommand::Close(_) => "close",
    };
    dispatch(common, command).map_err(|error| error.with_usage_of(&["issue", verb]))
}

fn dispatch(common: &Common, command: IssueCommand) -> CliResult<ExitCode> {
    match command {
        IssueCommand::Add(args) => {
            let input = AddIssue { title: args.title, body: args.body, labels: args.label };
            let cx = locate::context(common)?;
            output::emit(common.json, block_on(issues::add(&cx, input))?, |issue| {
                format!("#{}\n", issue.number)
            })
        }
        IssueCommand::List(args) => {
            let cx = locate::context(common)?;
            output::emit(common.json, block_on(issues::list(&cx, args.all))?, |list| {
                list.issues.iter().map(line).collect()
            })
        }
        IssueCommand::Show(args) => {
            let number = number(&args.number)?;
            let cx = locate::context(common)?;
            output::emit(common.json, block_on(issues::show(&cx, number))?, shown)
        }
        IssueCommand::Close(args) => {
            let number = number(&args.number)?;
            let cx = locate::context(common)?;
            output::emit(common.json, block_on(issues::close(&cx, number))?, |issue| {
                format!("closed #{}\n", issue.number)
            })
        }
    }
}

/// `3` or `#3`.
fn number(text: &str) -> CliResult<u64> {
    let digits = text.strip_prefix('#').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|number| is_number && *number > 0);
    number.ok_or_else(|| CliError::value(format!("the number of an issue counts from 1, got: {text}")))
}

fn line(issue: &IssuePayload) -> String {
    let labels: String = issue.labels.iter().map(|label| format!(" [{}]", escaped(label))).collect();
    format!("#{} {} {}{labels}\n", issue.number, issue.state, escaped(&issue.title))
}

fn shown(issue: &IssuePayload) -> String {
    let mut text = line(issue);
    text.push_str(&format!("task {} ({})", issue.task, issue.status));
    if let Some(assignee) = &issue.assignee {
        text.push_str(&format!(", held by {}", escaped(assignee)));
    }
    text.push('\n');
    for part in issue.body.iter().chain(&issue.comments) {
        text.push('\n');
        text.extend(part.lines().map(|line| format!("{}\n", escaped(line))));
    }
    text
}
