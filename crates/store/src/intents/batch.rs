//! Calls of several callers in one transaction: group commit.
//!
//! Each call is carried out as if it were alone, one after the other, in the order in which they came; so a batch equals
//! that serial order of its calls, with one `now` for all. What is shared is the reading ahead, the journal and the COMMIT.

use async_trait::async_trait;
use rota_core::{Refusal, Task, TaskId};

use super::add::Add;
use super::claim::{Claim, Grant};
use super::read::TaskView;
use super::settle::{Settle, Settled, StepAndView};
use crate::fault::{Error, Fault, Outcome};
use crate::store::Intent;
use crate::tx::{AnyTx, ClaimReads, Prefetch, Tx};

/// A call that may be part of a batch: one that refuses before it writes anything, so that a refusal leaves no trace.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the variants are the intents")]
pub enum BatchCall {
    Claim(Claim),
    Settle(Settle),
    Step(StepAndView),
    Add(Add),
}

/// The answer to a call of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants are those of the calls")]
pub enum BatchAnswer {
    Claimed(Vec<Grant>),
    Settled(Settled),
    Stepped(Box<(TaskView, Option<Grant>)>),
    Added(Vec<Task>),
}

impl BatchCall {
    /// The scope of the call.
    pub fn scope(&self) -> &str {
        let call = match self {
            Self::Claim(claim) => &claim.call,
            Self::Settle(settle) => &settle.call,
            Self::Step(step) => &step.call,
            Self::Add(add) => &add.call,
        };
        &call.scope
    }

    /// How many tasks it reads or writes, as far as can be told.
    pub fn weight(&self) -> usize {
        let then = |claim: &Option<Claim>| claim.as_ref().map_or(0, |claim| claim.limit);
        match self {
            Self::Claim(claim) => claim.limit,
            Self::Settle(settle) => settle.steps.len() + then(&settle.then),
            Self::Step(step) => 1 + then(&step.then),
            Self::Add(add) => add.tasks.len(),
        }
    }

    fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Claim(claim) => Some(claim),
            Self::Settle(settle) => settle.then.as_ref(),
            Self::Step(step) => step.then.as_ref(),
            Self::Add(_) => None,
        }
    }

    fn settled_ids(&self) -> Vec<TaskId> {
        match self {
            Self::Settle(settle) => settle.ids(),
            Self::Step(step) => vec![step.step.id.clone()],
            Self::Claim(_) | Self::Add(_) => Vec::new(),
        }
    }

    fn added_ids(&self) -> impl Iterator<Item = &TaskId> {
        let tasks = if let Self::Add(add) = self { add.tasks.as_slice() } else { &[] };
        tasks.iter().map(|task| &task.id)
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<BatchAnswer> {
        match self {
            Self::Claim(claim) => claim.run_in(tx).await.map(BatchAnswer::Claimed),
            Self::Settle(settle) => settle.run_in(tx).await.map(BatchAnswer::Settled),
            Self::Step(step) => step.run_in(tx).await.map(|stepped| BatchAnswer::Stepped(Box::new(stepped))),
            Self::Add(add) => add.run_in(tx).await.map(BatchAnswer::Added),
        }
    }
}

/// Calls of one scope, by the store's clock.
#[derive(Debug)]
pub struct Batch<'a> {
    /// In the order in which they came.
    pub calls: &'a [BatchCall],
}

impl Batch<'_> {
    /// Reads ahead what all calls need; of claims those that are like the first one.
    async fn prefetch(&self, tx: &mut AnyTx) -> Result<(), Fault> {
        let Some(first) = self.calls.first() else { return Ok(()) };
        let mut settle: Vec<TaskId> = self.calls.iter().flat_map(BatchCall::settled_ids).collect();
        settle.sort();
        settle.dedup();
        let mut add: Vec<TaskId> = self.calls.iter().flat_map(BatchCall::added_ids).cloned().collect();
        add.sort();
        add.dedup();
        let claims = || self.calls.iter().filter_map(BatchCall::claim).map(Claim::reads);
        let claim = claims().next().map(|first| {
            let is_alike = |other: &ClaimReads<'_>| {
                (other.queue, other.host, other.category) == (first.queue, first.host, first.category)
            };
            let limit = claims().filter(is_alike).map(|claim| claim.limit).sum();
            ClaimReads { limit, ..first }
        });
        let first_added = self.calls.iter().find_map(|call| match call {
            BatchCall::Add(add) => add.tasks.first().map(|task| task.queue.as_str()),
            _ => None,
        });
        let scope = first.scope();
        let reads = Prefetch { scope, settle: &settle, add: &add, add_queue: first_added, look: &[], claim };
        tx.prefetch(&reads).await
    }
}

#[async_trait]
impl Intent for Batch<'_> {
    type Output = Vec<Result<BatchAnswer, Refusal>>;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        self.prefetch(tx).await?;
        let mut answers = Vec::with_capacity(self.calls.len());
        for call in self.calls {
            match call.run(tx).await {
                Ok(answer) => answers.push(Ok(answer)),
                Err(Error::Refused(refusal)) => answers.push(Err(refusal)),
                Err(Error::Fault(fault)) => return Err(fault.into()),
            }
        }
        Ok(answers)
    }
}
