//! `debug scheduler`: every pending loop with its score and what stands in its way.

use async_trait::async_trait;
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
use crate::verb::{Route, Verb};

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

/// List pending loops with their scores and what stands in their way
///
/// Highest score first; PRIORITY is the score.
///
/// Example: rota debug scheduler
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowScheduler {}

#[async_trait]
impl Verb for ShowScheduler {
    type Payload = Scheduler;
    const ROUTE: Route = Route::get("debug scheduler", "/pending-loops");

    async fn run(self, cx: &Context) -> Result<Scheduler> {
        let (host, runners) = (cx.host.clone(), Runners::clone(&cx.runners));
        let intent = Pending { call: cx.call(), queue: LOOPS.to_owned(), host, runners };
        let loops: Vec<PendingLoop> =
            cx.store.perform(&intent).await?.into_iter().map(PendingLoop::of).collect();
        Ok(Scheduler { total: loops.len(), loops })
    }
}
