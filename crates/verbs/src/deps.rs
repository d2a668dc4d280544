//! `deps`: the blockers of a task as a tree.

use rota_core::TaskId;
use rota_store::Store;
use rota_store::intents::read::Blockers;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, task_id};
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

/// Tells the tree of a task's blockers.
pub async fn deps(cx: &Context, id: &str) -> Result<Deps> {
    let lines = cx.store.perform(&Blockers { call: cx.call(), id: task_id(id)? }).await?;
    let line = |line: rota_store::intents::read::BlockerLine| DepsLine {
        level: line.level,
        id: line.blocker.id,
        status: line.blocker.status.word().into(),
        title: line.blocker.title,
    };
    let blockers: Vec<DepsLine> = lines.into_iter().map(line).collect();
    Ok(Deps { total: blockers.len(), blockers })
}
