//! Agents that outlived their daemon: it was killed, their shims go on until the lease runs out or the next daemon comes.

use std::path::Path;

use rota_core::LeaseId;
use rota_core::text::escaped;
use rota_daemon::shim::record::{RunRecord, Written};
use serde::Serialize;

use super::view;

/// An agent that runs without a daemon.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    id: String,
    lease_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    iteration: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    running_secs: u64,
}

/// The payload of `rota status` without a daemon.
#[derive(Serialize)]
pub struct Outlived {
    daemon: bool,
    agents: Vec<Agent>,
}

/// The agents of this workspace whose shims are alive. The shim holds the lock on the run's record as long as it lives.
pub fn find(rota: &Path) -> Outlived {
    let records = RunRecord::all(&rota.join("run/agents")).unwrap_or_default();
    let lives = |record: &RunRecord| record.take().is_ok_and(|taken| taken.is_none());
    let agents =
        records.iter().filter(|record| lives(record)).filter_map(|record| agent(record.read().ok()?));
    Outlived { daemon: false, agents: agents.collect() }
}

fn agent(Written { run, began, .. }: Written) -> Option<Agent> {
    let run = run?;
    let id = LeaseId::parse(&run.lease).map_or_else(|_| run.lease.clone(), |lease| lease.task.to_string());
    let pid = began.and_then(|began| began.agent).map(|agent| agent.pid);
    let running_secs = run.age().as_secs();
    Some(Agent { id, lease_id: run.lease, iteration: run.iteration, pid, running_secs })
}

impl Outlived {
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    pub fn text(&self) -> String {
        let count = self.agents.len();
        let (agents, them) = if count == 1 { ("agent runs", "it") } else { ("agents run", "them") };
        let mut text =
            format!("{count} {agents} without a daemon; the next `rota up` goes on with {them}:\n");
        for agent in &self.agents {
            let iteration =
                agent.iteration.map_or(String::new(), |iteration| format!("  iteration {iteration}"));
            let pid = agent.pid.map_or(String::new(), |pid| format!("  pid {pid}"));
            let age = view::age(agent.running_secs);
            text.push_str(&format!("  {}{iteration}  {age}{pid}\n", escaped(&agent.id)));
        }
        text
    }
}
