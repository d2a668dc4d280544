//! The common case in one round trip: settle what is simply done, claim what is simply next.
//!
//! For one task at a time that is a statement ([`super::one`]), for many a function in the database
//! ([`super::sql::TURN_AT_ONCE`]), which also serves turns of one that go together ([`super::together`]). Both say when there
//! is more to do than they can, and then the ordinary way does it. The suite shows that all ways choose and write the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use rota_core::transition::Command;
use rota_core::{Caller, Json, Task, TaskId, UnixMillis};
use tokio_postgres::Row as PgRow;
use tokio_postgres::types::ToSql;

use super::again::Found;
use super::ask::Answer;
use super::granted;
use super::one::{Common, OneClaim, OneDone, Texts};
use super::row::{self, Behind, Record, get};
use super::together::{Entry, Joint, Room};
use super::tx::PostgresTx;
use super::{Object, Shared};
use crate::fault::Fault;
use crate::intents::claim::{Claim, Grant};
use crate::intents::default_policy;
use crate::intents::settle::Step;
use crate::tx::{AtOnce, Blocker, DoneAtOnce, Published};

/// What the functions are told of the policy: what the caller believes is published, and what to journal.
pub(super) struct Belief {
    pub published: Option<String>,
    pub in_force: Arc<Published>,
}

impl PostgresTx {
    pub(super) async fn do_at_once(&mut self, work: &AtOnce<'_>) -> Result<DoneAtOnce, Fault> {
        if let Some(done) = &self.done_before {
            return Ok(done.clone());
        }
        let nothing = || DoneAtOnce { steps: vec![None; work.steps.len()], granted: None };
        let belief = self.belief(&work.call.scope).filter(|_| self.may_be_at_once());
        let Some(belief) = belief else { return Ok(nothing()) };
        let claim = work.then.and_then(|claim| Next::of(claim, &work.call.actor, &belief));
        // Steps that are not simply done come first, the ordinary way.
        let Some(mut done) = Done::of(work, &belief) else { return Ok(nothing()) };
        if done.ids.is_empty() && claim.is_none() {
            return Ok(nothing());
        }
        let shared = Arc::clone(&self.shared);
        done.know(work, &shared);
        let turn = Turn { done, claim, call: shared.calls.next() };
        let result = if turn.is_joint() && shared.prepare.by_name() {
            self.with_others(&turn).await?
        } else {
            let _permit = self.wait_for_a_turn(&shared).await?;
            self.by_itself(&turn).await?
        };
        // Inside a transaction it is done with the rest or not at all.
        let more_is_left = work.then.is_some() && result.granted.is_none() || result.steps.contains(&None);
        if more_is_left && !self.begun && result.steps.iter().any(Option::is_some) {
            self.done_before = Some(result.clone());
        }
        Ok(result)
    }

