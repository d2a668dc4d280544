//! Granting leases: take back what expired, let in what has cooled down, choose, grant, all in one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use rota_core::event::{EventData, EventKind};
use rota_core::glob::Globs;
use rota_core::obstacle::{self, Obstacle, Reason, Viewer};
use rota_core::policy::{QueuePolicy, Reclaim};
use rota_core::rank::{self, Rankable};
use rota_core::select::{self, Candidate, Room, WorktreeLimit};
use rota_core::transition::{self, Command};
use rota_core::{Refusal, Task, TaskId};

use super::batch::{BatchAnswer, BatchCall};
use super::upstreams::Upstreams;
use super::{Call, Cx, find_queue, find_task, write};
use crate::fault::{Error, Fault, Outcome};
use crate::store::Intent;
use crate::tx::{AnyTx, Blocker, ClaimReads, Filter, HeadQuery, Prefetch, QueueRow, Row, Tx};

/// How many rows are taken back or let in at once.
const BATCH: usize = 500;

/// Which tasks a caller would take.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Only this category.
    pub category: Option<String>,
    /// Only specs that match.
    pub specs: Option<Globs>,
}

impl Wanted {
    /// Globs become the specs they match now.
    pub(super) async fn resolve<T: Tx>(&self, tx: &mut T, cx: &Cx) -> Result<Filter, Fault> {
        let specs = match &self.specs {
            Some(globs) => {
                let all = tx.specs(&cx.scope).await?;
                Some(all.into_iter().filter(|spec| globs.matches(spec)).collect())
            }
            None => None,
        };
        Ok(Filter { category: self.category.clone(), specs })
    }
}

/// Grants up to `limit` leases in one transaction that also writes the journal. None is no error: the list is empty.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Where, when, who.
    pub call: Call,
    /// From which queue.
    pub queue: String,
    /// How many at most.
    pub limit: usize,
    /// For whom.
    pub agent: Option<String>,
    /// How long; none for as long as the policy says.
    pub ttl_ms: Option<i64>,
    /// Which.
    pub wanted: Wanted,
    /// The host that would run it.
    pub host: Option<String>,
}

impl Claim {
    /// Carries it out inside a transaction that has read ahead.
    pub(super) async fn run_in<T: Tx>(&self, tx: &mut T) -> Outcome<Vec<Grant>> {
        let (cx, queue) = Cx::open_for_grant(tx, &self.call, &self.queue).await?;
        grant_next(tx, &cx, self, queue).await
    }

    /// What it is going to read.
    pub(super) fn reads(&self) -> ClaimReads<'_> {
        // Globs have to be resolved first.
        let limit = if self.wanted.specs.is_some() { 0 } else { self.limit };
        ClaimReads {
            queue: &self.queue,
            limit,
            host: self.host.as_deref(),
            category: self.wanted.category.as_deref(),
            only_kinds: None,
            blocks: false,
        }
    }
}

/// A lease that was granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The task, active.
    pub task: Task,
    /// Its blockers with their results.
    pub blockers: Vec<Blocker>,
}

#[async_trait]
impl Intent for Claim {
    type Output = Vec<Grant>;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<Grant>> {
        if self.call.now.is_none() {
            let claim = Some(self.reads());
            tx.prefetch(&Prefetch { scope: &self.call.scope, claim, ..Prefetch::default() }).await?;
        }
        self.run_in(tx).await
    }

    fn batched(&self) -> Option<BatchCall> {
        self.call.now.is_none().then(|| BatchCall::Claim(self.clone()))
    }

    fn answered(&self, answer: BatchAnswer) -> Option<Vec<Grant>> {
        if let BatchAnswer::Claimed(granted) = answer { Some(granted) } else { None }
    }
}

/// The same inside a transaction that has begun and has the queue's turn.
pub(super) async fn grant_next<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    claim: &Claim,
    queue: Option<QueueRow>,
) -> Outcome<Vec<Grant>> {
    let command = Command::Claim { agent: claim.agent.clone(), ttl_ms: claim.ttl_ms };
    grant_by(tx, cx, claim, queue, &How::plainly(command)).await
}

