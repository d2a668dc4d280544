//! Adding by one statement, one task or ten thousand: those of one queue that wait for nobody.
//!
//! A function in the database does it ([`super::sql::ADD_AT_ONCE`]); where it cannot, the ordinary way does, and says
//! why if it cannot either.

use std::collections::BTreeSet;
use std::sync::Arc;

use rota_core::event::{Event, EventKind};
use rota_core::{Json, Task, TaskId, UnixMillis, rank};
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
        let texts = |of: fn(&Task) -> Option<&str>| -> Vec<Option<&str>> { built.iter().map(of).collect() };
        let numbers =
            |of: &dyn Fn(&Task) -> Option<i64>| -> Vec<Option<i64>> { built.iter().map(of).collect() };
        let guarded = policy.score.as_ref().is_some_and(|score| score.starvation_guard_minutes.is_some());
        let bucketed = policy.is_bucketed();
        let ids = texts(|task| Some(task.id.as_str()));
        let kinds = texts(|task| Some(task.kind.as_deref().unwrap_or_default()));
        let titles = texts(|task| Some(task.title.as_str()));
        let descriptions = texts(|task| task.description.as_deref());
        let categories = texts(|task| task.category.as_deref());
        let specs = texts(|task| task.spec_ref.as_deref());
        let references = texts(|task| task.reference.as_deref());
        let payloads = texts(|task| task.payload.as_ref().map(Json::as_str));
        let steps = |task: &Task| (!task.steps.is_empty()).then(|| Json::of(&task.steps).as_str().to_owned());
        let steps: Vec<Option<String>> = built.iter().map(steps).collect();
        let priorities = numbers(&|task| task.priority.map(i64::from));
        let sort_priorities = numbers(&|task| Some(i64::from(task.sort_priority())));
        let scores = numbers(&|task| Some(rank::static_score(task, policy)));
        let due = numbers(&|task| task.next_eligible_at.map(UnixMillis::get));
        let parent_iterations = numbers(&|task| task.parent_iteration.map(i64::from));
        let given = call.now.map(UnixMillis::get);
        let number = self.shared.calls.next();
        let values: [&(dyn ToSql + Sync); 24] = [
            &call.scope,
            &queue,
            &belief.published,
            &belief.in_force.version,
            &call.actor,
            &given,
            &guarded,
            &bucketed,
            &ids,
            &kinds,
            &priorities,
            &sort_priorities,
            &scores,
            &titles,
            &descriptions,
            &categories,
            &steps,
            &specs,
            &references,
            &payloads,
            &due,
            &parent_iterations,
            &data,
            &number,
        ];
        let Some((now, seqs)) = self.added(&call.scope, &values, number).await? else { return Ok(None) };
        let numbered = tasks.iter().zip(seqs).map(|(new, seq)| {
            let task = first(new.at_root(&call.scope, policy, now));
            Task { seq, ..task }
        });
        Ok(Some(numbered.collect()))
    }

    /// When the tasks were added, and their insertion numbers; none if it could not be at once.
    async fn added(
        &mut self,
        scope: &str,
        values: &[&(dyn ToSql + Sync)],
        number: i64,
    ) -> Result<Option<(UnixMillis, Vec<u64>)>, Fault> {
        match self.call(&Arc::clone(&self.shared).texts.add_at_once, values, number).await? {
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

/// With its first event.
fn first(task: Task) -> Task {
    Task { events: 1, ..task }
}

/// The rest of a `created` event after its insertion number.
fn created(task: &Task) -> Option<String> {
    let data = Json::of(&Event::of_change(EventKind::Created, None, task).data);
    data.as_str().strip_prefix(BEFORE_SEQ).map(str::to_owned)
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