    /// The right to take a turn of many tasks: each has to step over what the others have locked. Who has to wait gives its
    /// connection back meanwhile, so that those at work stay at the same few.
    async fn wait_for_a_turn<'a>(&mut self, shared: &'a Shared) -> Result<Permit<'a>, Fault> {
        if let Ok(permit) = shared.batches.try_acquire() {
            return Ok(Some(permit));
        }
        self.client = None;
        let permit = shared.batches.acquire().await.ok();
        self.client = Some(shared.client().await?);
        Ok(permit)
    }

    /// Carries out a turn, by the statement for one where it is of one.
    async fn by_itself(&mut self, turn: &Turn) -> Result<DoneAtOnce, Fault> {
        let shared = Arc::clone(&self.shared);
        let one = turn.of_one(&shared.texts.one).filter(|_| shared.prepare.by_name());
        let answer = match &one {
            Some((text, one)) => shared.alone(self.client(), text, &one.values()).await?,
            None if shared.prepare.by_name() => {
                self.call(&shared.texts.turn_at_once, &turn.values(), turn.call).await?
            }
            None => self.call(&shared.texts.turn_in_columns, &turn.values(), turn.call).await?,
        };
        match answer {
            Answer::Rows(rows) if one.is_some() => self.read_one(turn, &rows).await,
            Answer::Rows(rows) => self.read_many(turn, &rows).await,
            Answer::Lost(met) => self.find_turn(turn, met).await,
        }
    }

    /// Carries out a turn of one task, together with those of others if many are at work.
    async fn with_others(&mut self, turn: &Turn) -> Result<DoneAtOnce, Fault> {
        match self.enter(|| turn.clone()).await? {
            Entry::Answered(result) => Ok(result),
            Entry::Go(seat) => {
                let result = self.by_itself(turn).await;
                drop(seat);
                result
            }
        }
    }

    /// What the statement for one says, row by row.
    async fn read_one(&mut self, turn: &Turn, rows: &[PgRow]) -> Result<DoneAtOnce, Fault> {
        let mut done = DoneAtOnce { steps: vec![None; turn.done.ids.len()], granted: None };
        let mut granted = Vec::new();
        for row in rows {
            if get(row, 0)? {
                done.granted.get_or_insert_default();
            }
            let Some(task) = self.task_in(row, 2).await? else { continue };
            if get(row, 1)? {
                granted.push(task);
            } else {
                done.steps = vec![Some(task)];
            }
        }
        if !granted.is_empty() {
            done.granted = Some(self.grants(granted).await?);
        }
        Ok(done)
    }

    /// What the function says.
    async fn read_many(&mut self, turn: &Turn, rows: &[PgRow]) -> Result<DoneAtOnce, Fault> {
        let mut steps = vec![None; turn.done.ids.len()];
        let mut granted: Vec<(i64, Task)> = Vec::with_capacity(rows.len());
        let mut is_tried = turn.claim.is_some();
        for row in rows {
            let (place, is_step, now): (i64, bool, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
            let task = self.task_in(row, 3).await?;
            match (usize::try_from(place - 1), task) {
                (Err(_), _) => is_tried = false,
                (Ok(place), task) if is_step => {
                    let known = || turn.done.known_done(place, UnixMillis::new(now));
                    steps[place] = Some(task.map_or_else(known, Ok)?);
                }
                (Ok(_), Some(task)) => granted.push((place, task)),
                (Ok(_), None) => {
                    return Err(Fault::Unreadable { problem: "a grant without its task".to_owned() });
                }
            }
        }
        granted.sort_by_key(|(place, _)| *place);
        let granted = granted.into_iter().map(|(_, task)| task).collect();
        let granted = if is_tried { Some(self.grants(granted).await?) } else { None };
        Ok(DoneAtOnce { steps, granted })
    }

    /// The task that stands in one column, or from there on in columns of its own.
    async fn task_in(&mut self, row: &PgRow, column: usize) -> Result<Option<Task>, Fault> {
        if row.len() > column + 1 {
            let columns = Behind(row, column);
            let Some(queue) = get(&columns, row::QUEUE)? else { return Ok(None) };
            return Ok(Some(row::task_in(&columns, self.queue_name(queue).await?)?.task));
        }
        let Some(record) = get::<Option<Record<'_>>>(row, column)? else { return Ok(None) };
        let queue = self.queue_name(get(&record, row::QUEUE)?).await?;
        Ok(Some(row::task_in(&record, queue)?.task))
    }

    /// What a queue is called, asked for once.
    async fn queue_name(&mut self, key: i64) -> Result<String, Fault> {
        if let Some(name) = self.shared.known_queues().get(&key) {
            return Ok(name.clone());
        }
        let shared = Arc::clone(&self.shared);
        let rows = self.read_after(&shared.texts.one.queue_name, &[&key]).await?;
        let Some(row) = rows.first() else {
            return Err(Fault::Unreadable {
                problem: format!("a task names queue {key}, which is not there"),
            });
        };
        let name: String = get(row, 0)?;
        shared.known_queues().insert(key, name.clone());
        Ok(name)
    }

    /// With what each waited for: nothing, if nothing happened to it but its creation and this.
    async fn grants(&mut self, tasks: Vec<Task>) -> Result<Vec<Grant>, Fault> {
        {
            let mut known = self.shared.known_grants();
            tasks.iter().for_each(|task| known.keep(task));
        }
        let past: Vec<&str> =
            tasks.iter().filter(|task| task.events > 2).map(|task| task.id.as_str()).collect();
        let mut found: BTreeMap<TaskId, Vec<Blocker>> = BTreeMap::new();
        if let (Some(task), false) = (tasks.first(), past.is_empty()) {
            let shared = Arc::clone(&self.shared);
            let rows = self.read_after(&shared.texts.one.blockers, &[&task.scope.as_str(), &past]).await?;
            for row in &rows {
                found.entry(row::id(row, 4)?).or_default().push(row::blocker(row)?);
            }
        }
        let grant = |task: Task| Grant { blockers: found.remove(&task.id).unwrap_or_default(), task };
        Ok(tasks.into_iter().map(grant).collect())
    }

    /// Reads what belongs to the answer of something that is done and stays done: once more at another connection if
    /// this one is lost.
    async fn read_after(&mut self, text: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<PgRow>, Fault> {
        if self.begun {
            return self.query(text, values).await;
        }
        let shared = Arc::clone(&self.shared);
        match shared.rows(self.client(), text, values).await {
            Err(fault) if fault.exit_code() == 75 => {
                drop(self.client.take().map(Object::take));
                let unknown = |fault: Fault| shared.unknown(&fault.to_string());
                self.client = Some(shared.client().await.map_err(unknown)?);
                shared.rows(self.client(), text, values).await.map_err(unknown)
            }
            answer => answer,
        }
    }

    /// What a turn did whose answer was lost.
    async fn find_turn(&mut self, turn: &Turn, met: Fault) -> Result<DoneAtOnce, Fault> {
        let scope = &turn.done.scope;
        let found = self.find_again(scope, turn.call, met).await?;
        let (granted, settled): (Vec<Found>, Vec<Found>) = found.into_iter().partition(Found::is_grant);
        let settled = settled.into_iter().map(|found| (found.task.id.to_string(), found.task)).collect();
        let steps = turn.steps(settled);
        // From here on a fault must not make it look undone.
        self.done_before = Some(DoneAtOnce { steps: steps.clone(), granted: None });
        self.client = Some(self.shared.client().await?);
        if granted.is_empty() {
            return Ok(DoneAtOnce { steps, granted: None });
        }
        let granted = Some(self.granted_again(scope, granted).await?);
        self.done_before = None;
        Ok(DoneAtOnce { steps, granted })
    }

    /// What this process believes is in force; none if it never looked.
    pub(super) fn belief(&self, scope: &str) -> Option<Belief> {
        let known = self.known_policy(scope)?;
        Some(Belief {
            published: known.as_ref().map(|published| published.version.clone()),
            in_force: known.unwrap_or_else(default_policy),
        })
    }

    /// One statement that is a transaction of its own. Through a pooler it is a part of ours, because nobody could say
    /// which process of the server had it.
    pub(super) async fn call(
        &mut self,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
        call: i64,
    ) -> Result<Answer, Fault> {
        let shared = Arc::clone(&self.shared);
        if shared.prepare.by_name() && self.may_be_at_once() {
            return shared.alone(self.client(), text, values).await;
        }
        let rows = self.query(text, values).await?;
        if let Some(trace) = &mut self.trace {
            trace.call = Some(call);
        }
        Ok(Answer::Rows(rows))
    }
}

/// One turn: what to settle, what to claim, and the number that marks it in the journal.
#[derive(Clone)]
pub(super) struct Turn {
    done: Done,
    claim: Option<Next>,
    call: i64,
}

/// A turn with one task at a time.
struct OneTurn<'a> {
    common: Common<'a>,
    done: Option<OneDone<'a>>,
    claim: Option<OneClaim<'a>>,
}

