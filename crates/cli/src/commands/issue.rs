//! `rota issue`: the tracker that is the store itself.

use std::process::ExitCode;

use rota_core::text::escaped;
use rota_verbs::issues::IssuePayload;

use super::{help_of, show};
use crate::args::Common;
use crate::args_supervise::{IssueArgs, IssueCommand};
use crate::errors::{CliError, CliResult};

pub fn run(common: &Common, args: IssueArgs) -> CliResult<ExitCode> {
    let Some(command) = args.command else {
        return Err(CliError::Usage { message: "missing command".into(), usage: Some(help_of(&["issue"])) });
    };
    match command {
        IssueCommand::Add(input) => show(common, input, |issue| format!("#{}\n", issue.number)),
        IssueCommand::List(input) => show(common, input, |list| list.issues.iter().map(line).collect()),
        IssueCommand::Show(input) => show(common, input, shown),
        IssueCommand::Close(input) => show(common, input, |issue| format!("closed #{}\n", issue.number)),
        IssueCommand::Reopen(input) => show(common, input, |issue| format!("reopened #{}\n", issue.number)),
        IssueCommand::Label(input) => show(common, input, line),
        IssueCommand::Comment(input) => {
            show(common, input, |issue| format!("commented on #{}\n", issue.number))
        }
        IssueCommand::Edit(input) => show(common, input, line),
    }
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
