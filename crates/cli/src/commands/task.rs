//! `rota task`: every verb on tasks.

use std::io::Read;
use std::process::ExitCode;

use rota_core::Refusal;
use rota_core::text::escaped;
use rota_verbs::agent::RegisterAgent;
use rota_verbs::block::Edge;
use rota_verbs::delete::DeleteTask;
use rota_verbs::plan_status::PlanStatus;
use rota_verbs::plan_sync::SyncPlan;
use rota_verbs::settle::FinishTask;
use rota_verbs::update::UpdateTask;
use rota_verbs::{TaskPayload, Verb};

use super::{help_of, show, usage};
use crate::args::{AgentArgs, AgentCommand, Common, DeleteArgs, ListArgs, TaskArgs, TaskCommand};
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

pub fn run(common: &Common, args: TaskArgs) -> CliResult<ExitCode> {
    let Some(command) = args.command else {
        return Err(CliError::Usage { message: "missing command".into(), usage: Some(help_of(&["task"])) });
    };
    match command {
        TaskCommand::Create(input) => show(common, input, |task| format!("{}\n", escaped(task.id.as_str()))),
        TaskCommand::Peek(input) => show(common, input, |list| output::markdown::tasks(&list.tasks)),
        TaskCommand::Claim(input) => show(common, input, output::markdown::claimed),
        TaskCommand::Renew(input) => moved(common, "renewed", input),
        TaskCommand::Done(input) => done(common, input),
        TaskCommand::Fail(input) => moved(common, "failed", input),
        TaskCommand::Release(input) => moved(common, "released", input),
        TaskCommand::Park(input) => moved(common, "parked", input),
        TaskCommand::Reset(input) => moved(common, "reset", input),
        TaskCommand::Pause(input) => moved(common, "paused", input),
        TaskCommand::Resume(input) => moved(common, "resumed", input),
        TaskCommand::Undelete(input) => moved(common, "undeleted", input),
        TaskCommand::Block(input) => show(common, input, |edge| linked("blocked", edge, "by")),
        TaskCommand::Unblock(input) => show(common, input, |edge| linked("unblocked", edge, "from")),
        TaskCommand::PlanSync(input) => plan_sync(common, input),
        TaskCommand::PlanStatus(input) => show(common, input, status_line),
        TaskCommand::List(args) => list(common, args),
        TaskCommand::Show(input) => show(common, input, output::show::text),
        TaskCommand::Deps(input) => show(common, input, output::show::deps),
        TaskCommand::Attempts(input) => show(common, input, output::table::attempts),
        TaskCommand::Update(input) => update(common, input),
        TaskCommand::Delete(args) => delete(common, args),
        TaskCommand::Agent(args) => agent(common, args),
    }
}

fn moved<V: Verb<Payload = TaskPayload>>(common: &Common, word: &str, input: V) -> CliResult<ExitCode> {
    show(common, input, |task| format!("{word} {}\n", escaped(task.id.as_str())))
}

fn done(common: &Common, input: FinishTask) -> CliResult<ExitCode> {
    let asked_next = input.next;
    let finished = super::ask(common, input)?;
    let has_next = finished.next.is_some();
    let code = output::emit(common.json, finished, |finished| {
        let next = finished.next.as_ref().map(output::markdown::claimed).unwrap_or_default();
        format!("done {}\n{next}", escaped(finished.task.id.as_str()))
    })?;
    if asked_next && !has_next {
        output::note(&Refusal::NothingEligible.to_string())?;
    }
    Ok(code)
}

fn linked(verb: &str, edge: &Edge, preposition: &str) -> String {
    format!("{verb} {} {preposition} {}\n", escaped(edge.id.as_str()), escaped(edge.by.as_str()))
}

fn plan_sync(common: &Common, mut input: SyncPlan) -> CliResult<ExitCode> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .read_to_end(&mut bytes)
        .map_err(|error| CliError::Io(format!("standard input: {error}")))?;
    input.plan =
        String::from_utf8(bytes).map_err(|error| match rota_core::plan_sync::read(error.as_bytes()) {
            Err(refusal) => CliError::from(refusal),
            Ok(_) => CliError::Io("standard input is not valid UTF-8".to_owned()),
        })?;
    let synced = super::ask(common, input)?;
    if !synced.unknown_keys.is_empty() {
        let keys: Vec<&str> = synced.unknown_keys.iter().map(String::as_str).collect();
        output::warn(&format!("unknown keys ignored: {}", keys.join(", ")))?;
    }
    output::emit(common.json, synced, |counts| {
        format!(
            "inserted: {}, updated: {}, deleted: {}, skipped (done): {}\n",
            counts.inserted, counts.updated, counts.deleted, counts.skipped_done
        )
    })
}

fn status_line(status: &PlanStatus) -> String {
    let PlanStatus { open, active, done, blocked, deleted, parked, failed, paused, invalidated } = status;
    let mut line = format!("{open} open, {active} active, {done} done, {blocked} blocked, {deleted} deleted");
    for (count, word) in
        [(parked, "parked"), (failed, "failed"), (paused, "paused"), (invalidated, "invalidated")]
    {
        if *count > 0 {
            line.push_str(&format!(", {count} {word}"));
        }
    }
    line.push('\n');
    line
}

fn list(common: &Common, args: ListArgs) -> CliResult<ExitCode> {
    if args.input.all && args.input.status.is_some() {
        return Err(usage(&["task", "list"], "--all and --status are mutually exclusive"));
    }
    show(common, args.input, |list| {
        if args.markdown { output::markdown::tasks(&list.tasks) } else { output::table::tasks(&list.tasks) }
    })
}

fn update(common: &Common, input: UpdateTask) -> CliResult<ExitCode> {
    if input.is_empty() {
        return Err(usage(&["task", "update"], "no fields to update"));
    }
    moved(common, "updated", input)
}

fn delete(common: &Common, args: DeleteArgs) -> CliResult<ExitCode> {
    let DeleteArgs { id, input, confirm } = args;
    let filtered = input.status.is_some() || input.all || input.spec.is_some() || input.category.is_some();
    let wrong = |message: &str| Err(usage(&["task", "delete"], message));
    match id {
        Some(_) if filtered || confirm => wrong("a task ID and filters are mutually exclusive"),
        Some(id) => moved(common, "deleted", DeleteTask { id }),
        None if input.all && input.status.is_some() => wrong("--all and --status are mutually exclusive"),
        None if input.all && !confirm => wrong("--all requires --confirm flag"),
        None if !input.all && input.status.is_none() && filtered => {
            wrong("--spec and --category need --status or --all")
        }
        None if !input.all && input.status.is_none() => wrong("missing task ID"),
        None => show(common, input, |count| format!("deleted {} tasks\n", count.deleted)),
    }
}

fn agent(common: &Common, args: AgentArgs) -> CliResult<ExitCode> {
    match args.command {
        None => Err(usage(&["task", "agent"], "missing agent subcommand")),
        Some(AgentCommand::Register) => {
            // The agent is the calling process: this one is gone in a moment.
            let pid = std::os::unix::process::parent_id();
            let host = locate::host()?.parse().map_err(CliError::from)?;
            show(common, RegisterAgent { pid, host }, |agent| format!("{}\n", agent.id))
        }
        Some(AgentCommand::List(input)) => show(common, input, output::table::agents),
        Some(AgentCommand::Deregister(input)) => {
            show(common, input, |gone| format!("deregistered {}\n", escaped(&gone.id)))
        }
    }
}
