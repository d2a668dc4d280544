//! The end of a loop's iteration that did not pass: the next one follows under the same lease, or the loop gives way.

use async_trait::async_trait;
use rota_core::obstacle::Wait;
use rota_core::transition::{self, Command};
use rota_core::{Caller, LeaseId, Task, TaskId, UnixMillis};

use super::claim::{Grant, grant_chosen, select_next};
use super::iterate::Begin;
use super::{Call, Cx, find_task, write};
use crate::fault::Outcome;
use crate::store::Intent;
use crate::tx::{AnyTx, QueueRow, Row, Tx};

/// Ends an iteration that did not pass, and decides in the same transaction what follows. The loop gives its lease back if
/// its queue is paused, its upstream is held back or it must cool down, or if that lets a loop start that now ranks ahead
/// of it: the place that it frees is given to the best, itself included. Otherwise its next iteration begins at once.
#[derive(Clone, Debug)]
pub struct NotPassed {
    /// Where, when, who.
    pub call: Call,
    /// Which loop, by its lease.
    pub lease: LeaseId,
    /// Why it did not pass, for the journal.
    pub reason: String,
    /// What may begin; of no kinds where nothing else may.
    pub begin: Begin,
}

/// What follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AfterIteration {
    /// The loop: active with its next iteration, or open.
    pub task: Task,
    /// Why it gave its lease back; none if it goes on.
    pub gave_way: Option<GaveWay>,
    /// What was begun besides.
    pub granted: Vec<Grant>,
}

/// Why a loop gave its lease back after an iteration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GaveWay {
    /// Its queue is paused.
    QueuePaused,
    /// It failed fast too often in a row.
    CoolsDown {
        /// When it may run again.
        until: UnixMillis,
    },
    /// Its upstream is held back.
    HeldBack(Wait),
    /// A loop that ranks ahead got its place.
    Outranked {
        /// That loop.
        by: TaskId,
    },
}

#[async_trait]
impl Intent for NotPassed {
    type Output = AfterIteration;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<AfterIteration> {
        tx.share_edges(&self.call.scope).await?;
        let (cx, queue) = Cx::open_for_grant(tx, &self.call, &self.begin.claim.queue).await?;
        self.run_in(tx, &cx, queue.as_ref()).await
    }
}

impl NotPassed {
    /// Carries it out inside a transaction that has the queue's turn. A refusal has changed nothing.
    pub(super) async fn run_in<T: Tx>(
        &self,
        tx: &mut T,
        cx: &Cx,
        queue: Option<&QueueRow>,
    ) -> Outcome<AfterIteration> {
        let row = find_task(tx, cx, &self.lease.task).await?;
        let caller = Caller::lease(self.lease.clone());
        let yields = Command::Yield { caller: caller.clone(), reason: self.reason.clone() };
        let policy = cx.policy(&row.task.queue);
        let given_back = transition::apply(&row.task, &yields, policy, cx.now)?.task;
        if queue.is_none_or(|queue| queue.paused) {
            return give_way(tx, cx, &row, &yields, GaveWay::QueuePaused).await;
        }
        if let Some(until) = given_back.next_eligible_at {
            return give_way(tx, cx, &row, &yields, GaveWay::CoolsDown { until }).await;
        }
        let how = self.begin.how();
        let open = Row { task: given_back, open_blockers: row.open_blockers };
        let selected = select_next(tx, cx, &self.begin.claim, queue, &how, Some(open)).await?;
        let (own, others): (Vec<Row>, Vec<Row>) =
            selected.chosen.into_iter().partition(|chosen| chosen.task.seq == row.task.seq);
        if own.is_empty() {
            let gave_way = match (selected.room.wait(row.task.kind.as_deref()), others.first()) {
                (Some(wait), _) => GaveWay::HeldBack(wait),
                (None, Some(first)) => GaveWay::Outranked { by: first.task.id.clone() },
                (None, None) => unreachable!("a place that nothing holds back goes to a loop"),
            };
            let mut after = give_way(tx, cx, &row, &yields, gave_way).await?;
            after.granted = grant_chosen(tx, cx, others, &how).await?;
            return Ok(after);
        }
        let iterates = Command::Iterate { caller, reason: self.reason.clone() };
        let task = write::step_or_refuse(tx, cx, &row, &iterates).await?.task;
        let granted = grant_chosen(tx, cx, others, &how).await?;
        Ok(AfterIteration { task, gave_way: None, granted })
    }
}

async fn give_way<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    row: &Row,
    yields: &Command,
    gave_way: GaveWay,
) -> Outcome<AfterIteration> {
    let task = write::step_or_refuse(tx, cx, row, yields).await?.task;
    Ok(AfterIteration { task, gave_way: Some(gave_way), granted: Vec::new() })
}
