//! The common case in one round trip: settle what is simply done, claim what is simply next.
//!
//! A function in the database does it ([`super::sql::TURN_AT_ONCE`]); it says when there is more to do than it can, and
//! then the ordinary way does it. The suite shows that the two ways choose and write the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rota_core::transition::Command;
use rota_core::{Caller, Json, Status, Task, TaskId, UnixMillis};
use serde::Deserialize;
use tokio_postgres::Row as PgRow;
use tokio_postgres::types::ToSql;

use super::row::{self, get};
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
        let nothing = || DoneAtOnce { steps: vec![None; work.steps.len()], granted: None };
        let belief = self.belief(&work.call.scope).filter(|_| self.may_be_at_once());
        let Some(belief) = belief else { return Ok(nothing()) };
        let claim = work.then.and_then(|claim| Next::of(claim, &belief));
        // Steps that are not simply done come first, the ordinary way.
        let Some(done) = Done::of(work, &belief) else { return Ok(nothing()) };
        if done.ids.is_empty() && claim.is_none() {
            return Ok(nothing());
        }
        let mut values = done.values();
        let no_claim = Next::default();
        values.extend(claim.as_ref().unwrap_or(&no_claim).values());
        let rows = self.call(&Arc::clone(&self.shared).turn_at_once, &values).await?;
        let (settled, granted): (Vec<PgRow>, Vec<PgRow>) = rows.into_iter().partition(|row| row.get(39));
        let settled = settled.iter().map(row::task).collect::<Result<Vec<_>, Fault>>()?;
        let settled: BTreeMap<TaskId, Task> =
            settled.into_iter().map(|row| (row.task.id.clone(), row.task)).collect();
        self.acted = !settled.is_empty();
        let steps = work.steps.iter().map(|step| settled.get(&step.id).cloned()).collect();
        let granted = match claim {
            Some(_) => granted.iter().map(grant).collect::<Result<Option<Vec<Grant>>, Fault>>()?,
            None => None,
        };
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

    /// One statement that is a transaction of its own.
    pub(super) async fn call(
        &mut self,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<PgRow>, Fault> {
        self.shared.rows_alone(self.client(), text, values).await
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
#[derive(Default)]
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

    fn values(&self) -> Values<'_> {
        vec![&self.queue, &self.limit, &self.ceiling, &self.auto, &self.agent, &self.ttl_ms, &self.host]
    }
}

/// A granted row; none if the function says that there is more to do than it can.
fn grant(row: &PgRow) -> Result<Option<Grant>, Fault> {
    #[derive(Deserialize)]
    struct Listed {
        id: TaskId,
        title: String,
        status: Status,
        result: Option<String>,
    }
    if get::<i64>(row, 0)? == -1 {
        return Ok(None);
    }
    let list: Option<&str> = get(row, 38)?;
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
    Ok(Some(Grant { task: row::task(row)?.task, blockers: list.into_iter().map(blocker).collect() }))
}