impl OneTurn<'_> {
    fn values(&self) -> Values<'_> {
        let mut values = self.common.values();
        values.extend(self.done.iter().flat_map(OneDone::values));
        values.extend(self.claim.iter().flat_map(OneClaim::values));
        values
    }
}

impl Turn {
    /// Whether turns of others may go with it: it is of one task, at the server's time.
    fn is_joint(&self) -> bool {
        let (steps, claim) = (self.done.ids.len(), &self.claim);
        let is_one = steps <= 1 && claim.as_ref().is_none_or(|claim| claim.one().is_some());
        is_one && (steps == 0 || self.done.one().is_some()) && self.done.now.is_none()
    }

    /// Turns of others and its own as one.
    fn together(turns: &[&Self], call: i64) -> Option<Self> {
        let first = turns.first()?;
        let mut done = Done { ids: Vec::new(), ..first.done.clone() };
        for column in [&mut done.agents, &mut done.results, &mut done.actors] {
            column.clear();
        }
        done.fences.clear();
        done.known.clear();
        done.known_events.clear();
        for Done { ids, known, known_events, fences, agents, results, actors, .. } in
            turns.iter().map(|turn| &turn.done)
        {
            done.ids.extend_from_slice(ids);
            done.known.extend_from_slice(known);
            done.known_events.extend_from_slice(known_events);
            done.fences.extend_from_slice(fences);
            done.agents.extend_from_slice(agents);
            done.results.extend_from_slice(results);
            done.actors.extend(ids.iter().zip(actors).map(|(_, actor)| actor.clone()));
        }
        let takers: Vec<&Next> = turns.iter().filter_map(|turn| turn.claim.as_ref()).collect();
        let claim = first.claim.as_ref().map(|claim| Next {
            limit: Some(takers.len() as i64),
            takers: takers.iter().flat_map(|next| next.takers.clone()).collect(),
            actors: takers.iter().flat_map(|next| next.actors.clone()).collect(),
            heads: takers.iter().flat_map(|next| next.heads.clone()).collect(),
            ..claim.clone()
        });
        Some(Self { done, claim, call })
    }

