//! Tasks and events as rows.

use rota_core::event::{Event, EventData, EventKind};
use rota_core::text::Text;
use rota_core::{Fence, Json, Status, Task, TaskId, UnixMillis};
use tokio_postgres::Row as PgRow;
use tokio_postgres::types::FromSql;

use super::value::Value;
use crate::fault::Fault;
use crate::tx::{Blocker, Row, Standing, UsageRow};
use crate::upkeep::Kept;

type Read<T> = Result<T, Fault>;

fn unreadable(problem: impl std::fmt::Display) -> Fault {
    Fault::Unreadable { problem: problem.to_string() }
}

/// One column.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a PgRow, column: usize) -> Read<T> {
    row.try_get(column).map_err(unreadable)
}

pub(super) fn unsigned<T: TryFrom<i64>>(row: &PgRow, column: usize) -> Read<T> {
    let number: i64 = get(row, column)?;
    T::try_from(number).map_err(|_| unreadable(format_args!("{number} in column {column} is out of range")))
}

/// The first column of a row that has one number.
pub(super) fn unsigned_first(row: &PgRow) -> Read<u64> {
    unsigned(row, 0)
}

fn optional_unsigned<T: TryFrom<i64>>(row: &PgRow, column: usize) -> Read<Option<T>> {
    let number: Option<i64> = get(row, column)?;
    let narrow =
        |number| T::try_from(number).map_err(|_| unreadable(format_args!("{number} is out of range")));
    number.map(narrow).transpose()
}

pub(super) fn time(row: &PgRow, column: usize) -> Read<UnixMillis> {
    get(row, column).map(UnixMillis::new)
}

pub(super) fn optional_time(row: &PgRow, column: usize) -> Read<Option<UnixMillis>> {
    Ok(get::<Option<i64>>(row, column)?.map(UnixMillis::new))
}

fn text(row: &PgRow, column: usize) -> Read<Text> {
    get::<&str>(row, column).map(Text::from)
}

fn optional_text(row: &PgRow, column: usize) -> Read<Option<Text>> {
    Ok(get::<Option<&str>>(row, column)?.map(Text::from))
}

pub(super) fn id(row: &PgRow, column: usize) -> Read<TaskId> {
    text(row, column).map(TaskId::from_stored)
}

pub(super) fn json(row: &PgRow, column: usize) -> Read<Option<Json>> {
    Ok(get::<Option<String>>(row, column)?.map(Json::from_stored))
}

/// '' is how a name that can be missing is kept in an index column.
fn named(row: &PgRow, column: usize) -> Read<Option<String>> {
    Ok(Some(get::<String>(row, column)?).filter(|name| !name.is_empty()))
}

pub(super) fn status(row: &PgRow, column: usize) -> Read<Status> {
    let word: &str = get(row, column)?;
    Status::from_word(word).ok_or_else(|| unreadable(format_args!("unknown status '{word}'")))
}

/// Reads the columns of `sql::columns!`.
pub(super) fn task(row: &PgRow) -> Read<Row> {
    let steps: Option<&str> = get(row, 42)?;
    let steps = steps.map(|steps| serde_json::from_str(steps).map_err(unreadable)).transpose()?;
    let task = Task {
        seq: unsigned(row, 0)?,
        queue: text(row, 1)?,
        created_at: time(row, 2)?,
        fence: Fence::new(unsigned(row, 7)?),
        events: unsigned(row, 8)?,
        limited_in_row: unsigned(row, 9)?,
        updated_at: time(row, 10)?,
        open_since: time(row, 11)?,
        iteration: unsigned(row, 12)?,
        tries: unsigned(row, 13)?,
        attempts: unsigned(row, 14)?,
        fast_failures: unsigned(row, 15)?,
        filed: unsigned(row, 16)?,
        depth: unsigned(row, 17)?,
        artifact_present: get(row, 21)?,
        priority_inherited: get(row, 22)?,
        scope: text(row, 23)?,
        id: id(row, 24)?,
        status: status(row, 25)?,
        kind: named(row, 26)?,
        host: named(row, 27)?,
        title: text(row, 28)?,
        lease_expires_at: optional_time(row, 29)?,
        next_eligible_at: optional_time(row, 30)?,
        assignee: get(row, 31)?,
        result: json(row, 32)?,
        started_at: optional_time(row, 33)?,
        finished_at: optional_time(row, 34)?,
        parent: optional_text(row, 35)?.map(TaskId::from_stored),
        triggered_by: get(row, 36)?,
        spec_ref: get(row, 37)?,
        description: optional_text(row, 38)?,
        category: optional_text(row, 39)?,
        priority: optional_unsigned(row, 40)?,
        parent_iteration: optional_unsigned(row, 41)?,
        steps: steps.unwrap_or_default(),
        reference: get(row, 43)?,
        payload: json(row, 44)?,
        fail_reason: get(row, 45)?,
        parked_reason: get(row, 46)?,
        trigger_hash: get(row, 47)?,
        discovered_from: optional_text(row, 48)?.map(TaskId::from_stored),
    };
    Ok(Row { task, open_blockers: unsigned(row, 18)? })
}

/// A task with what is derived from it.
pub(super) fn kept(row: &PgRow) -> Read<Kept> {
    Ok(Kept {
        row: task(row)?,
        stage: get(row, 3)?,
        sort_priority: get(row, 4)?,
        static_score: get(row, 5)?,
        ready_at: get(row, 6)?,
        guarded: get(row, 20)?,
        bucketed: Some(get(row, 19)?),
    })
}

