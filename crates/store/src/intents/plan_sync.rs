//! Making the backlog agree with a plan, in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use rota_core::event::EventKind;
use rota_core::glob::Globs;
use rota_core::plan_sync::{self, PlanChange, PlanDiff, PlanLine, PlanScope, Stored};
use rota_core::transition::{self, Command};
use rota_core::{Refusal, Task, TaskId};

use super::add::last_fences;
use super::{Call, Cx, edges, find_queue, find_task, write};
use crate::fault::Outcome;
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, Filter, ListFilter, Row, Tx};

/// Applies a plan to a queue: all of it, or nothing and the line that is wrong.
#[derive(Clone, Debug)]
pub struct PlanSync {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// The plan.
    pub lines: Vec<PlanLine>,
    /// Which specs may lose tasks.
    pub specs: Option<Globs>,
    /// Only say what would happen.
    pub dry_run: bool,
}

/// What changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlanCounts {
    /// New and revived tasks.
    pub inserted: usize,
    /// Tasks whose fields or edges changed.
    pub updated: usize,
    /// Tasks the plan no longer has.
    pub deleted: usize,
    /// Done tasks, left alone.
    pub skipped_done: usize,
}

#[async_trait]
impl Intent for PlanSync {
    type Output = PlanCounts;

    fn access(&self) -> Access {
        if self.dry_run { Access::Read } else { Access::Write }
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<PlanCounts> {
        let cx = Cx::open(tx, &self.call).await?;
        if !self.dry_run {
            tx.lock_edges(&cx.scope).await?;
        }
        find_queue(tx, &cx, &self.queue).await?;
        let stored = self.load(tx, &cx).await?;
        let plan = PlanScope {
            scope: &cx.scope,
            queue: &self.queue,
            default_priority: cx.policy(&self.queue).default_priority,
            specs: self.specs.as_ref(),
        };
        let diff = plan_sync::diff(&self.lines, &stored, &plan, cx.now)?;
        self.refuse_cycle(tx, &cx, &diff).await?;
        let counts = PlanCounts {
            inserted: diff.insert.len() + diff.revive.len(),
            updated: diff.update.len(),
            deleted: diff.delete.len(),
            skipped_done: diff.skipped,
        };
        if !self.dry_run {
            self.write(tx, &cx, diff).await?;
        }
        Ok(counts)
    }
}

impl PlanSync {
    /// What is stored of the tasks the plan names and of its specs.
    async fn load<T: Tx>(&self, tx: &mut T, cx: &Cx) -> Outcome<Stored> {
        let named = self.lines.iter().flat_map(|line| line.deps.iter().flatten().chain([&line.id]));
        let named: Vec<TaskId> = named.collect::<BTreeSet<_>>().into_iter().cloned().collect();
        let mut rows = tx.tasks(&cx.scope, &named).await?;
        let specs: BTreeSet<&String> = self.lines.iter().filter_map(|line| line.spec.as_ref()).collect();
        if !specs.is_empty() {
            let filter = Filter { category: None, specs: Some(specs.into_iter().cloned().collect()) };
            rows.extend(tx.list(&cx.scope, &ListFilter { filter, ..ListFilter::default() }).await?);
        }
        let ids: Vec<TaskId> = self.lines.iter().map(|line| line.id.clone()).collect();
        let mut blockers: BTreeMap<TaskId, BTreeSet<TaskId>> = BTreeMap::new();
        for (task, blocker) in tx.edges(&cx.scope, &ids).await? {
            blockers.entry(task).or_default().insert(blocker);
        }
        let with_edges = |row: Row| {
            let edges = blockers.get(&row.task.id).cloned().unwrap_or_default();
            (row.task.id.clone(), (row.task, edges))
        };
        Ok(Stored { tasks: rows.into_iter().map(with_edges).collect() })
    }

    /// Looks for a circle in the plan's edges together with the stored ones they lead to.
    async fn refuse_cycle<T: Tx>(&self, tx: &mut T, cx: &Cx, diff: &PlanDiff) -> Outcome<()> {
        let changes = diff.insert.iter().chain(&diff.revive).chain(&diff.update);
        let changed: BTreeMap<&TaskId, &PlanChange> = changes
            .filter(|change| !change.add.is_empty() || !change.remove.is_empty())
            .map(|change| (&change.task.id, change))
            .collect();
        if !changed.values().any(|change| !change.add.is_empty()) {
            return Ok(());
        }
        let mut graph = rota_core::graph::Edges::new();
        let mut seen: BTreeSet<TaskId> = changed.keys().map(|id| (*id).clone()).collect();
        let mut frontier: Vec<TaskId> = seen.iter().cloned().collect();
        while !frontier.is_empty() {
            let mut list = tx.edges(&cx.scope, &frontier).await?;
            list.retain(|(task, blocker)| {
                !changed.get(task).is_some_and(|change| change.remove.contains(blocker))
            });
            for task in &frontier {
                let added = changed.get(task).into_iter().flat_map(|change| &change.add);
                list.extend(added.map(|blocker| (task.clone(), blocker.clone())));
            }
            frontier.clear();
            for (task, blocker) in list {
                if seen.insert(blocker.clone()) {
                    frontier.push(blocker.clone());
                }
                graph.entry(task).or_default().push(blocker);
            }
        }
        let Some(path) = rota_core::graph::find_cycle(&graph) else { return Ok(()) };
        let line = self.lines.iter().find(|line| path.contains(&line.id)).map_or(0, |line| line.line);
        let problem = Refusal::WouldCycle { path }.to_string();
        Err(Refusal::BadLine { line, problem }.into())
    }

