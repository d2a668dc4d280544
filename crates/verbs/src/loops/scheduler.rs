//! `debug scheduler`: every pending loop with its score and what stands in its way.

use rota_core::TaskId;
use rota_core::explain::obstacle_in_short;
use rota_core::obstacle::Obstacle;
use rota_core::rank::ScoreTerm;
use rota_store::Store;
use rota_store::intents::loops::{Pending, PendingTask};
use rota_store::intents::read::Runners;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LOOPS;
use crate::Result;
use crate::context::Context;

/// Every pending loop, highest score first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Scheduler {
    /// How many.
    pub total: usize,
    /// Highest score first.
    pub loops: Vec<PendingLoop>,
}

/// A pending loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are the table's columns")]
pub struct PendingLoop {
    pub id: TaskId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The score.
    pub priority: i64,
    pub terms: Vec<ScoreTerm>,
    pub age_ms: i64,
    pub depth: u32,
    /// The number of the next iteration.
    pub iteration: u32,
    pub tries: u32,
    pub runnable: bool,
    pub obstacles: Vec<Obstacle>,
}

impl PendingLoop {
    fn of(pending: PendingTask) -> Self {
        let PendingTask { task, age_ms, score, obstacles } = pending;
        Self {
            id: task.id,
            kind: task.kind,
            priority: score.as_ref().map_or(0, |score| score.total),
            terms: score.map(|score| score.terms).unwrap_or_default(),
            age_ms,
            depth: task.depth,
            iteration: task.iteration.saturating_add(1),
            tries: task.tries,
            runnable: obstacles.is_empty(),
            obstacles,
        }
    }

    /// `yes`, or `no` with a phrase for each obstacle.
    pub fn verdict(&self) -> String {
        if self.runnable {
            return "yes".to_owned();
        }
        let phrases: Vec<&str> = self.obstacles.iter().map(obstacle_in_short).collect();
        format!("no ({})", phrases.join(", "))
    }
}

/// Lists the pending loops.
pub async fn scheduler(cx: &Context) -> Result<Scheduler> {
    let (host, runners) = (cx.host.clone(), Runners::clone(&cx.runners));
    let pending =
        cx.store.perform(&Pending { call: cx.call(), queue: LOOPS.to_owned(), host, runners }).await?;
    let loops: Vec<PendingLoop> = pending.into_iter().map(PendingLoop::of).collect();
    Ok(Scheduler { total: loops.len(), loops })
}
