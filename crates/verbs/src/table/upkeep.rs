//! `rota log`, `rota doctor`, `rota prune`, and what shows a store.

use rota_store::Cursor;

use super::{is_false, verbs};
use crate::context::bad_value;
use crate::doctor::{self, Findings};
use crate::log::{self, Events, Followed};
use crate::overview::{self, Overview, TaskPage};
use crate::prune::{self, Pruned};

verbs! {
    /// Read the journal, oldest first
    ReadJournal {
        /// Only this task's events.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
        /// Only the newest so many.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    } => Events, "log" Get "/journal" WithHint, |cx, it| {
        let newest = it.limit.is_some();
        log::log(cx, log::Log { task: it.task, after: 0, limit: it.limit, newest }).await
    };

    /// Read the newest events, and learn where to go on from
    TailJournal {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
        #[serde(default)]
        limit: usize,
    } => Followed, "log tail" Get "/journal/tail" WithHint, |cx, it| log::tail(cx, it.task.as_deref(), it.limit).await;

    /// Read on behind a cursor
    FollowJournal {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
        after: String,
    } => Followed, "log follow" Get "/journal/behind" WithHint, |cx, it| {
        let after: Cursor = it.after.parse().map_err(|error: rota_store::BadCursor| bad_value(error.to_string()))?;
        log::follow(cx, it.task.as_deref(), after).await
    };

    /// See how many tasks of each queue stand where, which upstreams are blocked, and what was used today
    ShowOverview {} => Overview, "overview" Get "/overview" WithHint, |cx, _it| overview::overview(cx).await;

    /// Read the tasks of every queue in pages, by insertion
    PageTasks {
        #[serde(default)]
        after: u64,
        #[serde(default = "hundred")]
        limit: usize,
    } => TaskPage, "task page" Get "/task-pages" WithHint, |cx, it| overview::page(cx, it.after, it.limit).await;

    /// Look through the store, say what is wrong, repair what is derived
    ExamineStore {
        #[serde(default, skip_serializing_if = "is_false")]
        fix: bool,
    } => Findings, "doctor" Post "/examinations" WithHint, |cx, it| doctor::doctor(cx, it.fix, |_| {}).await;

    /// Take out old finished tasks and the old part of the journal
    PruneStore {
        older_than_ms: u64,
        #[serde(default, skip_serializing_if = "is_false")]
        dry_run: bool,
    } => Pruned, "prune" Post "/prunings" WithHint, |cx, it| {
        prune::prune(cx, i64::try_from(it.older_than_ms).unwrap_or(i64::MAX), it.dry_run).await
    };
}

fn hundred() -> usize {
    100
}
