//! `rota loop reiterate`

use async_trait::async_trait;
use rota_core::limits;
use rota_store::Store;
use rota_store::intents::loops::Reiterate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ChangedTree, named};
use crate::Result;
use crate::context::{Context, checked_text};
use crate::input::Id;
use crate::verb::{Route, Verb};

/// Start a finished or parked loop over; what is unfinished below it is invalidated
///
/// Example: rota loop reiterate plan-1 --reason "the API has changed"
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReiterateLoop {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
    /// Why, for the journal
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub reason: Option<String>,
}

#[async_trait]
impl Verb for ReiterateLoop {
    type Payload = ChangedTree;
    const ROUTE: Route = Route::post("loop reiterate", "/loops/{id}/reiterate");

    async fn run(self, cx: &Context) -> Result<ChangedTree> {
        let reason = self.reason.filter(|reason| !reason.is_empty());
        checked_text("reason", reason.as_deref().unwrap_or_default(), limits::TEXT_BYTES)?;
        let intent = Reiterate { call: cx.call(), id: self.id.into_inner(), reason };
        named(cx.store.perform(&intent).await.map(ChangedTree::of))
    }
}
