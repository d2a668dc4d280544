//! Following the journal: everything once, in an order that never changes, whoever commits first.

use async_trait::async_trait;
use rota_core::TaskId;
use rota_core::event::Event;

use super::{Call, Cx, find_task};
use crate::fault::Outcome;
use crate::store::{Access, Intent};
use crate::tx::AnyTx;
use crate::upkeep::Cursor;
use crate::upkeep::Upkeep;

/// Reads on behind a cursor.
#[derive(Clone, Debug)]
pub struct Follow {
    /// Where, when, who.
    pub call: Call,
    /// How far the caller has read.
    pub after: Cursor,
    /// At most so many events.
    pub limit: usize,
}

#[async_trait]
impl Intent for Follow {
    type Output = (Vec<(Cursor, Event)>, Cursor);

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        Ok(tx.follow(&self.call.scope, self.after, self.limit).await?)
    }
}

/// The newest events, and where to go on from.
#[derive(Clone, Debug)]
pub struct Tail {
    /// Where, when, who.
    pub call: Call,
    /// Only this task's, which must exist.
    pub task: Option<TaskId>,
    /// At most so many events.
    pub limit: usize,
}

#[async_trait]
impl Intent for Tail {
    type Output = (Vec<Event>, Cursor);

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        let cx = Cx::open(tx, &self.call).await?;
        if let Some(id) = &self.task {
            find_task(tx, &cx, id).await?;
        }
        Ok(tx.tail(&cx.scope, self.task.as_ref(), self.limit).await?)
    }
}
