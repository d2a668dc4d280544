//! `loop reiterate`: a loop starts over, and what is unfinished below it is invalidated.

use rota_core::limits;
use rota_store::Store;
use rota_store::intents::loops::Reiterate;

use super::ChangedTree;
use crate::Result;
use crate::context::{Context, checked_text, task_id};

/// Starts a finished or parked loop over.
pub async fn reiterate(cx: &Context, id: &str, reason: Option<String>) -> Result<ChangedTree> {
    let reason = reason.filter(|reason| !reason.is_empty());
    checked_text("reason", reason.as_deref().unwrap_or_default(), limits::TEXT_BYTES)?;
    let intent = Reiterate { call: cx.call(), id: task_id(id)?, reason };
    Ok(ChangedTree::of(cx.store.perform(&intent).await?))
}
