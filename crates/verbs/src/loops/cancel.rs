//! `loop cancel`: a loop and what is unfinished below it are given up.

use rota_store::Store;
use rota_store::intents::loops::Cancel;

use super::ChangedTree;
use crate::Result;
use crate::context::{Context, task_id};

/// Gives up a tree.
pub async fn cancel(cx: &Context, id: &str) -> Result<ChangedTree> {
    let intent = Cancel { call: cx.call(), id: task_id(id)? };
    Ok(ChangedTree::of(cx.store.perform(&intent).await?))
}
