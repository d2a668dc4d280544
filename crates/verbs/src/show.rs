//! `rota task show`

use async_trait::async_trait;
use rota_core::{Json, TaskId};
use rota_store::Store;
use rota_store::intents::read::Show;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::input::Id;
use crate::lease_token::{On, Right};
use crate::verb::{Access, Route, Tool, Verb, read_flattened};
use crate::{Result, TaskPayload, Word};

/// A task and its blockers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shown {
    /// The task.
    #[serde(flatten)]
    pub task: TaskPayload,
    /// Its blockers, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<BlockerPayload>,
}

read_flattened!(Shown { ..task, #[serde(default)] blockers: Vec<BlockerPayload> });

/// A blocker as its dependent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockerPayload {
    /// The task.
    pub id: TaskId,
    /// Where it stands.
    pub status: Word,
    /// Its title.
    pub title: String,
    /// What came out of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
}

/// Show one task in full
///
/// Example: rota task show fix-login --with-deps
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
    /// With the results of its blockers
    #[arg(long)]
    #[serde(default)]
    pub with_deps: bool,
}

#[async_trait]
impl Verb for ShowTask {
    type Payload = Shown;
    const ROUTE: Route = Route::get("task show", "/tasks/{id}");
    const ACCESS: Access = Access::LeaseToken(Right {
        own_only: &["withDeps"],
        bound: "results of blockers (`--with-deps`) only of its own task",
        ..Right::on(On::Kin)
    });
    const TOOL: Option<Tool> = Some(Tool::extra(
        "Show a task",
        "Show one task in full: description, steps, state, who holds it, its blockers and where they stand. Changes \
         nothing.",
    ));

    async fn run(self, cx: &Context) -> Result<Shown> {
        let show = Show { call: cx.call(), id: self.id.into_inner() };
        let (view, blockers) = cx.store.perform(&show).await?;
        let blocker = |blocker: rota_store::Blocker| BlockerPayload {
            id: blocker.id,
            status: blocker.status.word().into(),
            title: blocker.title,
            result: blocker.result.filter(|_| self.with_deps),
        };
        Ok(Shown { task: TaskPayload::of_view(view), blockers: blockers.into_iter().map(blocker).collect() })
    }
}
