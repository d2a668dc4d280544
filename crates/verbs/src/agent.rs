//! `agent register`, `agent list`, `agent deregister`.

use rota_core::UnixMillis;
use rota_store::intents::agents::{DeregisterAgent, ListAgents, RegisterAgent};
use rota_store::{AgentRow, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, checked_name};
use crate::{Result, Word};

/// An agent as every interface shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields say it")]
pub struct Agent {
    pub id: String,
    pub pid: u32,
    pub host: String,
    pub started_at: UnixMillis,
    pub status: Word,
}

impl Agent {
    fn of(row: AgentRow) -> Self {
        let status = if row.stopped_at.is_some() { "stopped" } else { "active" };
        Self { id: row.id, pid: row.pid, host: row.host, started_at: row.started_at, status: status.into() }
    }
}

/// Running agents, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Agents {
    /// How many.
    pub total: usize,
    /// Newest first.
    pub agents: Vec<Agent>,
}

/// Registers a process under a new id.
pub async fn register(cx: &Context, pid: u32, host: &str) -> Result<Agent> {
    let host = checked_name("host", Some(host.to_owned()))?.unwrap_or_else(|| "localhost".to_owned());
    Ok(Agent::of(cx.store.perform(&RegisterAgent { call: cx.call(), pid, host }).await?))
}

/// Lists agents that have not stopped.
pub async fn list(cx: &Context) -> Result<Agents> {
    let rows = cx.store.perform(&ListAgents { call: cx.call() }).await?;
    let agents: Vec<Agent> = rows.into_iter().filter(|row| row.stopped_at.is_none()).map(Agent::of).collect();
    Ok(Agents { total: agents.len(), agents })
}

/// An agent that was deregistered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deregistered {
    /// Which.
    pub id: String,
}

/// Says that an agent stopped; again is fine.
pub async fn deregister(cx: &Context, id: &str) -> Result<Deregistered> {
    cx.store.perform(&DeregisterAgent { call: cx.call(), id: id.to_owned() }).await?;
    Ok(Deregistered { id: id.to_owned() })
}
