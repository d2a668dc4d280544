//! `doctor`: looks through the store, says what is wrong, and repairs what is derived.

use async_trait::async_trait;
use rota_core::TaskId;
use rota_store::intents::Call;
use rota_store::intents::doctor::{Examine, Problem, Repair, Survey};
use rota_store::sqlite::{ClockBehind, LOG_LIMIT_BYTES};
use rota_store::{AnyStore, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::verb::{Route, Verb};
use crate::{Result, Word};

/// How many problems are listed; all are counted.
const LISTED: usize = 1_000;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    /// The schema's number.
    pub schema: i64,
    /// How many scopes were looked at.
    pub scopes: usize,
    /// How many tasks.
    pub tasks: u64,
    /// How many of their events.
    pub events: u64,
    /// How many problems.
    pub total: u64,
    /// How many of them were repaired.
    pub repaired: u64,
    /// What is not wrong, but worth knowing: how the server is set, say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The first of them.
    pub problems: Vec<Finding>,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Which check found it.
    pub check: Word,
    /// Where.
    pub scope: String,
    /// At which task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// What is wrong.
    pub problem: String,
    /// What `--fix` does about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<String>,
    /// Whether that was done.
    pub repaired: bool,
}

impl Findings {
    /// Whether nothing is wrong any more.
    pub fn is_clean(&self) -> bool {
        self.total == self.repaired
    }

    fn add(&mut self, problems: Vec<Problem>, fixed: bool) {
        for Problem { check, scope, task, problem, repair } in problems {
            let repaired = fixed && repair.is_some();
            self.total += 1;
            self.repaired += u64::from(repaired);
            if self.problems.len() < LISTED {
                self.problems.push(Finding { check: check.into(), scope, task, problem, repair, repaired });
            }
        }
    }
}

/// Look through the store, say what is wrong, repair what is derived
///
/// Checks the schema, the database's own integrity, the count of blockers, what is derived from each task, edges
/// and leases, and that the journal folds to the tables. Exit 1 when something is wrong.
///
/// Example: rota doctor --fix
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExamineStore {
    /// Repair what is derived; the journal is never touched
    #[arg(long)]
    #[serde(default)]
    pub fix: bool,
}

#[async_trait]
impl Verb for ExamineStore {
    type Payload = Findings;
    const ROUTE: Route = Route::post("doctor", "/examinations");

    async fn run(self, cx: &Context) -> Result<Findings> {
        doctor(cx, self.fix, |_| {}).await
    }
}

/// Looks through every scope, a page at a time; `progress` hears how many tasks were looked at.
pub async fn doctor(cx: &Context, fix: bool, progress: impl Fn(u64)) -> Result<Findings> {
    let call = |scope: &str| Call { scope: scope.to_owned(), ..cx.call() };
    let first = cx.store.perform(&Survey { call: call(&cx.scope), whole: true }).await?;
    let mut found = Findings { schema: first.schema, scopes: first.scopes.len(), ..Findings::default() };
    found.add(first.problems.into_iter().filter(|problem| problem.check == "integrity").collect(), false);
    found.add(files(cx)?, false);
    found.notes = notes(cx).await?;
    for scope in &first.scopes {
        let strays = cx.store.perform(&Survey { call: call(scope), whole: false }).await?.problems;
        let mends = fix && strays.iter().any(|problem| problem.repair.is_some());
        found.add(strays, fix);
        if mends {
            cx.store.perform(&Repair { call: call(scope), tasks: Vec::new() }).await?;
        }
        let mut after = Some(0);
        while let Some(from) = after {
            let page = cx.store.perform(&Examine { call: call(scope), after: from }).await?;
            (found.tasks, found.events) =
                (found.tasks + page.tasks as u64, found.events + page.events as u64);
            after = page.last;
            let repairable = page.problems.iter().filter(|problem| problem.repair.is_some());
            let mut tasks: Vec<TaskId> = repairable.filter_map(|problem| problem.task.clone()).collect();
            tasks.dedup();
            found.add(page.problems, fix);
            if fix && !tasks.is_empty() {
                cx.store.perform(&Repair { call: call(scope), tasks }).await?;
            }
            progress(found.tasks);
        }
    }
    Ok(found)
}

/// What is wrong with the files of a database rather than with what is in them.
fn files(cx: &Context) -> Result<Vec<Problem>> {
    let AnyStore::Sqlite(store) = &cx.store else { return Ok(Vec::new()) };
    let problem =
        |check, problem| Problem { check, scope: cx.scope.clone(), task: None, problem, repair: None };
    let mut problems = Vec::new();
    if let Some(ClockBehind { newest, host }) = store.clock_behind()?.filter(ClockBehind::is_far) {
        let text = format!(
            "the newest entry was written at {newest}, but this host's clock says {host}: correct the clock or, if \
             the entry's time is wrong, run `rota doctor --accept-clock`"
        );
        problems.push(problem("clock", text));
    }
    let log_bytes = store.log_bytes();
    if log_bytes > LOG_LIMIT_BYTES {
        let text = format!(
            "the log {}-wal has {} MB: a program keeps reading an old state of the database",
            store.path().display(),
            log_bytes / 1_024 / 1_024
        );
        problems.push(problem("log", text));
    }
    Ok(problems)
}

async fn notes(cx: &Context) -> Result<Vec<String>> {
    let AnyStore::Postgres(store) = &cx.store else { return Ok(Vec::new()) };
    let replication = store.replication().await?;
    if replication.keeps_what_was_acknowledged() {
        return Ok(Vec::new());
    }
    Ok(vec![format!(
        "synchronous_standby_names is '{}' and synchronous_commit is {}: if a standby is promoted, results that were \
         acknowledged can be gone and fences can be issued a second time. To avoid it, name a standby in \
         synchronous_standby_names and set synchronous_commit to on or remote_apply",
        replication.standby_names, replication.commit
    )])
}

/// From now on the host's clock counts, although it is behind what was written; by how much it was.
pub fn accept_clock(cx: &Context) -> Result<Option<ClockBehind>> {
    match &cx.store {
        AnyStore::Sqlite(store) => Ok(store.accept_clock()?),
        // A server has a clock of its own, and the memory forgets.
        _ => Ok(None),
    }
}
