//! What a turn settles and claims, as the statement for one and the function for many are told it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use rota_core::transition::Command;
use rota_core::{Caller, Json, Task, TaskId, UnixMillis};
use tokio_postgres::types::ToSql;

use super::Shared;
use super::at_once::Belief;
use super::granted;
use super::one::{Common, OneClaim, OneDone, Texts};
use super::together::{Joint, Room};
use super::tx::PostgresTx;
use crate::fault::Fault;
use crate::intents::claim::Claim;
use crate::intents::settle::Step;
use crate::tx::{AtOnce, DoneAtOnce};

/// One turn: what to settle, what to claim, and the number that marks it in the journal.
#[derive(Clone)]
pub(super) struct Turn {
    pub done: Done,
    pub claim: Option<Next>,
    pub call: i64,
}

/// A turn with one task at a time.
pub(super) struct OneTurn<'a> {
    common: Common<'a>,
    done: Option<OneDone<'a>>,
    claim: Option<OneClaim<'a>>,
}

impl OneTurn<'_> {
    pub fn values(&self) -> Values<'_> {
        let mut values = self.common.values();
        values.extend(self.done.iter().flat_map(OneDone::values));
        values.extend(self.claim.iter().flat_map(OneClaim::values));
        values
    }
}

impl Turn {
    /// Whether turns of others may go with it: it is of one task, at the server's time.
    pub fn is_joint(&self) -> bool {
        let (steps, claim) = (self.done.ids.len(), &self.claim);
        let is_one = steps <= 1 && claim.as_ref().is_none_or(|claim| claim.one().is_some());
        is_one && (steps == 0 || self.done.one().is_some()) && self.done.now.is_none()
    }

    /// Turns of others and its own as one.
    pub fn together(turns: &[&Self], call: i64) -> Option<Self> {
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
    pub fn of_one<'a>(&'a self, texts: &'a Texts) -> Option<(&'a str, OneTurn<'a>)> {
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

    pub fn steps(&self, mut settled: BTreeMap<String, Task>) -> Vec<Option<Task>> {
        self.done.ids.iter().map(|id| settled.remove(id)).collect()
    }

    pub fn values(&self) -> Values<'_> {
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

/// What to settle: the first arguments of `turn_at_once`. Who acts is told for each step, or once for all.
#[derive(Clone)]
pub(super) struct Done {
    pub scope: String,
    pub ids: Vec<String>,
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
    pub fn of(work: &AtOnce<'_>, belief: &Belief) -> Option<Self> {
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
    pub fn know(&mut self, work: &AtOnce<'_>, shared: &Shared) {
        let mut granted = shared.known_grants();
        let leases =
            work.steps.iter().map(|step| plain_done(step).and_then(|(_, caller, _)| caller.lease.as_ref()));
        self.known = leases.map(|lease| granted.take(&work.call.scope, lease?)).collect();
        let events = |task: &Task| task.events.cast_signed();
        self.known_events = self.known.iter().map(|task| task.as_ref().map(events)).collect();
    }

    /// A task that is done and did not come back whole.
    pub fn known_done(&self, place: usize, now: UnixMillis) -> Result<Task, Fault> {
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

    pub fn values(&self) -> Values<'_> {
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
pub(super) struct Next {
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
    pub fn of(claim: &Claim, actor: &Option<String>, belief: &Belief) -> Option<Self> {
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

    pub fn values(&self) -> Values<'_> {
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
