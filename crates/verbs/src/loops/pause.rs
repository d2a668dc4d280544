//! `loop pause` and `loop resume`: one loop is held back, and let go on.

use rota_core::transition::Command;

use super::LoopPayload;
use crate::Result;
use crate::context::{Context, task_id};
use crate::step::step_view;

/// Holds a loop back; a lease on it ends.
pub async fn pause(cx: &Context, id: &str) -> Result<LoopPayload> {
    Ok(LoopPayload::of_view(step_view(cx, task_id(id)?, Command::Pause).await?))
}

/// Lets a paused loop go on.
pub async fn resume(cx: &Context, id: &str) -> Result<LoopPayload> {
    Ok(LoopPayload::of_view(step_view(cx, task_id(id)?, Command::Resume).await?))
}