    /// What of the result of turns that went together is that of each.
    fn apart(turns: &[&Self], result: DoneAtOnce) -> Vec<DoneAtOnce> {
        let mut steps = result.steps.into_iter();
        let mut granted = result.granted.map(Vec::into_iter);
        let own = |turn: &&Self| DoneAtOnce {
            steps: steps.by_ref().take(turn.done.ids.len()).collect(),
            granted: match (&turn.claim, &mut granted) {
                (Some(_), Some(granted)) => Some(granted.next().into_iter().collect()),
                _ => None,
            },
        };
        turns.iter().map(own).collect()
    }

    /// The statement for it, if it is of one task at a time.
    fn of_one<'a>(&'a self, texts: &'a Texts) -> Option<(&'a str, OneTurn<'a>)> {
        let (done, claim) = (self.done.one(), self.claim.as_ref().and_then(Next::one));
        let text = match (self.done.ids.len(), &done, &self.claim, &claim) {
            (0, _, _, Some(_)) => &texts.claim,
            (1, Some(_), None, _) => &texts.done,
            (1, Some(_), _, Some(_)) => &texts.both,
            _ => return None,
        };
        let common = Common {
            scope: &self.done.scope,
            published: &self.done.published,
            version: &self.done.version,
            actor: self.actor(),
            now: self.done.now,
            call: self.call,
        };
        Some((text, OneTurn { common, done, claim }))
    }

    /// Who acts in a turn of one.
    fn actor(&self) -> &Option<String> {
        let claim = self.claim.as_ref().and_then(|claim| claim.actors.first());
        self.done.actors.first().or(claim).unwrap_or(&None)
    }

    fn steps(&self, mut settled: BTreeMap<String, Task>) -> Vec<Option<Task>> {
        self.done.ids.iter().map(|id| settled.remove(id)).collect()
    }

    fn values(&self) -> Values<'_> {
        let mut values = self.done.values();
        match &self.claim {
            Some(claim) => values.extend(claim.values()),
            None => values.extend(Next::NONE.values()),
        }
        values.push(&self.call);
        values
    }
}

type Values<'a> = Vec<&'a (dyn ToSql + Sync)>;
type Permit<'a> = Option<tokio::sync::SemaphorePermit<'a>>;

/// What to settle: the first arguments of `turn_at_once`. Who acts is told for each step, or once for all.
#[derive(Clone)]
struct Done {
    scope: String,
    ids: Vec<String>,
    /// The tasks as they were granted, those that this process knows, and how many events they had.
    known: Vec<Option<Task>>,
    known_events: Vec<Option<i64>>,
    fences: Vec<Option<i64>>,
    agents: Vec<Option<String>>,
    results: Vec<Option<String>>,
    strict: Vec<String>,
    now: Option<i64>,
    published: Option<String>,
    version: String,
    actors: Vec<Option<String>>,
}

