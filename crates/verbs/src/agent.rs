//! `rota task agent register`, `list` and `deregister`

use async_trait::async_trait;
use rota_core::UnixMillis;
use rota_store::intents::agents;
use rota_store::{AgentRow, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::input::{AgentId, Host};
use crate::verb::{Route, Verb};
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

/// Register the calling process as an agent and print its id
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RegisterAgent {
    /// The process
    pub pid: u32,
    /// The host it runs on
    pub host: Host,
}

#[async_trait]
impl Verb for RegisterAgent {
    type Payload = Agent;
    const ROUTE: Route = Route::post("task agent register", "/agents");

    async fn run(self, cx: &Context) -> Result<Agent> {
        let host = self.host.into_inner().unwrap_or_else(|| "localhost".to_owned());
        Ok(Agent::of(
            cx.store.perform(&agents::RegisterAgent { call: cx.call(), pid: self.pid, host }).await?,
        ))
    }
}

/// List running agents
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ListAgents {}

#[async_trait]
impl Verb for ListAgents {
    type Payload = Agents;
    const ROUTE: Route = Route::get("task agent list", "/agents");

    async fn run(self, cx: &Context) -> Result<Agents> {
        let rows = cx.store.perform(&agents::ListAgents { call: cx.call() }).await?;
        let running = rows.into_iter().filter(|row| row.stopped_at.is_none());
        let agents: Vec<Agent> = running.map(Agent::of).collect();
        Ok(Agents { total: agents.len(), agents })
    }
}

/// An agent that was deregistered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deregistered {
    /// Which.
    pub id: String,
}

/// Say that an agent stopped
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeregisterAgent {
    /// The agent
    #[arg(value_name = "agent")]
    pub id: AgentId,
}

#[async_trait]
impl Verb for DeregisterAgent {
    type Payload = Deregistered;
    const ROUTE: Route = Route::delete("task agent deregister", "/agents/{id}");

    /// Repeating it is fine.
    async fn run(self, cx: &Context) -> Result<Deregistered> {
        let id = self.id.into_inner();
        cx.store.perform(&agents::DeregisterAgent { call: cx.call(), id: id.clone() }).await?;
        Ok(Deregistered { id })
    }
}