    async fn write<T: Tx>(&self, tx: &mut T, cx: &Cx, diff: PlanDiff) -> Outcome<()> {
        let changed = diff.revive.iter().chain(diff.update.iter().filter(|change| change.task.seq != 0));
        let ids: Vec<TaskId> = changed.map(|change| change.task.id.clone()).collect();
        let rows = tx.lock_tasks(&cx.scope, &ids).await?;
        let rows: BTreeMap<&TaskId, &Row> = rows.iter().map(|row| (&row.task.id, row)).collect();
        let found = |id: &TaskId| {
            let row = rows.get(id).copied();
            row.ok_or_else(|| Refusal::TaskNotFound { id: id.clone() })
        };
        for change in &diff.revive {
            self.revive(tx, cx, found(&change.task.id)?, change).await?;
        }
        for change in diff.update.iter().filter(|change| change.task.seq != 0) {
            update(tx, cx, found(&change.task.id)?, &change.task).await?;
        }
        self.insert(tx, cx, &diff.insert).await?;
        for change in diff.revive.iter().chain(&diff.update) {
            write_edges(tx, cx, change).await?;
        }
        for id in &diff.delete {
            let row = find_task(tx, cx, id).await?;
            write::step_or_refuse(tx, cx, &row, &Command::Delete).await?;
        }
        Ok(())
    }

    /// Adds new tasks, then the edges from them.
    async fn insert<T: Tx>(&self, tx: &mut T, cx: &Cx, insert: &[PlanChange]) -> Outcome<()> {
        if insert.is_empty() {
            return Ok(());
        }
        let queue = tx.ensure_queue(&cx.scope, &self.queue).await?;
        let ids: Vec<TaskId> = insert.iter().map(|change| change.task.id.clone()).collect();
        let fences = last_fences(tx, cx, &ids).await?;
        let new: BTreeSet<&TaskId> = ids.iter().collect();
        let blockers: BTreeSet<&TaskId> = insert.iter().flat_map(|change| &change.add).collect();
        let outside: Vec<TaskId> = blockers.into_iter().filter(|id| !new.contains(id)).cloned().collect();
        // Locked: a blocker that is settled while its dependent is added must not miss it.
        let outside = tx.lock_tasks(&cx.scope, &outside).await?.into_iter();
        let settled = outside.filter(|row| row.task.status.satisfies_edge()).map(|row| row.task.id);
        let settled: BTreeSet<TaskId> = settled.collect();
        tx.reserve(insert.len()).await?;
        let mut rows = Vec::with_capacity(insert.len());
        for change in insert {
            let fence = fences.get(&change.task.id).copied().unwrap_or_default();
            let open = change.add.iter().filter(|id| !settled.contains(*id)).count();
            let open_blockers = u32::try_from(open).unwrap_or(u32::MAX);
            let row = Row { task: Task { fence, ..change.task.clone() }, open_blockers };
            let row = write::create(tx, cx, row, queue.key).await?;
            if !change.add.is_empty() {
                rows.push((row, change));
            }
        }
        for (row, change) in rows {
            edges::write_new(tx, cx, row, &change.add).await?;
        }
        Ok(())
    }

    /// A deleted task that the plan has again is open, with its attempts forgotten and its fence kept.
    async fn revive<T: Tx>(&self, tx: &mut T, cx: &Cx, row: &Row, change: &PlanChange) -> Outcome<()> {
        let undeleted =
            transition::apply(&row.task, &Command::Undelete, cx.policy(&self.queue), cx.now)?.task;
        let mut next = with_plan(&undeleted, &change.task);
        (next.attempts, next.tries) = (0, 0);
        (next.fail_reason, next.parked_reason, next.result) = (None, None, None);
        next.next_eligible_at = None;
        write::save(tx, cx, row, write::Change::new(EventKind::Revived, next)).await?;
        Ok(())
    }
}

async fn update<T: Tx>(tx: &mut T, cx: &Cx, row: &Row, planned: &Task) -> Outcome<()> {
    let next = with_plan(&row.task, planned);
    if next != row.task {
        write::save(tx, cx, row, write::Change::new(EventKind::Edited, next)).await?;
    }
    Ok(())
}

/// The stored task with the plan's fields.
fn with_plan(stored: &Task, planned: &Task) -> Task {
    Task {
        title: planned.title.clone(),
        description: planned.description.clone(),
        priority: planned.priority,
        category: planned.category.clone(),
        spec_ref: planned.spec_ref.clone(),
        reference: planned.reference.clone(),
        steps: planned.steps.clone(),
        ..stored.clone()
    }
}

async fn write_edges<T: Tx>(tx: &mut T, cx: &Cx, change: &PlanChange) -> Outcome<()> {
    if change.add.is_empty() && change.remove.is_empty() {
        return Ok(());
    }
    let mut row = find_task(tx, cx, &change.task.id).await?;
    for blocker in &change.add {
        let blocker = find_task(tx, cx, blocker).await?;
        row = edges::add(tx, cx, row, &blocker).await?;
    }
    for blocker in &change.remove {
        let blocker = find_task(tx, cx, blocker).await?;
        if let Some(freed) = edges::remove(tx, cx, row.clone(), &blocker).await? {
            row = freed;
        }
    }
    Ok(())
}
