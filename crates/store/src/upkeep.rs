//! What keeping a store takes beside scheduling: following the journal, looking through everything in pages,
//! carrying it elsewhere, taking old things out. Every transaction can do it; nothing here is on the way of a claim.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use rota_core::event::Event;
use rota_core::{Fence, Status, Task, TaskId, UnixMillis};

use crate::fault::Fault;
use crate::tx::{AnyTx, BlockRow, Row, Standing};

/// How far a follower of the journal has read. Opaque to callers; the text form is short and reads back.
///
/// Where transactions commit in the order of their numbers, `turn` is 0 and the event's number says it all. Where
/// they overtake each other, `turn` is the number of the transaction: only what no open transaction can still come
/// before is read, in the order of (transaction, event).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Cursor {
    pub(crate) turn: u64,
    pub(crate) seq: u64,
}

/// The text is no cursor.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{given}' is no position in the journal (e.g. 0-42)")]
pub struct BadCursor {
    /// What was given.
    pub given: String,
}

impl Cursor {
    /// Before the first event.
    pub const START: Self = Self { turn: 0, seq: 0 };
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.turn, self.seq)
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|number| digits && i64::try_from(*number).is_ok())
        };
        let both = text.split_once('-').and_then(|(turn, seq)| Some((number(turn)?, number(seq)?)));
        let (turn, seq) = both.ok_or_else(|| BadCursor { given: text.chars().take(80).collect() })?;
        Ok(Self { turn, seq })
    }
}

impl serde::Serialize for Cursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Cursor {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A task with what is derived from it, as stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The task and its count of open blockers.
    pub row: Row,
    /// The number of its stage.
    pub stage: i64,
    /// The priority it sorts by.
    pub sort_priority: i64,
    /// The part of its score that does not change with time.
    pub static_score: i64,
    /// Runnable since.
    pub ready_at: i64,
    /// Whether its queue has a guard against starvation.
    pub guarded: bool,
    /// Whether its queue ranks in buckets; none where that is not stored.
    pub bucketed: Option<bool>,
}

/// An edge, and where its blocker stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdgeRow {
    /// Who waits.
    pub task: TaskId,
    /// For whom.
    pub blocker: TaskId,
    /// None if there is no such task.
    pub status: Option<Status>,
}

/// The highest numbers given out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Highest {
    /// To a task.
    pub task: u64,
    /// To an event.
    pub event: u64,
}

macro_rules! upkeep {
    ($($(#[$doc:meta])* fn $name:ident(&mut self $(, $arg:ident: $type:ty)*) -> $out:ty;)*) => {
        /// The part of a transaction that keeps a store in order.
        #[async_trait]
        pub trait Upkeep: Send {
            $($(#[$doc])*
            async fn $name(&mut self $(, $arg: $type)*) -> Result<$out, Fault>;)*
        }

        #[async_trait]
        impl Upkeep for AnyTx {
            $(async fn $name(&mut self $(, $arg: $type)*) -> Result<$out, Fault> {
                match self {
                    Self::Memory(tx) => tx.$name($($arg),*).await,
                    Self::Sqlite(tx) => tx.$name($($arg),*).await,
                    Self::Postgres(tx) => Box::pin(tx.$name($($arg),*)).await,
                }
            })*
        }
    };
}

upkeep! {
    /// The events behind a cursor, each with the cursor behind it, and the cursor behind all. Misses none and gives none twice, although
    /// transactions commit out of order: what is not settled yet comes with a later call.
    fn follow(&mut self, scope: &str, after: Cursor, limit: usize) -> (Vec<(Cursor, Event)>, Cursor);
    /// The newest events that [`Upkeep::follow`] would have given by now, oldest first, and the cursor behind all.
    fn tail(&mut self, scope: &str, task: Option<&TaskId>, limit: usize) -> (Vec<Event>, Cursor);

    /// The number of the schema.
    fn schema(&mut self) -> i64;
    /// What the database says is wrong with itself.
    fn integrity(&mut self) -> Vec<String>;
    /// Every scope that has anything.
    fn scopes(&mut self) -> Vec<String>;
    /// The highest numbers of the whole store.
    fn highest(&mut self) -> Highest;

    /// Tasks by insertion number, behind one.
    fn page(&mut self, scope: &str, after: u64, limit: usize) -> Vec<Kept>;
    /// The edges of tasks, with where their blockers stand.
    fn blocker_states(&mut self, scope: &str, ids: &[TaskId]) -> Vec<EdgeRow>;
    /// Every event of tasks, by task and number.
    fn events_of(&mut self, scope: &str, ids: &[TaskId]) -> Vec<Event>;
    /// Edges by (task, blocker), behind one.
    fn edge_page(&mut self, scope: &str, after: Option<&(TaskId, TaskId)>, limit: usize) -> Vec<(TaskId, TaskId)>;
    /// Edges of which one end is not there.
    fn stray_edges(&mut self, scope: &str, limit: usize) -> Vec<(TaskId, TaskId)>;
    /// Tasks that only the journal knows.
    fn stray_events(&mut self, scope: &str, limit: usize) -> Vec<TaskId>;
    /// Every block of the gate, by upstream.
    fn blocks(&mut self) -> Vec<BlockRow>;

    /// Last fences of ids that were pruned, by id, behind one.
    fn retired_page(&mut self, scope: &str, after: Option<&TaskId>, limit: usize) -> Vec<(TaskId, Fence)>;
    /// Those of these ids that were pruned, with their last fences.
    fn retired(&mut self, scope: &str, ids: &[TaskId]) -> Vec<(TaskId, Fence)>;
    /// Keeps the last fence of an id.
    fn retire(&mut self, scope: &str, id: &TaskId, fence: Fence) -> ();
    /// Finished tasks that did not change since, by insertion number, newest first, before one.
    fn finished(&mut self, scope: &str, unchanged_since: UnixMillis, before: u64, limit: usize) -> Vec<Row>;
    /// Whether another task waits for it or is its child, other than these.
    fn is_needed(&mut self, scope: &str, id: &TaskId, except: &[TaskId]) -> bool;
    /// Takes tasks out: rows, own edges, journal.
    fn remove(&mut self, scope: &str, ids: &[TaskId]) -> ();
    /// Puts each snapshot in the place of the event of its task with its number, and takes out those before it.
    fn squash(&mut self, scope: &str, snapshots: &[Event]) -> ();

    /// Writes a task with its own insertion number.
    fn restore(&mut self, task: &Task, queue: i64, standing: &Standing) -> ();
    /// Writes an event with its own number.
    fn restore_event(&mut self, event: &Event) -> ();
    /// New numbers go on behind the restored ones.
    fn restored(&mut self) -> ();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_read_back() {
        for cursor in [Cursor::START, Cursor { turn: 812, seq: 40 }, Cursor { turn: 3, seq: i64::MAX as u64 }]
        {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for bad in ["", "-", "1", "1-", "-1", "1-x", "1-2-3", "+1-2", "1-18446744073709551615", "１-2"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }
}