/// What a grant does to a task, and which tasks may be chosen.
pub(super) struct How<'a> {
    pub command: Command,
    pub only_kinds: Option<&'a [String]>,
    /// The upstreams whose limits hold; none where loops are not concerned.
    pub upstreams: Option<&'a Upstreams>,
    /// Looks whether a task's artifact is still there; none where it is not looked for.
    pub artifacts: Option<&'a ArtifactCheck>,
    /// The limit on worktrees of the host that asks.
    pub worktrees: Option<&'a WorktreeLimit>,
}

impl How<'_> {
    fn plainly(command: Command) -> Self {
        Self { command, only_kinds: None, upstreams: None, artifacts: None, worktrees: None }
    }
}

/// Looks whether the artifact that triggers a task is there, on the host that would run the task.
#[derive(Clone)]
pub struct ArtifactCheck(Arc<IsThere>);

type IsThere = dyn Fn(&Task, Option<&Task>) -> bool + Send + Sync;

impl ArtifactCheck {
    /// By a function of the task and its parent.
    pub fn by(is_there: impl Fn(&Task, Option<&Task>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_there))
    }

    /// Whether the artifact of a task is there, given its parent.
    pub(super) fn is_there(&self, task: &Task, parent: Option<&Task>) -> bool {
        (self.0)(task, parent)
    }

    /// Those of some tasks whose artifact is gone.
    async fn missing<T: Tx>(&self, tx: &mut T, cx: &Cx, rows: &[Row]) -> Result<Vec<Row>, Fault> {
        let triggered: Vec<&Row> = rows.iter().filter(|row| row.task.triggered_by.is_some()).collect();
        let ids: Vec<TaskId> = triggered.iter().filter_map(|row| row.task.parent.clone()).collect();
        let parents = if ids.is_empty() { Vec::new() } else { tx.tasks(&cx.scope, &ids).await? };
        let parent = |task: &Task| {
            let parents = parents.iter().map(|row| &row.task);
            parents.into_iter().find(|parent| Some(&parent.id) == task.parent.as_ref())
        };
        let is_missing = |row: &&&Row| !self.is_there(&row.task, parent(&row.task));
        Ok(triggered.iter().filter(is_missing).map(|row| (*row).clone()).collect())
    }
}

impl std::fmt::Debug for ArtifactCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ArtifactCheck")
    }
}

/// The same by another command than a plain claim.
pub(super) async fn grant_by<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    claim: &Claim,
    queue: Option<QueueRow>,
    how: &How<'_>,
) -> Outcome<Vec<Grant>> {
    Ok(grant_with_room(tx, cx, claim, queue, how).await?.0)
}

/// The same, with the room that the choice was made in.
pub(super) async fn grant_with_room<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    claim: &Claim,
    queue: Option<QueueRow>,
    how: &How<'_>,
) -> Outcome<(Vec<Grant>, Room)> {
    let Selected { chosen, room } = select_next(tx, cx, claim, queue.as_ref(), how, None).await?;
    Ok((grant_chosen(tx, cx, chosen, how).await?, room))
}

/// What was chosen, and the room that it was chosen in.
pub(super) struct Selected {
    pub chosen: Vec<Row>,
    pub room: Room,
}

