//! Tasks and events as rows.

use rota_core::event::{Event, EventData, EventKind};
use rota_core::text::Text;
use rota_core::{Fence, Json, Status, Task, TaskId, UnixMillis};
use rusqlite::types::{FromSqlError, Type};
use rusqlite::{Row as SqlRow, Statement};

use crate::tx::{Blocker, Row, Standing};

type Read<T> = rusqlite::Result<T>;

fn unreadable(column: usize, problem: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, problem.into())
}

fn unsigned<T: TryFrom<i64>>(row: &SqlRow<'_>, column: usize) -> Read<T> {
    let number: i64 = row.get(column)?;
    T::try_from(number).map_err(|_| FromSqlError::OutOfRange(number).into())
}

fn optional_unsigned<T: TryFrom<i64>>(row: &SqlRow<'_>, column: usize) -> Read<Option<T>> {
    let number: Option<i64> = row.get(column)?;
    number.map(|number| T::try_from(number).map_err(|_| FromSqlError::OutOfRange(number).into())).transpose()
}

pub(super) fn time(row: &SqlRow<'_>, column: usize) -> Read<UnixMillis> {
    row.get(column).map(UnixMillis::new)
}

pub(super) fn optional_time(row: &SqlRow<'_>, column: usize) -> Read<Option<UnixMillis>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(UnixMillis::new))
}

fn text(row: &SqlRow<'_>, column: usize) -> Read<Text> {
    Ok(Text::from(row.get_ref(column)?.as_str()?))
}

fn text_like(row: &SqlRow<'_>, column: usize, before: Option<&Text>) -> Read<Text> {
    let text = row.get_ref(column)?.as_str()?;
    Ok(before.filter(|before| **before == text).map_or_else(|| Text::from(text), Text::clone))
}

fn optional_text(row: &SqlRow<'_>, column: usize) -> Read<Option<Text>> {
    Ok(row.get_ref(column)?.as_str_or_null()?.map(Text::from))
}

pub(super) fn id(row: &SqlRow<'_>, column: usize) -> Read<TaskId> {
    text(row, column).map(TaskId::from_stored)
}

/// '' is how a name that can be missing is kept in an index column.
fn named(row: &SqlRow<'_>, column: usize) -> Read<Option<String>> {
    Ok(row.get::<_, Option<String>>(column)?.filter(|name| !name.is_empty()))
}

pub(super) fn status(row: &SqlRow<'_>, column: usize) -> Read<Status> {
    let word = row.get_ref(column)?.as_str()?;
    Status::from_word(word).ok_or_else(|| unreadable(column, format!("unknown status '{word}'")))
}

/// Reads the columns of `sql::BLOCKERS`, from this one on.
pub(super) fn blocker(row: &SqlRow<'_>, first: usize) -> Read<Blocker> {
    Ok(Blocker {
        id: id(row, first)?,
        title: row.get(first + 1)?,
        status: status(row, first + 2)?,
        result: row.get::<_, Option<String>>(first + 3)?.map(Json::from_stored),
    })
}

/// How many columns `sql::columns!` has.
pub(super) const TASK_COLUMNS: usize = 44;

/// Reads the columns of `sql::columns!`.
pub(super) fn task(row: &SqlRow<'_>) -> Read<Row> {
    task_after(row, None)
}

/// The same behind another row: what tasks of one list have in common is kept once.
pub(super) fn task_after(row: &SqlRow<'_>, before: Option<&Task>) -> Read<Row> {
    let has_more: bool = row.get(43)?;
    let more = |column: usize| if has_more { row.get::<_, Option<String>>(column) } else { Ok(None) };
    let steps = more(25)?
        .map(|steps| serde_json::from_str(&steps).map_err(|error| unreadable(25, error.to_string())));
    let task = Task {
        seq: unsigned(row, 0)?,
        scope: text_like(row, 1, before.map(|task| &task.scope))?,
        id: id(row, 2)?,
        queue: text_like(row, 3, before.map(|task| &task.queue))?,
        kind: named(row, 4)?,
        priority: optional_unsigned(row, 5)?,
        status: status(row, 6)?,
        parent: if has_more { optional_text(row, 7)?.map(TaskId::from_stored) } else { None },
        depth: unsigned(row, 8)?,
        triggered_by: more(9)?,
        parent_iteration: if has_more { optional_unsigned(row, 10)? } else { None },
        artifact_present: row.get(11)?,
        iteration: unsigned(row, 12)?,
        tries: unsigned(row, 13)?,
        attempts: unsigned(row, 14)?,
        limited_in_row: unsigned(row, 15)?,
        fence: Fence::new(unsigned(row, 16)?),
        assignee: row.get(17)?,
        lease_expires_at: optional_time(row, 18)?,
        next_eligible_at: optional_time(row, 19)?,
        open_since: time(row, 20)?,
        host: named(row, 21)?,
        title: text(row, 22)?,
        description: optional_text(row, 23)?,
        category: optional_text(row, 24)?,
        steps: steps.transpose()?.unwrap_or_default(),
        spec_ref: more(26)?,
        reference: more(27)?,
        payload: more(28)?.map(Json::from_stored),
        result: more(29)?.map(Json::from_stored),
        fail_reason: more(30)?,
        parked_reason: more(31)?,
        created_at: time(row, 32)?,
        updated_at: time(row, 33)?,
        started_at: optional_time(row, 34)?,
        finished_at: optional_time(row, 35)?,
        events: unsigned(row, 36)?,
        priority_inherited: row.get(38)?,
        trigger_hash: more(39)?,
        discovered_from: if has_more { optional_text(row, 40)?.map(TaskId::from_stored) } else { None },
        fast_failures: unsigned(row, 41)?,
        filed: unsigned(row, 42)?,
    };
    Ok(Row { task, open_blockers: unsigned(row, 37)? })
}

