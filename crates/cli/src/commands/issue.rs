//! `rota issue`: the tracker that is the store itself.

use std::process::ExitCode;

use rota_core::text::escaped;
use rota_verbs::Verb;
use rota_verbs::issues::IssuePayload;
use rota_verbs::table::{
    AddIssue, CloseIssue, CommentIssue, EditIssue, LabelIssue, ListIssues, ReopenIssue, ShowIssue,
};

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
        IssueCommand::Reopen(_) => "reopen",
        IssueCommand::Label(_) => "label",
        IssueCommand::Comment(_) => "comment",
        IssueCommand::Edit(_) => "edit",
    };
    dispatch(common, command).map_err(|error| error.with_usage_of(&["issue", verb]))
}

fn dispatch(common: &Common, command: IssueCommand) -> CliResult<ExitCode> {
    match command {
        IssueCommand::Add(args) => {
            let input = AddIssue { title: args.title, body: args.body, labels: args.label };
            output::emit(common.json, ask(common, input)?, |issue| format!("#{}\n", issue.number))
        }
        IssueCommand::List(args) => {
            output::emit(common.json, ask(common, ListIssues { all: args.all })?, |list| {
                list.issues.iter().map(line).collect()
            })
        }
        IssueCommand::Show(args) => {
            output::emit(common.json, ask(common, ShowIssue { number: args.number })?, shown)
        }
        IssueCommand::Close(args) => {
            output::emit(common.json, ask(common, CloseIssue { number: args.number })?, |issue| {
                format!("closed #{}\n", issue.number)
            })
        }
        IssueCommand::Reopen(args) => {
            output::emit(common.json, ask(common, ReopenIssue { number: args.number })?, |issue| {
                format!("reopened #{}\n", issue.number)
            })
        }
        IssueCommand::Label(args) => {
            let input = LabelIssue { number: args.number, add: args.add, remove: args.remove };
            output::emit(common.json, ask(common, input)?, line)
        }
        IssueCommand::Comment(args) => {
            let input = CommentIssue { number: args.number, body: args.body };
            output::emit(common.json, ask(common, input)?, |issue| {
                format!("commented on #{}\n", issue.number)
            })
        }
        IssueCommand::Edit(args) => {
            let input = EditIssue { number: args.number, title: args.title, body: args.body };
            output::emit(common.json, ask(common, input)?, line)
        }
    }
}

fn ask<V: Verb>(common: &Common, input: V) -> CliResult<V::Payload> {
    locate::desk(common)?.ask(input)
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