/// Takes back what expired, lets in what has cooled down, and chooses. A task that gives its lease back is a candidate like
/// the others, and its place is free.
pub(super) async fn select_next<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    claim: &Claim,
    queue: Option<&QueueRow>,
    how: &How<'_>,
    given_back: Option<Row>,
) -> Outcome<Selected> {
    let nothing = || Selected { chosen: Vec::new(), room: Room::default() };
    let Some(queue) = queue else { return Ok(nothing()) };
    let policy = cx.policy(&claim.queue);
    // A lease that is given back counts until it is reclaimed, also after it expired: so nothing is reclaimed here, and
    // other expired leases keep their places until the next claim.
    if policy.reclaim == Reclaim::Auto && given_back.is_none() {
        reclaim(tx, cx, queue.key).await?;
    }
    let limit = if given_back.is_some() { claim.limit.max(1) } else { claim.limit };
    if queue.paused || limit == 0 {
        return Ok(nothing());
    }
    let_in(tx, cx, queue).await?;
    let counted = Room::is_bounded_by(policy) || how.upstreams.is_some();
    let active = if counted { tx.active_by_kind(queue.key).await? } else { BTreeMap::new() };
    let mut room = Room::new(policy, active).with_worktrees(how.worktrees.cloned());
    if let Some(upstreams) = how.upstreams {
        let mut kinds: Vec<&str> = how.only_kinds.into_iter().flatten().map(String::as_str).collect();
        kinds.extend(given_back.iter().filter_map(|row| row.task.kind.as_deref()));
        room = upstreams.limit(tx, cx, room, &kinds).await?;
    }
    if let Some(row) = &given_back {
        room.release(row.task.kind.as_deref());
    }
    let filter = claim.wanted.resolve(tx, cx).await?;
    loop {
        let choice = Choice {
            queue,
            policy,
            limit,
            host: claim.host.as_deref(),
            filter: &filter,
            only_kinds: how.only_kinds,
            room: room.clone(),
            beside: given_back.clone().into_iter().collect(),
        };
        let chosen = choose(tx, cx, choice).await?;
        let mut missing = match how.artifacts {
            Some(check) => check.missing(tx, cx, &chosen).await?,
            None => Vec::new(),
        };
        // What a running loop was triggered by was looked at when it was granted.
        missing.retain(|row| given_back.as_ref().is_none_or(|own| own.task.seq != row.task.seq));
        if missing.is_empty() {
            return Ok(Selected { chosen, room });
        }
        for row in missing {
            note_missing_artifact(tx, cx, &row).await?;
        }
    }
}

/// Journals that a task's artifact is gone; the task waits for it again.
async fn note_missing_artifact<T: Tx>(tx: &mut T, cx: &Cx, row: &Row) -> Result<(), Fault> {
    let next = Task { artifact_present: false, ..row.task.clone() };
    let mut change = write::Change::new(EventKind::ArtifactMissing, next);
    change.data.facts.extend([write::fact("artifactPresent", &false)]);
    write::save(tx, cx, row, change).await.map(drop)
}

/// Grants what was chosen.
pub(super) async fn grant_chosen<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    chosen: Vec<Row>,
    how: &How<'_>,
) -> Outcome<Vec<Grant>> {
    let plain = matches!(how.command, Command::Claim { .. });
    if plain && chosen.iter().all(|row| row.task.parent.is_none()) {
        return grant_unlinked(tx, cx, &chosen, &how.command).await;
    }
    let mut granted = Vec::new();
    for row in chosen {
        granted.push(grant(tx, cx, &row, &how.command).await?);
    }
    Ok(granted)
}

/// Grants tasks that have no parent. A plain grant means nothing for those below, so all are written in one go.
async fn grant_unlinked<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    chosen: &[Row],
    command: &Command,
) -> Outcome<Vec<Grant>> {
    let mut changes = Vec::with_capacity(chosen.len());
    for row in chosen {
        changes.push((row, granting(cx, row, command)?));
    }
    let mut granted = Vec::with_capacity(chosen.len());
    for task in write::save_unlinked(tx, cx, changes).await? {
        let blockers = tx.blockers(&cx.scope, &task.id).await?;
        granted.push(Grant { task, blockers });
    }
    Ok(granted)
}

/// Takes back every lease of a queue that has run out, oldest first, in batches until none is left.
pub(super) async fn reclaim<T: Tx>(tx: &mut T, cx: &Cx, queue: i64) -> Outcome<Vec<TaskId>> {
    let mut reclaimed = Vec::new();
    loop {
        let expired = tx.expired(queue, cx.now, BATCH).await?;
        let is_last = expired.len() < BATCH;
        for row in expired {
            let row = write::step_or_refuse(tx, cx, &row, &Command::Lose).await?;
            reclaimed.push(row.task.id);
        }
        if is_last {
            return Ok(reclaimed);
        }
    }
}

