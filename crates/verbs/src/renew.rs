//! `renew`: the holder extends its lease.

use rota_core::transition::Command;

use crate::claim::lease_ms;
use crate::context::{Context, task_id};
use crate::step::step;
use crate::{Result, TaskPayload};

/// Extends the lease to now plus its length.
pub async fn renew(cx: &Context, id: &str, lease_secs: Option<u64>) -> Result<TaskPayload> {
    let id = task_id(id)?;
    let command = Command::Renew { caller: cx.caller(&id)?, ttl_ms: lease_secs.map(lease_ms) };
    step(cx, id, command).await
}
