//! A gateway that runs follows the policy in the store and the section `gateway` of `rota.yml`: what is published, by
//! whomever, and what is edited reaches its gates at once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rota_gateway::{Gateway, GatewayConfig, Notice, Notices, Reload};
use rota_store::intents::Call;
use rota_store::intents::policy::CurrentPolicy;
use rota_store::{AnyStore, Published, Store};
use tokio::sync::mpsc;

use super::gate_config;
use crate::changes::Changes;
use crate::config::Config;
use crate::publish::publish;

/// How long changes of a busy store are gathered before it is asked.
const GATHER: Duration = Duration::from_millis(50);
/// How often the file is looked at, and the store where it tells nobody of changes.
const LOOK: Duration = Duration::from_millis(500);

/// A gateway and what it follows.
pub struct Follower {
    /// The gateway.
    pub gateway: Gateway,
    /// Where the policy is.
    pub store: AnyStore,
    /// Scope and name.
    pub call: Call,
    /// Where the configuration is.
    pub config_file: PathBuf,
    /// Where the plain copy of a policy that was published goes, if this one publishes what the file says.
    pub publishes_to: Option<PathBuf>,
    /// The section as it is in force.
    pub config: GatewayConfig,
    /// The policy as it is in force.
    pub policy: Arc<Published>,
    /// Who is told.
    pub notices: Notices,
}

impl Follower {
    /// Follows until it is dropped. A store that is away is asked again.
    pub async fn run(mut self) {
        let mut reloads = self.gateway.reloads();
        let mut seen = self.modified();
        let mut changes = Changes::watch(&self.store).await.ok();
        loop {
            tokio::select! {
                asked = next(&mut reloads) => {
                    seen = self.modified();
                    let problem = self.reload().await.err();
                    if let Some(problem) = problem.clone() {
                        (self.notices)(Notice::NotReloaded { problem });
                    }
                    // The caller may have gone.
                    let _sent = asked.send(problem);
                }
                () = wait(&mut changes) => {}
            }
            let modified = self.modified();
            if modified != seen {
                seen = modified;
                if let Err(problem) = self.reload().await {
                    (self.notices)(Notice::NotReloaded { problem });
                }
            }
            self.look().await;
        }
    }

    fn modified(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.config_file).and_then(|data| data.modified()).ok()
    }

    /// Takes over a policy that was published since.
    async fn look(&mut self) {
        // A store that is away is asked again; the gates go on as they are.
        let Ok((policy, _)) = self.store.perform(&CurrentPolicy { call: self.call.clone() }).await else {
            return;
        };
        if policy.version != self.policy.version {
            let config = self.config.clone();
            if let Err(problem) = self.take_over(policy, config) {
                (self.notices)(Notice::NotReloaded { problem });
            }
        }
    }

    /// Reads the file, publishes what it says about the policy, and takes both over. A bad file changes nothing.
    async fn reload(&mut self) -> Result<(), String> {
        let config = Config::read_if_there(&self.config_file).map_err(|error| error.to_string())?;
        let config = config.unwrap_or_default();
        let policy = match &self.publishes_to {
            None => {
                let current = CurrentPolicy { call: self.call.clone() };
                self.store.perform(&current).await.map_err(|error| error.to_string())?.0
            }
            Some(copy) => {
                let may_publish = true;
                let published = publish(&self.store, &self.call, &config, may_publish, copy).await;
                published.map_err(|error| error.to_string())?.policy
            }
        };
        // Where it listens and what its upstreams are stays as it was started.
        self.take_over(policy, config.gateway.unwrap_or_default().config)
    }

    fn take_over(&mut self, policy: Arc<Published>, config: GatewayConfig) -> Result<(), String> {
        let gate = gate_config(&policy.policy.gate);
        self.gateway.reconfigure(&gate, &config).map_err(|error| error.to_string())?;
        (self.policy, self.config) = (policy, config);
        Ok(())
    }
}

async fn next(reloads: &mut Option<mpsc::Receiver<Reload>>) -> Reload {
    match reloads {
        Some(reloads) => match reloads.recv().await {
            Some(asked) => asked,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

async fn wait(changes: &mut Option<Changes>) {
    match changes {
        Some(changes) => {
            changes.wait(LOOK).await;
            tokio::time::sleep(GATHER).await;
        }
        None => tokio::time::sleep(LOOK).await,
    }
}
