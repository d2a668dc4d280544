//! Adding by one statement, one task or ten thousand: those of one queue that wait for nobody.
//!
//! A function in the database does it ([`super::sql::ADD_AT_ONCE`]), for one task a statement; where it cannot, the ordinary way does, and says
//! why if it cannot either.

use std::collections::BTreeSet;
use std::sync::Arc;

use rota_core::event::{Event, EventData};
use rota_core::{Json, QueuePolicy, Task, TaskId, UnixMillis, rank};
use tokio_postgres::types::ToSql;

use super::ask::Answer;
use super::row::get;
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
        let guarded = policy.score.as_ref().is_some_and(|score| score.starvation_guard_minutes.is_some());
        let bucketed = policy.is_bucketed();
        let batch = Batch::of(&built, policy, data);
        let given = call.now.map(UnixMillis::get);
        let number = self.shared.calls.next();
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![
            &call.scope,
            &queue,
            &belief.published,
            &belief.in_force.version,
            &call.actor,
            &given,
            &guarded,
            &bucketed,
            &number,
        ];
        let shared = Arc::clone(&self.shared);
        // Through a pooler a statement is planned anew each time, and the longer one takes longer.
        let is_one = tasks.len() == 1 && shared.prepare.by_name();
        values.extend(if is_one { batch.first() } else { batch.all() });
        let text = if is_one { &shared.texts.add_one } else { &shared.texts.add_at_once };
        let Some((now, seqs)) = self.added(&call.scope, text, &values, number).await? else {
            return Ok(None);
        };
        drop(batch);
        // The server's clock, where the task says when it was added.
        let numbered = built.into_iter().zip(seqs).map(|(task, seq)| Task {
            seq,
            created_at: now,
            updated_at: now,
            open_since: now,
            ..task
        });
        Ok(Some(numbered.collect()))
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

/// New tasks, column by column.
struct Batch<'a> {
    texts: [Vec<Option<&'a str>>; 8],
    numbers: [Vec<Option<i64>>; 5],
    steps: Vec<Option<String>>,
    data: Vec<String>,
}

impl<'a> Batch<'a> {
    fn of(built: &'a [Task], policy: &QueuePolicy, data: Vec<String>) -> Self {
        let texts = |of: fn(&Task) -> Option<&str>| built.iter().map(of).collect();
        let numbers = |of: &dyn Fn(&Task) -> Option<i64>| built.iter().map(of).collect();
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
                numbers(&|task| Some(rank::static_score(task, policy))),
                numbers(&|task| task.next_eligible_at.map(UnixMillis::get)),
                numbers(&|task| task.parent_iteration.map(i64::from)),
            ],
            steps: built.iter().map(steps).collect(),
            data,
        }
    }

    fn all(&self) -> Vec<&(dyn ToSql + Sync)> {
        let texts = self.texts.iter().map(|column| column as &(dyn ToSql + Sync));
        let numbers = self.numbers.iter().map(|column| column as &(dyn ToSql + Sync));
        texts.chain(numbers).chain([&self.steps as _, &self.data as _]).collect()
    }

    /// The values of the first task alone.
    fn first(&self) -> Vec<&(dyn ToSql + Sync)> {
        let texts = self.texts.iter().map(|column| &column[0] as &(dyn ToSql + Sync));
        let numbers = self.numbers.iter().map(|column| &column[0] as &(dyn ToSql + Sync));
        texts.chain(numbers).chain([&self.steps[0] as _, &self.data[0] as _]).collect()
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
