//! Adding by one statement, one task or ten thousand: those of one queue that wait for nobody.
//!
//! A function in the database does it ([`super::sql::ADD_AT_ONCE`]), for one task a statement; where it cannot, the ordinary way does, and says
//! why if it cannot either.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use rota_core::event::{Event, EventData};
use rota_core::{Json, Task, TaskId, UnixMillis, rank};
use tokio_postgres::types::ToSql;

use super::Shared;
use super::ask::Answer;
use super::row::get;
use super::together::{Entry, Joint, Room};
use super::tx::PostgresTx;
use crate::fault::Fault;
use crate::intents::Call;
use crate::intents::add::NewTask;

/// How a `created` event begins; the function puts the insertion number there.
const BEFORE_SEQ: &str = "{\"seq\":0";

impl PostgresTx {
    pub(super) async fn do_add_at_once(
        &mut self,
        call: &Call,
        tasks: &[NewTask],
    ) -> Result<Option<Vec<Task>>, Fault> {
        let Some((belief, queue)) = self.belief(&call.scope).zip(one_queue(tasks)) else { return Ok(None) };
        let policy = belief.in_force.policy.queue(queue);
        // The clock is the server's; nothing of a new task's event depends on it.
        let now = call.now.unwrap_or_default();
        let built: Vec<Task> = tasks.iter().map(|new| first(new.at_root(&call.scope, policy, now))).collect();
        let Some(data) = built.iter().map(created).collect::<Option<Vec<String>>>() else { return Ok(None) };
        let addition = Addition {
            scope: call.scope.clone(),
            queue: queue.to_owned(),
            published: belief.published.clone(),
            version: belief.in_force.version.clone(),
            actor: call.actor.clone(),
            now: call.now.map(UnixMillis::get),
            guarded: policy.score.as_ref().is_some_and(|score| score.starvation_guard_minutes.is_some()),
            bucketed: policy.is_bucketed(),
            scores: built.iter().map(|task| rank::static_score(task, policy)).collect(),
            tasks: built,
            data,
        };
        let is_joint = addition.is_one() && addition.now.is_none() && self.may_be_at_once();
        if is_joint && self.shared.prepare.by_name() {
            self.add_with_others(addition).await
        } else {
            self.add(addition).await
        }
    }

    /// Adds, by the statement for one where it is one.
    async fn add(&mut self, addition: Addition) -> Result<Option<Vec<Task>>, Fault> {
        let number = self.shared.calls.next();
        let batch = Batch::of(&addition);
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![
            &addition.scope,
            &addition.queue,
            &addition.published,
            &addition.version,
            &addition.actor,
            &addition.now,
            &addition.guarded,
            &addition.bucketed,
            &number,
        ];
        let shared = Arc::clone(&self.shared);
        // Through a pooler a statement is planned anew each time, and the longer one takes longer.
        let is_one = addition.is_one() && shared.prepare.by_name();
        values.extend(if is_one { batch.first() } else { batch.all() });
        let text = if is_one { &shared.texts.add_one } else { &shared.texts.add_at_once };
        let Some((now, seqs)) = self.added(&addition.scope, text, &values, number).await? else {
            return Ok(None);
        };
        drop(batch);
        // The server's clock, where the task says when it was added.
        let numbered = addition.tasks.into_iter().zip(seqs).map(|(task, seq)| Task {
            seq,
            created_at: now,
            updated_at: now,
            open_since: now,
            ..task
        });
        Ok(Some(numbered.collect()))
    }

    /// Adds one, together with those of others if many are at work.
    async fn add_with_others(&mut self, addition: Addition) -> Result<Option<Vec<Task>>, Fault> {
        match self.enter(|| addition.clone()).await? {
            Entry::Answered(task) => Ok(Some(vec![task])),
            Entry::Go(seat) => {
                let result = self.add(addition).await;
                drop(seat);
                result
            }
        }
    }

    /// When the tasks were added, and their insertion numbers; none if it could not be at once.
    async fn added(
        &mut self,
        scope: &str,
        text: &str,
        values: &[&(dyn ToSql + Sync)],
        number: i64,
    ) -> Result<Option<(UnixMillis, Vec<u64>)>, Fault> {
        match self.call(text, values, number).await? {
            Answer::Rows(rows) => {
                let Some(row) = rows.first() else { return Ok(None) };
                let (now, seqs): (i64, Vec<i64>) = (get(row, 0)?, get(row, 1)?);
                Ok(Some((UnixMillis::new(now), seqs.into_iter().map(i64::cast_unsigned).collect())))
            }
            Answer::Lost(met) => {
                let found = self.find_again(scope, number, met).await?;
                let mut seqs: Vec<u64> = found.iter().map(|found| found.task.seq).collect();
                seqs.sort_unstable();
                Ok(found.first().map(|first| (first.event.at, seqs)))
            }
        }
    }
}

/// Tasks to be added.
#[derive(Clone)]
pub(super) struct Addition {
    scope: String,
    queue: String,
    published: Option<String>,
    version: String,
    actor: Option<String>,
    now: Option<i64>,
    guarded: bool,
    bucketed: bool,
    tasks: Vec<Task>,
    scores: Vec<i64>,
    /// The end of each one's event.
    data: Vec<String>,
}

impl Addition {
    fn is_one(&self) -> bool {
        self.tasks.len() == 1
    }
}

