//! The whole at a glance: how many tasks of each queue stand where, which upstreams are blocked, what was used today;
//! and tasks in pages, for whoever wants to see all of them.

use async_trait::async_trait;
use rota_core::UnixMillis;

use super::gateway::day_of;
use super::read::{TaskView, views};
use super::{Call, Cx};
use crate::fault::Outcome;
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, BlockRow, QueueRow, StatusCount, Tx, UsageFilter, UsageRow};
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
            let counts = tx.count(queue.key, &crate::tx::Filter::default()).await?;
            queues.push((queue, counts));
        }
        let blocks = tx.blocks().await?;
        let usage = UsageFilter { scope: Some(cx.scope.clone()), task: None, day: Some(day_of(cx.now)) };
        let usage = tx.usage(&usage).await?;
        Ok(Seen { now: cx.now, queues, blocks, usage })
    }
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
