//! What callers want of a store, each carried out in one transaction, written once for every store.
//!
//! A crash before [`crate::Tx::commit`] returns leaves nothing of an intent; after it, all of it, journal included.
//! The decisions are core's; here they are only fed with what is stored, and written down.

pub mod add;
pub mod agents;
pub mod batch;
pub mod blocks;
pub mod carry;
pub mod claim;
pub mod doctor;
pub mod edges;
pub mod edit;
mod family;
pub mod follow;
pub mod gateway;
pub mod import;
pub mod issues;
pub mod iterate;
pub mod lease_plan;
pub mod lease_token;
pub mod loops;
pub mod not_passed;
pub mod overview;
pub mod plan_sync;
pub mod policy;
pub mod prune;
pub mod read;
pub mod rehearse;
pub mod sched;
pub mod settle;
pub mod sync_leases;
pub mod upstreams;
mod write;

use std::sync::{Arc, OnceLock};

use rota_core::select::Room;
use rota_core::{Policy, QueuePolicy, Refusal, TaskId, UnixMillis};
use sha2::Digest;

use crate::fault::Outcome;
use crate::tx::{Published, QueueRow, Row, Tx};

/// What every intent has: where, when, and who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Namespace.
    pub scope: String,
    /// Replaces the store's clock.
    pub now: Option<UnixMillis>,
    /// Whether an intent that writes may be given a `now` that the store's clock has not reached.
    pub allow_future: bool,
    /// Who is written into the journal.
    pub actor: Option<String>,
}

impl Call {
    /// In a scope, by the store's clock, by nobody in particular.
    pub fn in_scope(scope: &str) -> Self {
        Self { scope: scope.to_owned(), now: None, allow_future: false, actor: None }
    }

    /// The same at a given time, past or future.
    pub fn at(mut self, now: UnixMillis) -> Self {
        (self.now, self.allow_future) = (Some(now), true);
        self
    }

    /// The `now` to decide by. A time that the store's clock has not reached would let a writer outlive or reclaim the
    /// leases of others, so it is only for reading, unless the caller may set it.
    fn now_by(&self, clock: UnixMillis, writes: bool) -> Result<UnixMillis, Refusal> {
        match self.now {
            Some(now) if now > clock && writes && !self.allow_future => Err(Refusal::NowAhead { now, clock }),
            given => Ok(given.unwrap_or(clock)),
        }
    }
}

/// One transaction's view: the policy and the `now` that everything in it is decided by.
pub(crate) struct Cx {
    pub scope: String,
    pub now: UnixMillis,
    pub actor: Option<String>,
    pub published: Arc<Published>,
}

impl Cx {
    pub async fn open<T: Tx>(tx: &mut T, call: &Call) -> Outcome<Self> {
        let (clock, published) = tx.opening(&call.scope).await?;
        let published = published.unwrap_or_else(default_policy);
        let now = call.now_by(clock, tx.writes())?;
        Ok(Self { scope: call.scope.clone(), now, actor: call.actor.clone(), published })
    }

    /// The same, and the turn of a queue where it is bounded. The clock is read again after the wait: a lease must
    /// not be shorter for it.
    pub async fn open_for_grant<T: Tx>(
        tx: &mut T,
        call: &Call,
        queue: &str,
    ) -> Outcome<(Self, Option<QueueRow>)> {
        let mut cx = Self::open(tx, call).await?;
        let row = find_queue(tx, &cx, queue).await?;
        if call.now.is_none() && cx.is_bounded(queue) {
            cx.now = tx.clock().await?;
        }
        Ok((cx, row))
    }

    /// Whether grants of a queue are counted, so that they must be made one after the other. Loops are bounded by their
    /// upstreams too.
    fn is_bounded(&self, queue: &str) -> bool {
        Room::is_bounded_by(self.policy(queue)) || queue == read::LOOPS
    }

    pub fn policy(&self, queue: &str) -> &QueuePolicy {
        self.published.policy.queue(queue)
    }
}

/// The policy of a scope that has published none.
pub fn default_policy() -> Arc<Published> {
    static DEFAULT: OnceLock<Arc<Published>> = OnceLock::new();
    DEFAULT
        .get_or_init(|| {
            let policy = Policy::default();
            Arc::new(Published { version: policy_version(&policy), policy })
        })
        .clone()
}

/// The hash of the canonical document, short enough to read aloud.
pub fn policy_version(policy: &Policy) -> String {
    let digest = sha2::Sha256::digest(policy.to_json().as_str().as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// A queue by name: its row, none if the policy knows it but nothing was added yet, or the refusal that lists the
/// known ones.
pub(crate) async fn find_queue<T: Tx>(tx: &mut T, cx: &Cx, name: &str) -> Outcome<Option<QueueRow>> {
    if let Some(row) = tx.queue(&cx.scope, name, cx.is_bounded(name)).await? {
        return Ok(Some(row));
    }
    let named = &cx.published.policy.queues;
    if named.contains_key(name) {
        return Ok(None);
    }
    let stored = tx.queues(&cx.scope).await?.into_iter().map(|row| row.name);
    let mut known: Vec<String> = named.keys().cloned().chain(stored).collect();
    known.sort();
    known.dedup();
    Err(Refusal::UnknownQueue { name: name.to_owned(), known }.into())
}

/// A task that must exist.
pub(crate) async fn find_task<T: Tx>(tx: &mut T, cx: &Cx, id: &TaskId) -> Outcome<Row> {
    let row = tx.task(&cx.scope, id).await?;
    row.ok_or_else(|| Refusal::TaskNotFound { id: id.clone() }.into())
}
