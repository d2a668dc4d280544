//! `rota loop pause` and `resume`

use async_trait::async_trait;
use rota_core::transition::Command;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LoopPayload, named};
use crate::Result;
use crate::context::Context;
use crate::input::Id;
use crate::step::step_view;
use crate::verb::{Route, Verb};

/// Hold a loop back; a lease on it ends
///
/// Example: rota loop pause ralph-7
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PauseLoop {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for PauseLoop {
    type Payload = LoopPayload;
    const ROUTE: Route = Route::post("loop pause", "/loops/{id}/pause");

    async fn run(self, cx: &Context) -> Result<LoopPayload> {
        named(step_view(cx, self.id.into_inner(), Command::Pause).await.map(LoopPayload::of_view))
    }
}

/// Let a paused loop go on
///
/// Example: rota loop resume ralph-7
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeLoop {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for ResumeLoop {
    type Payload = LoopPayload;
    const ROUTE: Route = Route::post("loop resume", "/loops/{id}/resume");

    async fn run(self, cx: &Context) -> Result<LoopPayload> {
        named(step_view(cx, self.id.into_inner(), Command::Resume).await.map(LoopPayload::of_view))
    }
}
