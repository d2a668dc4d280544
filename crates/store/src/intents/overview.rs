//! The whole at a glance: how many tasks of each queue stand where, which upstreams are blocked, what was used today;
//! and tasks in pages, for whoever wants to see all of them.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use rota_core::{Status, TaskId, UnixMillis};

use super::gateway::day_of;
use super::read::{TaskView, views};
use super::{Call, Cx};
use crate::fault::{Fault, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, BlockRow, Filter, HeadQuery, QueueRow, StatusCount, Tx, UsageFilter, UsageRow};
use crate::upkeep::Upkeep;

/// Looks at everything in one snapshot. Counts every task, so it takes its time on a large store.
#[derive(Clone, Debug)]
pub struct Overview {
    /// Where, when, who.
    pub call: Call,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When.
    pub now: UnixMillis,
    /// Every queue, and how many of it stand where.
    pub queues: Vec<(QueueRow, Vec<StatusCount>)>,
    /// Every upstream that ever pushed back.
    pub blocks: Vec<BlockRow>,
    /// What was used today, in UTC.
    pub usage: Vec<UsageRow>,
    /// The kinds of the tasks that used something, of those that have one.
    pub kinds: BTreeMap<String, String>,
}

#[async_trait]
impl Intent for Overview {
    type Output = Seen;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Seen> {
        let cx = Cx::open(tx, &self.call).await?;
        let mut queues = Vec::new();
        for queue in tx.queues(&cx.scope).await? {
            let counts = tx.count(queue.key, &Filter::default()).await?;
            queues.push((queue, counts));
        }
        let blocks = tx.blocks().await?;
        let usage = UsageFilter { scope: Some(cx.scope.clone()), task: None, day: Some(day_of(cx.now)) };
        let usage = tx.usage(&usage).await?;
        let kinds = kinds(tx, &cx, &usage).await?;
        Ok(Seen { now: cx.now, queues, blocks, usage, kinds })
    }
}

async fn kinds(tx: &mut AnyTx, cx: &Cx, usage: &[UsageRow]) -> Result<BTreeMap<String, String>, Fault> {
    // A caller without a task has no id.
    let users: BTreeSet<TaskId> = usage.iter().filter_map(|row| TaskId::new(&row.task).ok()).collect();
    let users: Vec<TaskId> = users.into_iter().collect();
    let tasks = tx.tasks(&cx.scope, &users).await?.into_iter().map(|row| row.task);
    Ok(tasks.filter_map(|task| Some((task.id.to_string(), task.kind?))).collect())
}

/// Looks whether anything runs or may run, and which upstreams are blocked, without counting where an index tells.
#[derive(Clone, Debug)]
pub struct Glance {
    /// Where, when, who.
    pub call: Call,
}

/// What a glance shows.
#[derive(Clone, Debug)]
pub struct Glanced {
    /// When.
    pub now: UnixMillis,
    /// Whether a task is active, or open and not blocked.
    pub is_busy: bool,
    /// Every upstream that ever pushed back.
    pub blocks: Vec<BlockRow>,
}

#[async_trait]
impl Intent for Glance {
    type Output = Glanced;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Glanced> {
        let cx = Cx::open(tx, &self.call).await?;
        let mut is_busy = false;
        for queue in tx.queues(&cx.scope).await? {
            is_busy = is_busy || is_queue_busy(tx, &cx, &queue).await?;
        }
        Ok(Glanced { now: cx.now, is_busy, blocks: tx.blocks().await? })
    }
}

async fn is_queue_busy(tx: &mut AnyTx, cx: &Cx, queue: &QueueRow) -> Result<bool, Fault> {
    if !tx.active_by_kind(queue.key).await?.is_empty() || tx.next_due(queue.key).await?.is_some() {
        return Ok(true);
    }
    let heads = HeadQuery {
        queue: queue.key,
        bucketed: cx.policy(&queue.name).is_bucketed(),
        after: None,
        per_bucket: 1,
        now: cx.now,
        overdue_before: None,
        host: None,
        full_kinds: &[],
        only_kinds: None,
        filter: &Filter::default(),
    };
    if tx.heads(&heads).await?.is_some() {
        return Ok(true);
    }
    // What waits for a parent or an artifact is in no index.
    let counts = tx.count(queue.key, &Filter::default()).await?;
    Ok(counts.iter().any(|count| count.status == Status::Open && !count.blocked))
}

/// Tasks of every queue by their insertion number.
#[derive(Clone, Debug)]
pub struct Page {
    /// Where, when, who.
    pub call: Call,
    /// Only those inserted later than this one.
    pub after: u64,
    /// At most so many.
    pub limit: usize,
}

#[async_trait]
impl Intent for Page {
    type Output = Vec<TaskView>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<TaskView>> {
        let cx = Cx::open(tx, &self.call).await?;
        let kept = tx.page(&cx.scope, self.after, self.limit).await?;
        Ok(views(tx, &cx, kept.into_iter().map(|kept| kept.row).collect()).await?)
    }
}
