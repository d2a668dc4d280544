//! `rota why`: every check with its verdict, every score term, the position, what would free it.

use async_trait::async_trait;
use rota_core::explain::Explanation;
use rota_store::Store;
use rota_store::intents::read::{Runners, Why};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;
use crate::input::Id;
use crate::lease_token::{On, Right};
use crate::verb::{Access, Route, Tool, Verb};

/// Explain why a task runs, or not
///
/// Prints every check with its verdict, the score, the position and what would free it.
///
/// Example: rota why fix-login
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExplainTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for ExplainTask {
    type Payload = Explanation;
    const ROUTE: Route = Route::get("why", "/tasks/{id}/why");
    const ACCESS: Access = Access::LeaseToken(Right::on(On::Kin));
    const TOOL: Option<Tool> = Some(Tool::core(
        "Explain a task",
        "Explain why a task runs or does not run: every check with its verdict, its place in line, who is ahead, what \
         would free it, and the earliest time it can run. Changes nothing.",
    ));

    async fn run(self, cx: &Context) -> Result<Explanation> {
        let (call, host, mut runners) = (cx.call(), cx.host.clone(), Runners::clone(&cx.runners));
        runners.waits = cx.settings.waits(runners.kinds.iter().flat_map(|kinds| kinds.keys()));
        cx.store.perform(&Why { call, id: self.id.into_inner(), host, runners }).await
    }
}
