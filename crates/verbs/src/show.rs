//! `show`: one task in full.

use rota_core::{Json, TaskId};
use rota_store::Store;
use rota_store::intents::read::Show;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, task_id};
use crate::verb::read_flattened;
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

/// Shows a task; its blockers' results only when asked.
pub async fn show(cx: &Context, id: &str, with_results: bool) -> Result<Shown> {
    let (view, blockers) = cx.store.perform(&Show { call: cx.call(), id: task_id(id)? }).await?;
    let blocker = |blocker: rota_store::Blocker| BlockerPayload {
        id: blocker.id,
        status: blocker.status.word().into(),
        title: blocker.title,
        result: blocker.result.filter(|_| with_results),
    };
    Ok(Shown { task: TaskPayload::of_view(view), blockers: blockers.into_iter().map(blocker).collect() })
}
