//! Publishing a policy, and pausing a queue.

use std::sync::Arc;

use async_trait::async_trait;
use rota_core::event::{Event, EventData, EventKind};
use rota_core::{Json, Policy, QueuePolicy, Refusal, Status};

use super::{Call, Cx, find_queue, policy_version, write};
use crate::fault::{Error, Fault, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, ListFilter, PolicyRow, Published, QueueRow, Tx};

/// Publishes a policy for a scope. Refused if `based_on` is given and no longer current.
#[derive(Clone, Debug)]
pub struct PublishPolicy {
    /// Where, when, who.
    pub call: Call,
    /// The rules.
    pub policy: Policy,
    /// The version it was made from.
    pub based_on: Option<String>,
}

#[async_trait]
impl Intent for PublishPolicy {
    type Output = Arc<Published>;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Arc<Published>> {
        let history = tx.policies(&self.call.scope).await?;
        let (before, is_readable) = self.open(tx, history.last()).await?;
        let current = &before.published.version;
        if let Some(based_on) = self.based_on.as_ref().filter(|based_on| *based_on != current) {
            return Err(Refusal::PolicyMoved { based_on: based_on.clone(), current: current.clone() }.into());
        }
        publish(tx, before, &history, &self.policy, is_readable).await
    }
}

/// Changes some rules of a queue, from whatever is in force, in one transaction: none of several editors' changes is
/// lost.
#[derive(Clone, Debug)]
pub struct EditRules {
    /// Where, when, who.
    pub call: Call,
    /// Which queue; it must be known.
    pub queue: String,
    /// A document in the flat form of six keys; what it does not name stays.
    pub flat: String,
}

#[async_trait]
impl Intent for EditRules {
    type Output = Arc<Published>;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Arc<Published>> {
        // The numbers first: whoever publishes in between has taken the next one, and this is tried again.
        let history = tx.policies(&self.call.scope).await?;
        let before = Cx::open(tx, &self.call).await?;
        find_queue(tx, &before, &self.queue).await?;
        let policy = before.published.policy.with_rules(&self.queue, &self.flat).map_err(Refusal::from)?;
        publish(tx, before, &history, &policy, true).await
    }
}

async fn publish<T: Tx>(
    tx: &mut T,
    before: Cx,
    history: &[PolicyRow],
    policy: &Policy,
    is_readable: bool,
) -> Outcome<Arc<Published>> {
    let published = Arc::new(Published { version: policy_version(policy), policy: policy.clone() });
    let document = policy.to_json();
    if is_readable && !history.is_empty() && before.published.version == published.version {
        return Ok(published);
    }
    let row = PolicyRow {
        number: history.last().map_or(1, |last| last.number + 1),
        version: published.version.clone(),
        document,
        published_at: before.now,
        actor: before.actor.clone(),
    };
    tx.add_policy(&before.scope, &row).await?;
    let old = is_readable.then(|| Arc::clone(&before.published));
    let after = Cx { published: Arc::clone(&published), ..before };
    let changes = [("document".to_owned(), row.document)].into();
    let data = EventData { changes, ..EventData::default() };
    write::append(tx, &after, scope_event(&after, EventKind::PolicyPublished, data)).await?;
    rescore(tx, &after, old.as_ref().map(|old| &old.policy)).await?;
    Ok(published)
}

impl PublishPolicy {
    /// A stored policy that cannot be read stops everything but this: it can be replaced. Tells whether it could.
    async fn open<T: Tx>(&self, tx: &mut T, last: Option<&PolicyRow>) -> Outcome<(Cx, bool)> {
        let version = match (Cx::open(tx, &self.call).await, last) {
            (Err(Error::Fault(Fault::UnreadablePolicy { .. })), Some(last)) => last.version.clone(),
            (opened, _) => return Ok((opened?, true)),
        };
        let published = Arc::new(Published { version, policy: Policy::default() });
        let now = self.call.now_by(tx.clock().await?, tx.writes())?;
        Ok((Cx { scope: self.call.scope.clone(), now, actor: self.call.actor.clone(), published }, false))
    }
}

/// Scores are part of the index; a policy that changes them changes the index with it. Queues that are ranked as before
/// keep theirs: a new ceiling costs the same at a million tasks as at ten.
async fn rescore<T: Tx>(tx: &mut T, cx: &Cx, old: Option<&Policy>) -> Result<(), Fault> {
    for queue in tx.queues(&cx.scope).await? {
        let rules = cx.policy(&queue.name);
        let is_ranked_as =
            |old: &QueuePolicy| old.score == rules.score && old.is_bucketed() == rules.is_bucketed();
        if old.is_some_and(|old| is_ranked_as(old.queue(&queue.name))) {
            continue;
        }
        let filter =
            ListFilter { queue: Some(queue.key), statuses: vec![Status::Open], ..ListFilter::default() };
        for row in tx.list(&cx.scope, &filter).await? {
            let standing = write::standing(tx, cx, &row).await?;
            tx.update(&row.task, &row.task, &standing).await?;
        }
    }
    Ok(())
}

pub(super) fn scope_event(cx: &Cx, kind: EventKind, data: EventData) -> Event {
    Event {
        seq: 0,
        scope: cx.scope.clone(),
        task: None,
        number: 0,
        at: cx.now,
        kind,
        from: None,
        to: None,
        actor: None,
        fence: None,
        policy: None,
        data,
    }
}

/// The policy in force, and whether anything was ever published.
#[derive(Clone, Debug)]
pub struct CurrentPolicy {
    /// Where, when, who.
    pub call: Call,
}

#[async_trait]
impl Intent for CurrentPolicy {
    type Output = (Arc<Published>, Vec<PolicyRow>);

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        let cx = Cx::open(tx, &self.call).await?;
        Ok((cx.published, tx.policies(&cx.scope).await?))
    }
}

/// Every version that was published, oldest first, read or not.
#[derive(Clone, Debug)]
pub struct PolicyVersions {
    /// Where, when, who.
    pub call: Call,
}

#[async_trait]
impl Intent for PolicyVersions {
    type Output = Vec<PolicyRow>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<PolicyRow>> {
        Ok(tx.policies(&self.call.scope).await?)
    }
}

/// Pauses or resumes a queue.
#[derive(Clone, Debug)]
pub struct PauseQueue {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// Paused, or not.
    pub paused: bool,
}

#[async_trait]
impl Intent for PauseQueue {
    type Output = QueueRow;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<QueueRow> {
        let cx = Cx::open(tx, &self.call).await?;
        let row = match find_queue(tx, &cx, &self.queue).await? {
            Some(row) => row,
            None => tx.ensure_queue(&cx.scope, &self.queue).await?,
        };
        if row.paused != self.paused {
            tx.set_queue_paused(row.key, self.paused).await?;
            let kind = if self.paused { EventKind::QueuePaused } else { EventKind::QueueResumed };
            let changes = [("paused".to_owned(), Json::of(&self.paused))].into();
            let data = EventData { queue: Some(self.queue.clone()), changes, ..EventData::default() };
            write::append(tx, &cx, scope_event(&cx, kind, data)).await?;
        }
        Ok(QueueRow { paused: self.paused, ..row })
    }
}
