//! The common case in one round trip: settle what is simply done, claim what is simply next.
//!
//! For one task at a time that is a statement ([`super::one`]), for many a function in the database
//! ([`super::sql::TURN_AT_ONCE`]). Both say when there is more to do than they can, and then the ordinary way does it. The
//! suite shows that all ways choose and write the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rota_core::transition::Command;
use rota_core::{Caller, Json, Status, Task, TaskId, UnixMillis};
use serde::Deserialize;
use tokio_postgres::Row as PgRow;
use tokio_postgres::types::ToSql;

use super::Object;
use super::again::Found;
use super::ask::Answer;
use super::one::{Common, OneClaim, OneDone, Texts};
use super::row::{self, Record, get};
use super::tx::PostgresTx;
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
        let claim = work.then.and_then(|claim| Next::of(claim, &belief));
        // Steps that are not simply done come first, the ordinary way.
        let Some(done) = Done::of(work, &belief) else { return Ok(nothing()) };
        if done.ids.is_empty() && claim.is_none() {
            return Ok(nothing());
        }
        let call = self.shared.calls.next();
        let turn = Turn { work, done, claim, call };
        let shared = Arc::clone(&self.shared);
        let one = turn.of_one(&shared.texts.one).filter(|_| shared.prepare.by_name());
        let answer = match &one {
            Some((text, one)) => shared.alone(self.client(), text, &one.values()).await?,
            None => self.call(&shared.texts.turn_at_once, &turn.values(), turn.call).await?,
        };
        let result = match answer {
            Answer::Rows(rows) if one.is_some() => self.read_one(&turn, &rows).await?,
            Answer::Rows(rows) => turn.read(&rows)?,
            Answer::Lost(met) => self.find_turn(&turn, met).await?,
        };
        // Inside a transaction it is done with the rest or not at all.
        let more_is_left = work.then.is_some() && result.granted.is_none() || result.steps.contains(&None);
        if more_is_left && !self.begun && result.steps.iter().any(Option::is_some) {
            self.done_before = Some(result.clone());
        }
        Ok(result)
    }

    /// What the statement for one says, row by row.
    async fn read_one(&mut self, turn: &Turn<'_>, rows: &[PgRow]) -> Result<DoneAtOnce, Fault> {
        let mut done = DoneAtOnce { steps: vec![None; turn.work.steps.len()], granted: None };
        for row in rows {
            if get(row, 0)? {
                done.granted.get_or_insert_default();
            }
            let Some(record) = get::<Option<Record<'_>>>(row, 2)? else { continue };
            let queue = self.queue_name(get(&record, 3)?).await?;
            let task = row::task_in(&record, queue)?.task;
            if get(row, 1)? {
                let blockers = self.blockers_of_grant(&task).await?;
                done.granted.get_or_insert_default().push(Grant { task, blockers });
            } else {
                done.steps = vec![Some(task)];
            }
        }
        Ok(done)
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

    /// What a task that was granted waited for: nothing, if nothing happened to it but its creation and this.
    async fn blockers_of_grant(&mut self, task: &Task) -> Result<Vec<Blocker>, Fault> {
        if task.events <= 2 {
            return Ok(Vec::new());
        }
        let shared = Arc::clone(&self.shared);
        let rows =
            self.read_after(&shared.texts.one.blockers, &[&task.scope.as_str(), &task.id.as_str()]).await?;
        rows.iter().map(row::blocker).collect()
    }

    /// Reads what belongs to the answer of something that is done and stays done: once more at another connection if
    /// this one is lost.
    async fn read_after(&mut self, text: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<PgRow>, Fault> {
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
    async fn find_turn(&mut self, turn: &Turn<'_>, met: Fault) -> Result<DoneAtOnce, Fault> {
        let scope = &turn.work.call.scope;
        let found = self.find_again(scope, turn.call, met).await?;
        let (granted, settled): (Vec<Found>, Vec<Found>) = found.into_iter().partition(Found::is_grant);
        let settled = settled.into_iter().map(|found| (found.task.id.clone(), found.task)).collect();
        let steps = turn.steps(&settled);
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
struct Turn<'a> {
    work: &'a AtOnce<'a>,
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

impl Turn<'_> {
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
            actor: &self.done.actor,
            now: self.done.now,
            call: self.call,
        };
        Some((text, OneTurn { common, done, claim }))
    }

    fn steps(&self, settled: &BTreeMap<TaskId, Task>) -> Vec<Option<Task>> {
        self.work.steps.iter().map(|step| settled.get(&step.id).cloned()).collect()
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

    /// What the function says.
    fn read(&self, rows: &[PgRow]) -> Result<DoneAtOnce, Fault> {
        let (settled, granted): (Vec<&PgRow>, Vec<&PgRow>) = rows.iter().partition(|row| row.get(39));
        let settled = settled.into_iter().map(row::task).collect::<Result<Vec<_>, Fault>>()?;
        let settled = settled.into_iter().map(|row| (row.task.id.clone(), row.task)).collect();
        let granted = match self.claim {
            Some(_) => granted.into_iter().map(grant).collect::<Result<Option<Vec<Grant>>, Fault>>()?,
            None => None,
        };
        Ok(DoneAtOnce { steps: self.steps(&settled), granted })
    }
}

type Values<'a> = Vec<&'a (dyn ToSql + Sync)>;

/// What to settle: the first arguments of `turn_at_once`.
struct Done {
    scope: String,
    ids: Vec<String>,
    fences: Vec<Option<i64>>,
    agents: Vec<Option<String>>,
    results: Vec<Option<String>>,
    strict: Vec<String>,
    now: Option<i64>,
    published: Option<String>,
    version: String,
    actor: Option<String>,
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
            actor: work.call.actor.clone(),
        })
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
            &self.fences,
            &self.agents,
            &self.results,
            &self.strict,
            &self.now,
            &self.published,
            &self.version,
            &self.actor,
        ]
    }
}

