//! `rota loop move`

use async_trait::async_trait;
use rota_store::Store;
use rota_store::intents::loops::Move;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ChangedTree, named};
use crate::Result;
use crate::context::{Context, bad_value};
use crate::input::{Host, Id};
use crate::verb::{Route, Verb};

/// Hand the whole tree of a loop to a host that has its folders
///
/// Refused while something of the tree runs. Example: rota loop move plan-1 --host build-2
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MoveLoop {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
    /// Where to [default: this host]
    #[arg(long = "host", value_name = "H")]
    pub to: Option<Host>,
}

#[async_trait]
impl Verb for MoveLoop {
    type Payload = ChangedTree;
    const ROUTE: Route = Route::post("loop move", "/loops/{id}/move");

    async fn run(self, cx: &Context) -> Result<ChangedTree> {
        let host = self.to.and_then(Host::into_inner).or_else(|| cx.host.clone());
        let host = host.ok_or_else(|| bad_value("--host is needed: this host has no name".into()))?;
        let intent = Move { call: cx.call(), id: self.id.into_inner(), host };
        named(cx.store.perform(&intent).await.map(ChangedTree::of))
    }
}