/// Reads one of the tasks that another waits for.
pub(super) fn blocker(row: &PgRow) -> Read<Blocker> {
    let (id, title) = (id(row, 0)?, get(row, 1)?);
    Ok(Blocker { id, title, status: status(row, 2)?, result: json(row, 3)? })
}

/// Values of a statement for one row, in order.
#[derive(Default)]
pub(super) struct Values(Vec<Value>);

impl Values {
    pub fn add(mut self, value: impl Into<Value>) -> Self {
        self.0.push(value.into());
        self
    }

    fn time(self, time: Option<UnixMillis>) -> Self {
        self.add(time.map(UnixMillis::get))
    }

    pub fn into_inner(self) -> Vec<Value> {
        self.0
    }

    /// The columns of `sql::task_columns`.
    pub fn new_task(task: &Task, queue: i64, standing: &Standing) -> Self {
        let values = Self::default().add(task.scope.to_string()).add(task.id.to_string()).add(queue);
        values.fields(task).state(task, standing).add(task.seq.cast_signed())
    }

    /// The columns of `sql::FIELDS`.
    pub fn fields(self, task: &Task) -> Self {
        let steps = (!task.steps.is_empty()).then(|| Json::of(&task.steps).as_str().to_owned());
        self.add(task.kind.clone().unwrap_or_default())
            .add(task.priority.map(i64::from))
            .add(task.parent.as_ref().map(ToString::to_string))
            .add(i64::from(task.depth))
            .add(task.triggered_by.clone())
            .add(task.parent_iteration.map(i64::from))
            .add(task.host.clone().unwrap_or_default())
            .add(task.title.to_string())
            .add(task.description.as_ref().map(Text::to_string))
            .add(task.category.as_ref().map(Text::to_string))
            .add(steps)
            .add(task.spec_ref.clone())
            .add(task.reference.clone())
            .add(task.payload.as_ref().map(|json| json.as_str().to_owned()))
            .add(i64::from(task.sort_priority()))
            .add(task.created_at.get())
            .add(task.priority_inherited)
            .add(task.trigger_hash.clone())
            .add(task.discovered_from.as_ref().map(ToString::to_string))
    }

    /// The columns of `sql::STATE`.
    pub fn state(self, task: &Task, standing: &Standing) -> Self {
        self.add(task.status.word())
            .add(task.artifact_present)
            .add(i64::from(task.iteration))
            .add(i64::from(task.tries))
            .add(i64::from(task.attempts))
            .add(i64::from(task.limited_in_row))
            .add(task.fence.get().cast_signed())
            .add(task.assignee.clone())
            .time(task.lease_expires_at)
            .time(task.next_eligible_at)
            .add(task.open_since.get())
            .add(task.result.as_ref().map(|json| json.as_str().to_owned()))
            .add(task.fail_reason.clone())
            .add(task.parked_reason.clone())
            .add(task.updated_at.get())
            .time(task.started_at)
            .time(task.finished_at)
            .add(task.events.cast_signed())
            .add(i64::from(standing.open_blockers))
            .add(standing.stage.number())
            .add(standing.static_score)
            .add(task.ready_at().get())
            .add(standing.guarded)
            .add(standing.bucketed)
            .add(i64::from(task.fast_failures))
            .add(i64::from(task.filed))
    }

    /// The columns of `sql::event_columns`.
    pub fn event(self, event: &Event) -> Self {
        self.add(event.scope.clone())
            .add(event.at.get())
            .add(event.kind.word())
            .add(event.from.map(Status::word))
            .add(event.to.map(Status::word))
            .add(event.actor.clone())
            .add(event.policy.clone())
            .add(event.task.as_ref().map(ToString::to_string))
            .add(event.number.cast_signed())
            .add(event.fence.map(|fence| fence.get().cast_signed()))
            .add(Json::of(&event.data).as_str().to_owned())
    }
}

/// Reads one row of the journal.
pub(super) fn event(row: &PgRow) -> Read<Event> {
    let kind: &str = get(row, 5)?;
    let kind =
        EventKind::from_word(kind).ok_or_else(|| unreadable(format_args!("unknown event '{kind}'")))?;
    let word = |column: usize| -> Read<Option<Status>> {
        if get::<Option<&str>>(row, column)?.is_none() { Ok(None) } else { status(row, column).map(Some) }
    };
    let data: EventData = serde_json::from_str(get(row, 11)?).map_err(unreadable)?;
    Ok(Event {
        seq: unsigned(row, 0)?,
        scope: get(row, 1)?,
        task: optional_text(row, 2)?.map(TaskId::from_stored),
        number: unsigned(row, 3)?,
        at: time(row, 4)?,
        kind,
        from: word(6)?,
        to: word(7)?,
        actor: get(row, 8)?,
        fence: optional_unsigned(row, 9)?.map(Fence::new),
        policy: get(row, 10)?,
        data,
    })
}

/// What a task used of a model on a day.
pub(super) fn usage(row: &PgRow) -> Result<UsageRow, Fault> {
    Ok(UsageRow {
        scope: get(row, 0)?,
        task: get(row, 1)?,
        day: get(row, 2)?,
        upstream: get(row, 3)?,
        model: get(row, 4)?,
        requests: unsigned(row, 5)?,
        input_tokens: unsigned(row, 6)?,
        output_tokens: unsigned(row, 7)?,
        cache_read_tokens: unsigned(row, 8)?,
        wait_ms: unsigned(row, 9)?,
        spend_nanos: unsigned(row, 10)?,
    })
}