impl Done {
    /// Only if every step is a plain `done`, each on a task of its own.
    fn of(work: &AtOnce<'_>, belief: &Belief) -> Option<Self> {
        let steps: Vec<(&TaskId, &Caller, &Option<Json>)> =
            work.steps.iter().map(plain_done).collect::<Option<_>>()?;
        let distinct: BTreeSet<&TaskId> = steps.iter().map(|(id, ..)| *id).collect();
        if distinct.len() != steps.len() {
            return None;
        }
        let named =
            |caller: &Caller, id: &TaskId| caller.lease.as_ref().is_none_or(|lease| lease.task == *id);
        if !steps.iter().all(|(id, caller, _)| named(caller, id)) {
            return None;
        }
        let fence = |caller: &Caller| caller.lease.as_ref().map(|lease| lease.fence.get().cast_signed());
        let result = |json: &Option<Json>| {
            let json = json.as_ref().filter(|json| json.as_str() != "null");
            json.map(|json| json.as_str().to_owned())
        };
        let queues = &belief.in_force.policy.queues;
        Some(Self {
            scope: work.call.scope.clone(),
            ids: steps.iter().map(|(id, ..)| id.to_string()).collect(),
            known: vec![None; steps.len()],
            known_events: vec![None; steps.len()],
            fences: steps.iter().map(|(_, caller, _)| fence(caller)).collect(),
            agents: steps.iter().map(|(_, caller, _)| caller.agent.clone()).collect(),
            results: steps.iter().map(|(.., json)| result(json)).collect(),
            strict: queues
                .iter()
                .filter(|(_, queue)| queue.require_lease)
                .map(|(name, _)| name.clone())
                .collect(),
            now: work.call.now.map(UnixMillis::get),
            published: belief.published.clone(),
            version: belief.in_force.version.clone(),
            actors: vec![work.call.actor.clone()],
        })
    }

    /// Remembers what it is to settle, where this process was granted it.
    fn know(&mut self, work: &AtOnce<'_>, shared: &Shared) {
        let mut granted = shared.known_grants();
        let leases =
            work.steps.iter().map(|step| plain_done(step).and_then(|(_, caller, _)| caller.lease.as_ref()));
        self.known = leases.map(|lease| granted.take(&work.call.scope, lease?)).collect();
        let events = |task: &Task| task.events.cast_signed();
        self.known_events = self.known.iter().map(|task| task.as_ref().map(events)).collect();
    }

    /// A task that is done and did not come back whole.
    fn known_done(&self, place: usize, now: UnixMillis) -> Result<Task, Fault> {
        let known = self.known.get(place).cloned().flatten();
        let Some(task) = known else {
            return Err(Fault::Unreadable { problem: "a settled task did not come back".to_owned() });
        };
        let result = self.results.get(place).and_then(Option::as_ref);
        let result = result.map(|result| Json::from_stored(result.clone()));
        Ok(granted::done(task, result, now))
    }

    /// The one that is to be settled, if it is only one and names what it must.
    fn one(&self) -> Option<OneDone<'_>> {
        let ([id], [fence], [agent], [result]) =
            (&self.ids[..], &self.fences[..], &self.agents[..], &self.results[..])
        else {
            return None;
        };
        if fence.is_none() && !self.strict.is_empty() {
            return None;
        }
        let said = result.as_ref().map_or(String::new(), |result| format!(",\"result\":{result}"));
        let tail = format!("\",\"leaseExpiresAt\":null{said}}}}}");
        Some(OneDone { id, fence: *fence, agent, result, tail })
    }

    fn values(&self) -> Values<'_> {
        vec![
            &self.scope,
            &self.ids,
            &self.known_events,
            &self.fences,
            &self.agents,
            &self.results,
            &self.actors,
            &self.strict,
            &self.now,
            &self.published,
            &self.version,
        ]
    }
}

fn plain_done(step: &Step) -> Option<(&TaskId, &Caller, &Option<Json>)> {
    match &step.command {
        Command::Done { caller, result } => Some((&step.id, caller, result)),
        _ => None,
    }
}

