//! `rota task renew`

use async_trait::async_trait;
use rota_core::transition::Command;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::claim::lease_ms;
use crate::context::Context;
use crate::input::{Id, Seconds};
use crate::lease_token::{On, Right};
use crate::step::step;
use crate::verb::{Access, LeaseChanges, Route, Tool, Verb};
use crate::{Result, TaskPayload};

/// Extend the lease of a task
///
/// Example: rota task renew fix-login --agent a1
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
    /// How long from now [default: the policy's, 600 in tasks]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub lease: Option<Seconds>,
}

#[async_trait]
impl Verb for RenewTask {
    type Payload = TaskPayload;
    const ROUTE: Route = Route::post("task renew", "/tasks/{id}/renew");
    const NAMES_LEASE: bool = true;
    const ACCESS: Access = Access::LeaseToken(Right {
        after_expiry: true,
        bound: "`--lease` at most the queue's `leaseTtlMs`",
        ..Right::on(On::Own)
    });
    const TOOL: Option<Tool> = Some(
        Tool::core(
            "Keep a task",
            "Extend the lease of a task you claimed, counted from now. Do it well before leaseExpiresAt while you are \
             still working. If it is refused, the task is no longer yours: stop working on it.",
        )
        .with_lease(),
    );

    fn leases(task: &TaskPayload) -> LeaseChanges {
        LeaseChanges { renewed: task.lease(), ..LeaseChanges::default() }
    }

    async fn run(self, cx: &Context) -> Result<TaskPayload> {
        let id = self.id.into_inner();
        let command = Command::Renew { caller: cx.caller(&id)?, ttl_ms: self.lease.map(lease_ms) };
        step(cx, id, command).await
    }
}