fn plain_done(step: &Step) -> Option<(&TaskId, &Caller, &Option<Json>)> {
    match &step.command {
        Command::Done { caller, result } => Some((&step.id, caller, result)),
        _ => None,
    }
}

/// What to claim: the other arguments of `turn_at_once`. Without a queue, nothing.
struct Next {
    queue: Option<String>,
    limit: Option<i64>,
    ceiling: Option<i64>,
    auto: Option<bool>,
    agent: Option<String>,
    ttl_ms: Option<i64>,
    host: Option<String>,
}

impl Next {
    const NONE: &'static Self =
        &Self { queue: None, limit: None, ceiling: None, auto: None, agent: None, ttl_ms: None, host: None };

    /// Only for a queue without buckets, and a caller who takes whatever is next.
    fn of(claim: &Claim, belief: &Belief) -> Option<Self> {
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
            agent: claim.agent.clone(),
            ttl_ms: Some(claim.ttl_ms.unwrap_or_else(|| policy.lease_ttl())),
            host: claim.host.clone(),
        })
    }

    /// The one that is wanted, if it is only one and the queue has no ceiling.
    fn one(&self) -> Option<OneClaim<'_>> {
        let (Some(queue), Some(1), None) = (&self.queue, self.limit, self.ceiling) else { return None };
        let named = |agent: &String| format!("\"assignee\":{},", Json::of(agent).as_str());
        let agent = self.agent.as_ref().map_or(String::new(), named);
        Some(OneClaim {
            queue,
            auto: self.auto.unwrap_or_default(),
            agent: &self.agent,
            ttl_ms: self.ttl_ms.unwrap_or_default(),
            host: &self.host,
            head: format!("{{\"changes\":{{{agent}\"fence\":"),
        })
    }

    fn values(&self) -> Values<'_> {
        vec![&self.queue, &self.limit, &self.ceiling, &self.auto, &self.agent, &self.ttl_ms, &self.host]
    }
}

/// A granted row; none if the function says that there is more to do than it can.
fn grant(row: &PgRow) -> Result<Option<Grant>, Fault> {
    if get::<i64>(row, 0)? == -1 {
        return Ok(None);
    }
    Ok(Some(Grant { task: row::task(row)?.task, blockers: blockers(get(row, 38)?)? }))
}

/// Blockers as the server lists them.
fn blockers(list: Option<&str>) -> Result<Vec<Blocker>, Fault> {
    #[derive(Deserialize)]
    struct Listed {
        id: TaskId,
        title: String,
        status: Status,
        result: Option<String>,
    }
    let list: Vec<Listed> = match list {
        Some(text) => serde_json::from_str(text)
            .map_err(|error| Fault::Unreadable { problem: format!("blockers of a granted task: {error}") })?,
        None => Vec::new(),
    };
    let blocker = |listed: Listed| Blocker {
        id: listed.id,
        title: listed.title,
        status: listed.status,
        result: listed.result.map(Json::from_stored),
    };
    Ok(list.into_iter().map(blocker).collect())
}
