//! `rota task attempts`: every lease of a task and how it ended, from the journal.

use async_trait::async_trait;
use rota_core::event::{Event, EventKind};
use rota_core::{Outcome, UnixMillis, transition};
use rota_store::intents::read::Journal;
use rota_store::{EventFilter, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;
use crate::input::Id;
use crate::verb::{Route, Verb};

/// All attempts, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attempts {
    /// How many.
    pub total: usize,
    /// Oldest first.
    pub attempts: Vec<Attempt>,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Which.
    pub lease_id: String,
    /// Who held it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// When it was granted.
    pub started_at: UnixMillis,
    /// When it ended; none while it is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<UnixMillis>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The reason given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Show every attempt at a task
///
/// Example: rota task attempts fix-login
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowAttempts {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for ShowAttempts {
    type Payload = Attempts;
    const ROUTE: Route = Route::get("task attempts", "/tasks/{id}/attempts");

    async fn run(self, cx: &Context) -> Result<Attempts> {
        let filter = EventFilter { task: Some(self.id.into_inner()), ..EventFilter::default() };
        let events = cx.store.perform(&Journal { call: cx.call(), filter }).await?;
        let mut attempts: Vec<Attempt> = Vec::new();
        for event in &events {
            if event.kind == EventKind::Step(transition::Verb::Claim) {
                attempts.extend(begun(event));
            } else if let (Some(outcome), Some(last)) = (event.data.outcome, attempts.last_mut()) {
                last.ended_at = Some(event.at);
                last.outcome = Some(outcome);
                last.reason = event.data.reason.clone().or_else(|| lost(outcome));
            }
        }
        Ok(Attempts { total: attempts.len(), attempts })
    }
}

fn begun(event: &Event) -> Option<Attempt> {
    let assignee = event.data.changes.get("assignee");
    let agent =
        assignee.and_then(|name| serde_json::from_str::<Option<String>>(name.as_str()).ok()).flatten();
    let lease_id = event.lease()?.to_string();
    Some(Attempt { lease_id, agent, started_at: event.at, ended_at: None, outcome: None, reason: None })
}

fn lost(outcome: Outcome) -> Option<String> {
    (outcome == Outcome::Lost).then(|| transition::LOST_REASON.to_owned())
}
