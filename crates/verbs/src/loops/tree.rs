//! `loop tree`: loops below their parents.

use async_trait::async_trait;
use rota_store::Store;
use rota_store::intents::loops::Tree;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LOOPS, LoopPayload, named};
use crate::Result;
use crate::context::Context;
use crate::input::Id;
use crate::verb::{Route, Verb, read_flattened};

/// A tree, or all of them, depth first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoopTree {
    /// How many.
    pub total: usize,
    /// Depth first.
    pub loops: Vec<TreeLine>,
}

/// One loop of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TreeLine {
    /// How far below the top.
    pub level: usize,
    /// The loop.
    #[serde(flatten)]
    pub task: LoopPayload,
}

read_flattened!(TreeLine { ..task, level: usize });

/// Show loops below their parents
///
/// Example: rota loop tree plan-1
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowTree {
    /// The task
    #[arg(value_name = "id")]
    pub id: Option<Id>,
}

#[async_trait]
impl Verb for ShowTree {
    type Payload = LoopTree;
    const ROUTE: Route = Route::get("loop tree", "/trees");

    async fn run(self, cx: &Context) -> Result<LoopTree> {
        let id = self.id.map(Id::into_inner);
        let lines = named(cx.store.perform(&Tree { call: cx.call(), queue: LOOPS.to_owned(), id }).await)?;
        let line = |line: rota_store::intents::loops::TreeLine| TreeLine {
            level: line.level,
            task: LoopPayload::of_task(line.task),
        };
        let loops: Vec<TreeLine> = lines.into_iter().map(line).collect();
        Ok(LoopTree { total: loops.len(), loops })
    }
}
