//! The loops as a tree, at the end.

use std::collections::BTreeMap;

use rota_core::text::escaped;
use rota_core::{Front, Task, TaskId};
use rota_daemon::manager::QUEUE;
use rota_store::Store;
use rota_store::intents::read::List;
use rota_store::{AnyStore, block_on};
use rota_verbs::Context;

use crate::errors::CliResult;

/// More loops than this are counted instead of shown.
const LOOPS: usize = 200;

/// Every loop beneath its parent, with where it stands.
pub fn text(cx: &Context<AnyStore>) -> CliResult<String> {
    let call = rota_store::intents::Call::in_scope(&cx.scope);
    let list = List { call, queue: QUEUE.to_owned(), statuses: Vec::new(), assignee: None };
    let views = block_on(cx.store.perform(&list))?;
    let total = views.len();
    let mut children: BTreeMap<Option<TaskId>, Vec<Task>> = BTreeMap::new();
    for view in views {
        children.entry(view.task.parent.clone()).or_default().push(view.task);
    }
    let mut lines = Vec::new();
    walk(&children, &None, 0, &mut lines);
    let shown = lines.len().min(LOOPS);
    let mut text: String = lines.drain(..shown).map(|line| line + "\n").collect();
    if total > shown {
        text.push_str(&format!("and {} more: rota loop tree\n", total - shown));
    }
    Ok(text)
}

fn walk(
    children: &BTreeMap<Option<TaskId>, Vec<Task>>,
    of: &Option<TaskId>,
    level: usize,
    lines: &mut Vec<String>,
) {
    let mut tasks: Vec<&Task> = children.get(of).into_iter().flatten().collect();
    tasks.sort_by_key(|task| task.seq);
    for task in tasks {
        let status = task.status.word_for(Front::Loop, true);
        let kind = task.kind.as_deref().unwrap_or("-");
        let tries =
            if task.iteration > 1 { format!(" after {} iterations", task.iteration) } else { String::new() };
        let why = task.parked_reason.as_ref().or(task.fail_reason.as_ref()).filter(|_| status != "complete");
        let why = why.map_or(String::new(), |why| format!(" ({})", escaped(why)));
        let (indent, id) = ("  ".repeat(level), escaped(task.id.as_str()));
        lines.push(format!("{indent}{id} [{}] {status}{tries}{why}", escaped(kind)));
        walk(children, &Some(task.id.clone()), level + 1, lines);
    }
}
