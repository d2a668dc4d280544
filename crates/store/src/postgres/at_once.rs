//! The common case in one round trip: settle what is simply done, claim what is simply next.
//!
//! For one task at a time that is a statement ([`super::one`]), for many a function in the database
//! ([`super::sql::TURN_AT_ONCE`]), which also serves turns of one that go together ([`super::together`]). Both say when there
//! is more to do than they can, and then the ordinary way does it. The suite shows that all ways choose and write the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use rota_core::{Task, TaskId, UnixMillis};
use tokio_postgres::Row as PgRow;
use tokio_postgres::types::ToSql;

use super::again::Found;
use super::ask::Answer;
use super::row::{self, Behind, Record, get};
use super::together::Entry;
use super::turn::{Done, Next, Turn};
use super::tx::PostgresTx;
use super::{Object, Shared};
use crate::fault::Fault;
use crate::intents::claim::Grant;
use crate::intents::default_policy;
use crate::tx::{AtOnce, Blocker, DoneAtOnce, Published};

/// What the functions are told of the policy: what the caller believes is published, and what to journal.
pub(super) struct Belief {
    pub published: Option<String>,
    pub in_force: Arc<Published>,
}

type Permit<'a> = Option<tokio::sync::SemaphorePermit<'a>>;

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
    pub(super) async fn by_itself(&mut self, turn: &Turn) -> Result<DoneAtOnce, Fault> {
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