/// Binds one value after the other.
pub(super) struct Binder<'a, 'conn> {
    statement: &'a mut Statement<'conn>,
    next: usize,
}

impl<'a, 'conn> Binder<'a, 'conn> {
    pub fn new(statement: &'a mut Statement<'conn>) -> Self {
        Self { statement, next: 1 }
    }

    pub fn bind(&mut self, value: impl rusqlite::ToSql) -> Read<&mut Self> {
        self.statement.raw_bind_parameter(self.next, value)?;
        self.next += 1;
        Ok(self)
    }

    pub fn time(&mut self, time: Option<UnixMillis>) -> Read<&mut Self> {
        self.bind(time.map(UnixMillis::get))
    }

    /// The columns of `sql::UPDATE_FIELDS`, and of `sql::INSERT` after its first three.
    pub fn fields(&mut self, task: &Task) -> Read<&mut Self> {
        let steps = (!task.steps.is_empty()).then(|| Json::of(&task.steps));
        self.bind(task.kind.as_deref().unwrap_or_default())?
            .bind(task.priority)?
            .bind(task.parent.as_ref().map(TaskId::as_str))?
            .bind(task.depth)?
            .bind(task.triggered_by.as_deref())?
            .bind(task.parent_iteration)?
            .bind(task.host.as_deref().unwrap_or_default())?
            .bind(task.title.as_str())?
            .bind(task.description.as_deref())?
            .bind(task.category.as_deref())?
            .bind(steps.as_ref().map(Json::as_str))?
            .bind(task.spec_ref.as_deref())?
            .bind(task.reference.as_deref())?
            .bind(task.payload.as_ref().map(Json::as_str))?
            .bind(task.sort_priority())?
            .bind(task.created_at.get())?
            .bind(task.priority_inherited)?
            .bind(task.trigger_hash.as_deref())?
            .bind(task.discovered_from.as_ref().map(TaskId::as_str))
    }

    /// The columns of `sql::UPDATE_LEASE` after its first.
    pub fn lease(&mut self, task: &Task, standing: &Standing) -> Read<&mut Self> {
        self.bind(task.status.word())?
            .bind(task.fence.get().cast_signed())?
            .bind(task.assignee.as_deref())?
            .time(task.lease_expires_at)?
            .bind(task.result.as_ref().map(Json::as_str))?
            .bind(task.updated_at.get())?
            .time(task.started_at)?
            .time(task.finished_at)?
            .bind(task.events.cast_signed())?
            .bind(standing.open_blockers)
    }

    /// The columns of `sql::APPEND`.
    pub fn event(&mut self, event: &Event) -> Read<&mut Self> {
        self.bind(event.scope.as_str())?
            .bind(event.at.get())?
            .bind(event.kind.word())?
            .bind(event.from.map(Status::word))?
            .bind(event.to.map(Status::word))?
            .bind(event.actor.as_deref())?
            .bind(event.policy.as_deref())?
            .bind(event.task.as_ref().map(TaskId::as_str))?
            .bind(event.number.cast_signed())?
            .bind(event.fence.map(|fence| fence.get().cast_signed()))?
            .bind(event_data(&event.data))
    }

    /// The columns of `sql::UPDATE_STATE`, and of `sql::INSERT` at its end.
    pub fn state(&mut self, task: &Task, standing: &Standing) -> Read<&mut Self> {
        self.bind(task.status.word())?
            .bind(task.artifact_present)?
            .bind(task.iteration)?
            .bind(task.tries)?
            .bind(task.attempts)?
            .bind(task.limited_in_row)?
            .bind(task.fence.get().cast_signed())?
            .bind(task.assignee.as_deref())?
            .time(task.lease_expires_at)?
            .time(task.next_eligible_at)?
            .bind(task.open_since.get())?
            .bind(task.result.as_ref().map(Json::as_str))?
            .bind(task.fail_reason.as_deref())?
            .bind(task.parked_reason.as_deref())?
            .bind(task.updated_at.get())?
            .time(task.started_at)?
            .time(task.finished_at)?
            .bind(task.events.cast_signed())?
            .bind(standing.open_blockers)?
            .bind(standing.stage.number())?
            .bind(standing.static_score)?
            .bind(task.ready_at().get())?
            .bind(standing.guarded)?
            .bind(task.fast_failures)?
            .bind(task.filed)
    }
}

