//! `rota task deps`

use async_trait::async_trait;
use rota_core::TaskId;
use rota_store::Store;
use rota_store::intents::read::Blockers;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::input::Id;
use crate::verb::{Route, Verb};
use crate::{Result, Word};

/// The tree, told line by line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deps {
    /// How many lines.
    pub total: usize,
    /// Direct ones at level 0, theirs below them.
    pub blockers: Vec<DepsLine>,
}

/// One blocker in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DepsLine {
    /// How far from the task, 0 for direct ones.
    pub level: usize,
    /// The blocker.
    pub id: TaskId,
    /// Where it stands.
    pub status: Word,
    /// Its title.
    pub title: String,
}

/// Show a task's blockers as a tree
///
/// Example: rota task deps fix-login
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowDeps {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for ShowDeps {
    type Payload = Deps;
    const ROUTE: Route = Route::get("task deps", "/tasks/{id}/deps");

    async fn run(self, cx: &Context) -> Result<Deps> {
        let lines = cx.store.perform(&Blockers { call: cx.call(), id: self.id.into_inner() }).await?;
        let line = |line: rota_store::intents::read::BlockerLine| DepsLine {
            level: line.level,
            id: line.blocker.id,
            status: line.blocker.status.word().into(),
            title: line.blocker.title,
        };
        let blockers: Vec<DepsLine> = lines.into_iter().map(line).collect();
        Ok(Deps { total: blockers.len(), blockers })
    }
}