/// New tasks, column by column; none for a column that is empty for all.
struct Batch<'a> {
    texts: [Option<Vec<Option<&'a str>>>; 8],
    numbers: [Option<Vec<Option<i64>>>; 5],
    steps: Option<Vec<Option<String>>>,
    data: &'a Vec<String>,
}

/// None if all are.
fn unless_empty<T>(column: Vec<Option<T>>) -> Option<Vec<Option<T>>> {
    column.iter().any(Option::is_some).then_some(column)
}

impl<'a> Batch<'a> {
    fn of(added: &'a Addition) -> Self {
        let built = &added.tasks;
        let texts = |of: fn(&Task) -> Option<&str>| unless_empty(built.iter().map(of).collect());
        let numbers = |of: &dyn Fn(&Task) -> Option<i64>| unless_empty(built.iter().map(of).collect());
        let steps = |task: &Task| (!task.steps.is_empty()).then(|| Json::of(&task.steps).as_str().to_owned());
        Self {
            texts: [
                texts(|task| Some(task.id.as_str())),
                texts(|task| Some(task.kind.as_deref().unwrap_or_default())),
                texts(|task| Some(task.title.as_str())),
                texts(|task| task.description.as_deref()),
                texts(|task| task.category.as_deref()),
                texts(|task| task.spec_ref.as_deref()),
                texts(|task| task.reference.as_deref()),
                texts(|task| task.payload.as_ref().map(Json::as_str)),
            ],
            numbers: [
                numbers(&|task| task.priority.map(i64::from)),
                numbers(&|task| Some(i64::from(task.sort_priority()))),
                Some(added.scores.iter().copied().map(Some).collect()),
                numbers(&|task| task.next_eligible_at.map(UnixMillis::get)),
                numbers(&|task| task.parent_iteration.map(i64::from)),
            ],
            steps: unless_empty(built.iter().map(steps).collect()),
            data: &added.data,
        }
    }

    fn all(&self) -> Vec<&(dyn ToSql + Sync)> {
        let texts = self.texts.iter().map(|column| column as &(dyn ToSql + Sync));
        let numbers = self.numbers.iter().map(|column| column as &(dyn ToSql + Sync));
        texts.chain(numbers).chain([&self.steps as _, self.data as _]).collect()
    }

    /// The values of the first task alone.
    fn first(&self) -> Vec<&(dyn ToSql + Sync)> {
        let texts = self.texts.iter().map(|column| match column {
            Some(column) => &column[0] as &(dyn ToSql + Sync),
            None => &None::<&str>,
        });
        let numbers = self.numbers.iter().map(|column| match column {
            Some(column) => &column[0] as &(dyn ToSql + Sync),
            None => &None::<i64>,
        });
        let steps = match &self.steps {
            Some(steps) => &steps[0] as &(dyn ToSql + Sync),
            None => &None::<String>,
        };
        texts.chain(numbers).chain([steps, &self.data[0] as _]).collect()
    }
}

impl Joint for Addition {
    type Answer = Task;

    fn room(shared: &Shared) -> &Mutex<Room<Self>> {
        &shared.additions
    }

    /// To the same queue under the same policy by the same actor, and no id twice.
    fn goes_with(&self, others: &[&Self]) -> bool {
        let Some(first) = others.first() else { return true };
        let same = (&self.scope, &self.queue, &self.published, &self.version, &self.actor)
            == (&first.scope, &first.queue, &first.published, &first.version, &first.actor);
        let is_there =
            |task: &Task| others.iter().flat_map(|other| &other.tasks).any(|other| other.id == task.id);
        same && !self.tasks.iter().any(is_there)
    }

    async fn carry_out(tx: &mut PostgresTx, additions: &[&Self]) -> Result<Vec<Task>, Fault> {
        let Some(first) = additions.first() else { return Ok(Vec::new()) };
        let mut all = Self { tasks: Vec::new(), scores: Vec::new(), data: Vec::new(), ..(*first).clone() };
        for Self { tasks, scores, data, .. } in additions {
            all.tasks.extend_from_slice(tasks);
            all.scores.extend_from_slice(scores);
            all.data.extend_from_slice(data);
        }
        Ok(tx.add(all).await?.unwrap_or_default())
    }
}

/// With its first event.
fn first(task: Task) -> Task {
    Task { events: 1, ..task }
}

/// The rest of a `created` event after its insertion number.
fn created(task: &Task) -> Option<String> {
    let data = EventData { seq: Some(0), ..EventData::default() };
    let mut text = data.text_with_changes(&Event::blank(task), task);
    text.starts_with(BEFORE_SEQ).then(|| text.split_off(BEFORE_SEQ.len()))
}

/// The queue of them all; none if there is more than one, or if any waits for another task or an artifact, or has a past.
fn one_queue(tasks: &[NewTask]) -> Option<&str> {
    let queue = tasks.first()?.queue.as_str();
    let plain = |task: &NewTask| {
        let waits = task.parent.is_some() || task.triggered_by.is_some() || !task.deps.is_empty();
        task.queue == queue && !waits && !task.artifact_present && task.past.is_none()
    };
    let distinct: BTreeSet<&TaskId> = tasks.iter().map(|task| &task.id).collect();
    (distinct.len() == tasks.len() && tasks.iter().all(plain)).then_some(queue)
}
