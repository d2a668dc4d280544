//! Writes that have not been sent yet.
//!
//! A write says nothing that its transaction must know, so it is not sent by itself: it goes with the next read, or with
//! the COMMIT. Few rows of a table are written one statement each; more are one statement for all, with an array per
//! column.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use rota_core::Task;
use rota_core::event::{Event, EventKind};

use super::pipeline::Statement;
use super::row::Values;
use super::sql::{self, Write};
use super::value::{Column, Value};
use crate::tx::Standing;

/// Up to so many rows are written one statement each: for fewer the arrays cost more than they save.
const SINGLE: usize = 3;
/// The most rows of one statement.
const MOST: usize = 1_000;

/// The writes of a transaction since its last flush. Kinds of writes are sent in the order of the fields: tasks before
/// their edges and updates, events last.
#[derive(Default)]
pub(super) struct Outbox {
    tasks: Vec<Vec<Value>>,
    edges: Vec<Vec<Value>>,
    /// By insertion number; a later write replaces an earlier one of the same columns.
    fields: BTreeMap<i64, Vec<Value>>,
    states: BTreeMap<i64, Vec<Value>>,
    others: Vec<(&'static str, Vec<Value>)>,
    events: Vec<Vec<Value>>,
    /// Events with numbers of their own.
    restored: Vec<Vec<Value>>,
}

/// The statements for rows of each kind.
pub(super) struct Statements {
    pub tasks: Write,
    pub edges: Write,
    pub fields: Write,
    pub state: Write,
    pub events: Write,
    pub restored: Write,
}

pub(super) static STATEMENTS: LazyLock<Statements> = LazyLock::new(|| {
    // Any task and event will do: the types of columns are the same for all.
    let task =
        Task::new("", rota_core::TaskId::from_stored("".into()), "", "", rota_core::UnixMillis::new(0));
    let standing = Standing {
        open_blockers: 0,
        stage: rota_core::obstacle::Stage::Obstructed,
        static_score: 0,
        guarded: false,
        bucketed: false,
    };
    let types =
        |values: Values| -> Vec<&'static str> { values.into_inner().iter().map(Value::array_type).collect() };
    let event = Event::of_change(EventKind::Created, None, &task);
    Statements {
        tasks: sql::insert("tasks", &sql::task_columns(), &types(Values::new_task(&task, 0, &standing))),
        edges: sql::insert("edges", &["scope", "task", "blocker"], &["text[]"; 3]),
        fields: sql::update(&sql::FIELDS, &types(Values::default().fields(&task).add(0))),
        state: sql::update(&sql::STATE, &types(Values::default().state(&task, &standing).add(0))),
        events: sql::insert("journal", &sql::event_columns(false), &types(Values::default().event(&event))),
        restored: sql::insert(
            "journal",
            &sql::event_columns(true),
            &types(Values::default().event(&event).add(0)),
        ),
    }
});

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
            && self.edges.is_empty()
            && self.fields.is_empty()
            && self.states.is_empty()
            && self.others.is_empty()
            && self.events.is_empty()
            && self.restored.is_empty()
    }

    /// Whether it has so many new tasks that they should be sent before there are more.
    pub fn is_full(&self) -> bool {
        self.tasks.len() >= 2 * MOST || self.events.len() >= 4 * MOST
    }

    pub fn insert_task(&mut self, task: &Task, queue: i64, standing: &Standing) {
        self.tasks.push(Values::new_task(task, queue, standing).into_inner());
    }

    pub fn insert_edge(&mut self, scope: &str, task: &str, blocker: &str) {
        self.edges.push(Values::default().add(scope).add(task).add(blocker).into_inner());
    }

    pub fn update_fields(&mut self, task: &Task) {
        let seq = task.seq.cast_signed();
        self.fields.insert(seq, Values::default().fields(task).add(seq).into_inner());
    }

    pub fn update_state(&mut self, task: &Task, standing: &Standing) {
        let seq = task.seq.cast_signed();
        self.states.insert(seq, Values::default().state(task, standing).add(seq).into_inner());
    }

    pub fn append(&mut self, event: &Event) {
        self.events.push(Values::default().event(event).into_inner());
    }

    /// An event with its own number.
    pub fn restore_event(&mut self, event: &Event) {
        self.restored.push(Values::default().event(event).add(event.seq.cast_signed()).into_inner());
    }

    /// Any other write whose count of changed rows nobody needs.
    pub fn other(&mut self, text: &'static str, values: Values) {
        self.others.push((text, values.into_inner()));
    }

    /// Takes everything out, as statements to be sent in this order.
    pub fn take(&mut self) -> Vec<Unsent> {
        let Self { tasks, edges, fields, states, others, events, restored } = std::mem::take(self);
        let mut unsent = Vec::new();
        let statements = &*STATEMENTS;
        split(tasks, &statements.tasks, &mut unsent);
        split(edges, &statements.edges, &mut unsent);
        split(fields.into_values().collect(), &statements.fields, &mut unsent);
        split(states.into_values().collect(), &statements.state, &mut unsent);
        unsent.extend(others.into_iter().map(|(text, values)| Unsent {
            text,
            rows: None,
            values: Many::Row(values),
        }));
        split(events, &statements.events, &mut unsent);
        split(restored, &statements.restored, &mut unsent);
        unsent
    }
}

/// A statement that was taken out of the outbox.
pub(super) struct Unsent {
    text: &'static str,
    /// How many rows it must change.
    pub rows: Option<u64>,
    values: Many,
}

enum Many {
    Row(Vec<Value>),
    Columns(Vec<Column>),
}

impl Unsent {
    pub fn statement(&self) -> Statement<'_> {
        let bound = match &self.values {
            Many::Row(row) => row.iter().map(|value| value as _).collect(),
            Many::Columns(columns) => columns.iter().map(Column::as_sql).collect(),
        };
        Statement::Count(self.text, bound)
    }
}

fn split(rows: Vec<Vec<Value>>, write: &'static Write, unsent: &mut Vec<Unsent>) {
    if rows.len() <= SINGLE {
        let single = |row| Unsent { text: &write.one, rows: Some(1), values: Many::Row(row) };
        unsent.extend(rows.into_iter().map(single));
        return;
    }
    let mut rows = rows.into_iter();
    loop {
        let chunk: Vec<Vec<Value>> = rows.by_ref().take(MOST).collect();
        if chunk.is_empty() {
            return;
        }
        let count = Some(chunk.len() as u64);
        unsent.push(Unsent {
            text: &write.many,
            rows: count,
            values: Many::Columns(Column::transpose(chunk)),
        });
    }
}