/// Whether a task that waited is granted, or a granted one finished, and nothing changed but what
/// [`Binder::lease`] writes.
pub(super) fn is_lease_alone(old: &Task, next: &Task) -> bool {
    fn others(task: &Task) -> impl PartialEq + use<'_> {
        let Task { artifact_present, iteration, tries, attempts, limited_in_row, next_eligible_at, .. } =
            task;
        let Task { open_since, fail_reason, parked_reason, fast_failures, filed, .. } = task;
        let counts = (artifact_present, iteration, tries, attempts, limited_in_row, fast_failures, filed);
        (counts, next_eligible_at, open_since, fail_reason, parked_reason)
    }
    old.status != next.status
        && matches!(next.status, Status::Active | Status::Done)
        && others(old) == others(next)
}

/// What serde would write. The changes and facts are JSON already, and need not be checked to be put together.
pub(super) fn event_data(data: &EventData) -> String {
    let EventData { seq, outcome, reason, blocker, blockers, queue, changes, facts } = data;
    let mut text = String::with_capacity(160);
    let put = |text: &mut String, key: &str, value: &str| {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.extend(["\"", key, "\":", value]);
    };
    for (key, value) in [
        ("seq", seq.as_ref().map(Json::of)),
        ("outcome", outcome.as_ref().map(Json::of)),
        ("reason", reason.as_ref().map(Json::of)),
        ("blocker", blocker.as_ref().map(Json::of)),
        ("blockers", (!blockers.is_empty()).then(|| Json::of(blockers))),
        ("queue", queue.as_ref().map(Json::of)),
    ] {
        if let Some(value) = value {
            put(&mut text, key, value.as_str());
        }
    }
    for (key, list) in [("changes", changes), ("facts", facts)] {
        if list.is_empty() {
            continue;
        }
        put(&mut text, key, "{");
        for (number, (field, value)) in list.iter().enumerate() {
            text.push_str(if number == 0 { "\"" } else { ",\"" });
            text.extend([field.as_str(), "\":", value.as_str()]);
        }
        text.push('}');
    }
    text.push_str(if text.is_empty() { "{}" } else { "}" });
    text
}

/// Reads one row of the journal.
pub(super) fn event(row: &SqlRow<'_>) -> Read<Event> {
    let kind = row.get_ref(5)?.as_str()?;
    let kind = EventKind::from_word(kind).ok_or_else(|| unreadable(5, format!("unknown event '{kind}'")))?;
    let word = |column: usize| -> Read<Option<Status>> {
        if row.get_ref(column)? == rusqlite::types::ValueRef::Null {
            Ok(None)
        } else {
            status(row, column).map(Some)
        }
    };
    let data: EventData = serde_json::from_str(row.get_ref(11)?.as_str()?)
        .map_err(|error| unreadable(11, format!("event data: {error}")))?;
    Ok(Event {
        seq: unsigned(row, 0)?,
        scope: row.get(1)?,
        task: optional_text(row, 2)?.map(TaskId::from_stored),
        number: unsigned(row, 3)?,
        at: time(row, 4)?,
        kind,
        from: word(6)?,
        to: word(7)?,
        actor: row.get(8)?,
        fence: optional_unsigned(row, 9)?.map(Fence::new),
        policy: row.get(10)?,
        data,
    })
}

#[cfg(test)]
mod tests {
    use rota_core::status::Outcome;
    use rota_core::task::Changes;

    use super::*;

    #[test]
    fn event_data_is_what_serde_writes() {
        let changes: Changes =
            [("assignee".to_owned(), Json::of(&"a \" b")), ("fence".to_owned(), Json::of(&7))].into();
        let facts: Changes = [("artifactPresent".to_owned(), Json::of(&true))].into();
        let empty = EventData::default();
        for data in [
            empty.clone(),
            EventData { reason: Some("it \"broke\"".to_owned()), ..empty.clone() },
            EventData { changes: changes.clone(), ..empty.clone() },
            EventData { facts: facts.clone(), ..empty.clone() },
            EventData { seq: Some(3), changes, facts, ..empty.clone() },
            EventData {
                outcome: Some(Outcome::Done),
                blocker: Some(TaskId::from_stored("b".into())),
                queue: Some("tasks".to_owned()),
                ..empty
            },
        ] {
            assert_eq!(event_data(&data), Json::of(&data).as_str());
        }
    }
}