/// Lets in what has cooled down, in batches until nothing is left.
pub(super) async fn let_in<T: Tx>(tx: &mut T, cx: &Cx, queue: &QueueRow) -> Result<(), Fault> {
    while tx.promote_due(queue.key, cx.now, BATCH).await? == BATCH {}
    Ok(())
}

/// What to choose from, and how much.
pub(super) struct Choice<'a> {
    pub queue: &'a QueueRow,
    pub policy: &'a QueuePolicy,
    pub limit: usize,
    pub host: Option<&'a str>,
    pub filter: &'a Filter,
    pub only_kinds: Option<&'a [String]>,
    /// What the ceilings leave.
    pub room: Room,
    /// Tasks that are not in the ready index, but would be by the time a claim chooses.
    pub beside: Vec<Row>,
}

/// Goes through the priorities from the most urgent one, looking only at the heads of their buckets.
pub(super) async fn choose<T: Tx>(tx: &mut T, cx: &Cx, from: Choice<'_>) -> Result<Vec<Row>, Fault> {
    let Choice { queue, policy, limit, host, filter, only_kinds, mut room, beside } = from;
    let mut beside_by_priority: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
    for row in beside {
        beside_by_priority.entry(row.task.sort_priority()).or_default().push(row);
    }
    let mut chosen: Vec<Row> = Vec::new();
    let mut after = None;
    while chosen.len() < limit && room.left() != Some(0) {
        let wanted = limit - chosen.len();
        let full_kinds = room.full_kinds();
        let query = HeadQuery {
            queue: queue.key,
            bucketed: policy.is_bucketed(),
            after,
            per_bucket: wanted,
            now: cx.now,
            overdue_before: rank::overdue_before(policy, cx.now),
            host,
            full_kinds: &full_kinds,
            only_kinds,
            filter,
        };
        let level = tx.heads(&query).await?;
        let priorities = level.iter().map(|level| level.priority).chain(beside_by_priority.keys().copied());
        let Some(priority) = priorities.min() else { break };
        after = Some(priority);
        let level = level.filter(|level| level.priority == priority);
        let mut rows = level.map_or(Vec::new(), |level| level.rows);
        rows.extend(beside_by_priority.remove(&priority).unwrap_or_default());
        rows.sort_by_key(|row| row.task.seq);
        rows.dedup_by_key(|row| row.task.seq);
        let candidates = rows.iter().map(|row| candidate(row, policy)).collect();
        let selected = select::select(candidates, &mut room, policy, cx.now, wanted);
        let seqs: Vec<u64> = rows.iter().map(|row| row.task.seq).collect();
        let mut rows: Vec<Option<Row>> = rows.into_iter().map(Some).collect();
        let place = |candidate: &Candidate| seqs.binary_search(&candidate.rankable.seq).ok();
        chosen.extend(selected.iter().filter_map(place).filter_map(|place| rows[place].take()));
    }
    Ok(chosen)
}

pub(super) fn candidate(row: &Row, policy: &QueuePolicy) -> Candidate {
    Candidate {
        id: row.task.id.clone(),
        kind: row.task.kind.clone(),
        rankable: Rankable::of(&row.task, policy),
    }
}

/// What a grant changes, with the facts it was decided by.
fn granting(cx: &Cx, row: &Row, command: &Command) -> Result<write::Change, Refusal> {
    let applied = transition::apply(&row.task, command, cx.policy(&row.task.queue), cx.now)?;
    let facts =
        row.task.triggered_by.iter().map(|_| write::fact("artifactPresent", &row.task.artifact_present));
    let data = EventData { facts: facts.collect(), ..EventData::default() };
    let fence = Some(applied.task.fence);
    let kind = EventKind::Step(applied.verb);
    Ok(write::Change { next: applied.task, kind, fence, data })
}

async fn grant<T: Tx>(tx: &mut T, cx: &Cx, row: &Row, command: &Command) -> Outcome<Grant> {
    let row = write::save(tx, cx, row, granting(cx, row, command)?).await?;
    let blockers = tx.blockers(&cx.scope, &row.task.id).await?;
    Ok(Grant { task: row.task, blockers })
}