/// What to claim: the other arguments of `turn_at_once`. Without a queue, nothing. Who takes is told for each grant, or once
/// for all.
#[derive(Clone, PartialEq)]
struct Next {
    queue: Option<String>,
    limit: Option<i64>,
    ceiling: Option<i64>,
    auto: Option<bool>,
    takers: Vec<Option<String>>,
    actors: Vec<Option<String>>,
    /// How the data of the event begins.
    heads: Vec<String>,
    ttl_ms: Option<i64>,
    host: Option<String>,
}

impl Next {
    const NONE: &'static Self = &Self {
        queue: None,
        limit: None,
        ceiling: None,
        auto: None,
        takers: Vec::new(),
        actors: Vec::new(),
        heads: Vec::new(),
        ttl_ms: None,
        host: None,
    };

    /// Only for a queue without buckets, and a caller who takes whatever is next.
    fn of(claim: &Claim, actor: &Option<String>, belief: &Belief) -> Option<Self> {
        let policy = belief.in_force.policy.queue(&claim.queue);
        let any = claim.wanted.category.is_none() && claim.wanted.specs.is_none();
        if policy.is_bucketed() || !any || claim.limit == 0 {
            return None;
        }
        Some(Self {
            queue: Some(claim.queue.clone()),
            limit: Some(i64::try_from(claim.limit).unwrap_or(i64::MAX)),
            ceiling: policy.max_concurrent.map(i64::from),
            auto: Some(policy.reclaim == rota_core::policy::Reclaim::Auto),
            takers: vec![claim.agent.clone()],
            actors: vec![actor.clone()],
            heads: vec![head(claim.agent.as_ref())],
            ttl_ms: Some(claim.ttl_ms.unwrap_or_else(|| policy.lease_ttl())),
            host: claim.host.clone(),
        })
    }

    /// The one that is wanted, if it is only one and the queue has no ceiling.
    fn one(&self) -> Option<OneClaim<'_>> {
        let (Some(queue), Some(1), None) = (&self.queue, self.limit, self.ceiling) else { return None };
        let ([agent], [head]) = (&self.takers[..], &self.heads[..]) else { return None };
        Some(OneClaim {
            queue,
            auto: self.auto.unwrap_or_default(),
            agent,
            ttl_ms: self.ttl_ms.unwrap_or_default(),
            host: &self.host,
            head,
        })
    }

    /// Whether it is the same but for who takes.
    fn is_like(&self, other: &Self) -> bool {
        (&self.queue, self.auto, self.ttl_ms, &self.host)
            == (&other.queue, other.auto, other.ttl_ms, &other.host)
    }

    fn values(&self) -> Values<'_> {
        vec![
            &self.queue,
            &self.limit,
            &self.ceiling,
            &self.auto,
            &self.takers,
            &self.actors,
            &self.heads,
            &self.ttl_ms,
            &self.host,
        ]
    }
}

/// How the data of a grant's event begins.
fn head(agent: Option<&String>) -> String {
    let named = |agent: &String| format!("\"assignee\":{},", Json::of(agent).as_str());
    format!("{{\"changes\":{{{}\"fence\":", agent.map_or(String::new(), named))
}

impl Joint for Turn {
    type Answer = DoneAtOnce;

    fn room(shared: &Shared) -> &Mutex<Room<Self>> {
        &shared.turns
    }

    /// The same policy, the same claim but for who takes, and no task twice.
    fn goes_with(&self, others: &[&Self]) -> bool {
        let Some(first) = others.first() else { return true };
        let (own, other) = (&self.done, &first.done);
        let same_policy = (&own.scope, &own.published, &own.version, &own.strict)
            == (&other.scope, &other.published, &other.version, &other.strict);
        let same_claim = match (&self.claim, &first.claim) {
            (Some(claim), Some(other)) => claim.is_like(other),
            (None, None) => true,
            _ => false,
        };
        let is_there = |id: &String| others.iter().any(|other| other.done.ids.contains(id));
        same_policy && same_claim && !own.ids.iter().any(is_there)
    }

    async fn carry_out(tx: &mut PostgresTx, turns: &[&Self]) -> Result<Vec<DoneAtOnce>, Fault> {
        let Some(turn) = Self::together(turns, tx.shared.calls.next()) else { return Ok(Vec::new()) };
        let result = tx.by_itself(&turn).await?;
        Ok(Self::apart(turns, result))
    }
}
