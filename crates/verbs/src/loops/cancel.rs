//! `rota loop cancel`

use async_trait::async_trait;
use rota_store::Store;
use rota_store::intents::loops::Cancel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ChangedTree, named};
use crate::Result;
use crate::context::Context;
use crate::input::Id;
use crate::verb::{Route, Verb};

/// Give up a loop and all below it that has not finished
///
/// Example: rota loop cancel plan-1
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelLoop {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for CancelLoop {
    type Payload = ChangedTree;
    const ROUTE: Route = Route::post("loop cancel", "/loops/{id}/cancel");

    async fn run(self, cx: &Context) -> Result<ChangedTree> {
        let intent = Cancel { call: cx.call(), id: self.id.into_inner() };
        named(cx.store.perform(&intent).await.map(ChangedTree::of))
    }
}