/// Grants one task chosen by its id, in whatever queue it is, or says why not. Its own expired lease is taken back
/// first, also if the task must then wait: otherwise it would start to wait anew with every claim.
#[derive(Clone, Debug)]
pub struct ClaimById {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub id: TaskId,
    /// For whom.
    pub agent: Option<String>,
    /// How long; none for as long as the policy says.
    pub ttl_ms: Option<i64>,
    /// It must also be one of these.
    pub wanted: Wanted,
    /// The host that would run it.
    pub host: Option<String>,
}

#[async_trait]
impl Intent for ClaimById {
    type Output = Grant;

    fn is_kept(&self, ran: &Outcome<Grant>) -> bool {
        matches!(ran, Ok(_) | Err(Error::Refused(Refusal::NotEligible { .. })))
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Grant> {
        // A look without a lock tells the queue, whose turn comes before task rows.
        let seen = tx.tasks(&self.call.scope, std::slice::from_ref(&self.id)).await?.pop();
        let name = seen.ok_or_else(|| Refusal::TaskNotFound { id: self.id.clone() })?.task.queue;
        let (cx, queue) = Cx::open_for_grant(tx, &self.call, &name).await?;
        let policy = cx.policy(&name);
        let mut row = find_task(tx, &cx, &self.id).await?;
        if policy.reclaim == Reclaim::Auto && row.task.lease_expired(cx.now) {
            row = write::step_or_refuse(tx, &cx, &row, &Command::Lose).await?;
        }
        let viewer = Viewer {
            queue_paused: queue.as_ref().is_some_and(|queue| queue.paused),
            host: self.host.clone(),
            runners: None,
        };
        let mut reasons = obstacles(tx, &cx, &row, &viewer).await?;
        if reasons.is_empty() && Room::is_bounded_by(policy) {
            let active = tx.active_by_kind(queue.as_ref().map_or(0, |queue| queue.key)).await?;
            reasons.extend(Room::new(policy, active).wait(row.task.kind.as_deref()).map(Reason::Wait));
        }
        let wanted = self.wanted.resolve(tx, &cx).await?.admits(&row.task);
        if !reasons.is_empty() || !wanted {
            return Err(Refusal::NotEligible { id: self.id.clone(), reasons }.into());
        }
        let command = Command::Claim { agent: self.agent.clone(), ttl_ms: self.ttl_ms };
        grant(tx, &cx, &row, &command).await
    }
}

async fn obstacles<T: Tx>(tx: &mut T, cx: &Cx, row: &Row, viewer: &Viewer) -> Outcome<Vec<Reason>> {
    let mut facts = write::facts(tx, cx, row).await?;
    facts.blocked_by = open_blockers(tx, cx, &row.task.id).await?;
    let mut found: Vec<Obstacle> = obstacle::obstacles(&row.task, &facts, cx.now);
    found.extend(obstacle::viewer_obstacles(&row.task, viewer));
    Ok(found.into_iter().map(Reason::Obstacle).collect())
}

/// The ids of a task's blockers that are not done.
pub(super) async fn open_blockers<T: Tx>(tx: &mut T, cx: &Cx, id: &TaskId) -> Result<Vec<TaskId>, Fault> {
    let blockers = tx.blockers(&cx.scope, id).await?;
    Ok(blockers
        .into_iter()
        .filter(|blocker| !blocker.status.satisfies_edge())
        .map(|blocker| blocker.id)
        .collect())
}

/// Takes back every expired lease of a queue: the outcome `lost`.
#[derive(Clone, Debug)]
pub struct ReclaimExpired {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
}

#[async_trait]
impl Intent for ReclaimExpired {
    type Output = Vec<TaskId>;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<TaskId>> {
        let cx = Cx::open(tx, &self.call).await?;
        match find_queue(tx, &cx, &self.queue).await? {
            Some(queue) => reclaim(tx, &cx, queue.key).await,
            None => Ok(Vec::new()),
        }
    }
}
