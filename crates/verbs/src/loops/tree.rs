//! `loop tree`: loops below their parents.

use rota_store::Store;
use rota_store::intents::loops::Tree;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LOOPS, LoopPayload};
use crate::Result;
use crate::context::{Context, task_id};
use crate::verb::read_flattened;

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

/// Shows the tree below a loop, or every tree.
pub async fn tree(cx: &Context, id: Option<&str>) -> Result<LoopTree> {
    let id = id.map(task_id).transpose()?;
    let lines = cx.store.perform(&Tree { call: cx.call(), queue: LOOPS.to_owned(), id }).await?;
    let line = |line: rota_store::intents::loops::TreeLine| TreeLine {
        level: line.level,
        task: LoopPayload::of_task(line.task),
    };
    let loops: Vec<TreeLine> = lines.into_iter().map(line).collect();
    Ok(LoopTree { total: loops.len(), loops })
}
