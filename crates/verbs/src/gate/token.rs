//! `gate token`: a token for an agent that somebody starts by hand.

use rota_core::UnixMillis;
use rota_core::policy::GateLevel;
use rota_store::Store;
use rota_store::intents::gateway::MakeGateToken;
use serde::Serialize;

use crate::Result;
use crate::context::{Context, task_id};

/// What to make.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// SHA-256 of it, in hex; the token itself is shown once and kept nowhere.
    pub hash: String,
    /// Whose usage it counts as.
    pub task: Option<String>,
    /// How urgent its calls may be.
    pub level: Option<GateLevel>,
    /// How long it is good for, in seconds.
    pub ttl_secs: Option<u32>,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MadeToken {
    /// Whose usage it counts as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Until when it is good; none for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<UnixMillis>,
}

/// Makes a token.
pub async fn token(cx: &Context, new: NewToken) -> Result<MadeToken> {
    let make = MakeGateToken {
        call: cx.call(),
        hash: new.hash,
        task: new.task.as_deref().map(task_id).transpose()?,
        level: new.level,
        ttl_ms: new.ttl_secs.map(|secs| i64::from(secs) * 1_000),
    };
    let row = cx.store.perform(&make).await?;
    Ok(MadeToken { task: row.task, expires_at: row.expires_at })
}
