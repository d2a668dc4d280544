//! Agents that make themselves known.

use std::hash::{BuildHasher, RandomState};

use async_trait::async_trait;
use rota_core::Refusal;

use super::{Call, Cx};
use crate::fault::Outcome;
use crate::store::{Access, Intent};
use crate::tx::{AgentRow, AnyTx, Tx};

/// Registers an agent under a free id of four hex digits.
#[derive(Clone, Debug)]
pub struct RegisterAgent {
    /// Where, when, who.
    pub call: Call,
    /// Its process.
    pub pid: u32,
    /// Its host.
    pub host: String,
}

#[async_trait]
impl Intent for RegisterAgent {
    type Output = AgentRow;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<AgentRow> {
        let cx = Cx::open(tx, &self.call).await?;
        let start = RandomState::new().hash_one(self.pid);
        for offset in 0..=u64::from(u16::MAX) {
            let id = format!("{:04x}", start.wrapping_add(offset) & u64::from(u16::MAX));
            let host = self.host.clone();
            let agent = AgentRow { id, pid: self.pid, host, started_at: cx.now, stopped_at: None };
            if tx.add_agent(&cx.scope, &agent).await? {
                return Ok(agent);
            }
        }
        Err(Refusal::BadValue { problem: "all 65536 agent ids of this scope are taken".into() }.into())
    }
}

/// Lists all agents, newest first.
#[derive(Clone, Debug)]
pub struct ListAgents {
    /// Where, when, who.
    pub call: Call,
}

#[async_trait]
impl Intent for ListAgents {
    type Output = Vec<AgentRow>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<AgentRow>> {
        let cx = Cx::open(tx, &self.call).await?;
        Ok(tx.agents(&cx.scope).await?)
    }
}

/// Says that an agent stopped. Again is fine.
#[derive(Clone, Debug)]
pub struct DeregisterAgent {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub id: String,
}

#[async_trait]
impl Intent for DeregisterAgent {
    type Output = ();

    async fn run(&self, tx: &mut AnyTx) -> Outcome<()> {
        let cx = Cx::open(tx, &self.call).await?;
        let agent = tx.agent(&cx.scope, &self.id).await?;
        let agent = agent.ok_or_else(|| Refusal::AgentNotFound { id: self.id.clone() })?;
        if agent.stopped_at.is_none() {
            tx.stop_agent(&cx.scope, &self.id, cx.now).await?;
        }
        Ok(())
    }
}
