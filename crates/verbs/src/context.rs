//! What every verb is told: which store and scope, who asks, which `now`.

use std::sync::Arc;

use rota_core::{Caller, LeaseId, Refusal, TaskId, UnixMillis};
use rota_store::AnyStore;
use rota_store::intents::Call;
use rota_store::intents::read::Runners;

use crate::Result;
use crate::loops::Settings;

/// The surroundings of a call.
#[derive(Clone)]
pub struct Context {
    /// Where tasks are kept.
    pub store: AnyStore,
    /// Namespace.
    pub scope: String,
    /// Who asks, if it says so.
    pub agent: Option<String>,
    /// The lease it names for this call, as given. A wrong one is always refused.
    pub lease: Option<String>,
    /// The lease of its surroundings (`ROTA_LEASE`): counts only for the task it names.
    pub ambient_lease: Option<String>,
    /// The lease whose token the caller presents; its rights are checked by [`crate::lease_token`].
    pub token: Option<LeaseId>,
    /// Replaces the store's clock.
    pub now: Option<UnixMillis>,
    /// Whether a verb that writes may be given a `now` that the store's clock has not reached (`ROTA_ALLOW_NOW`).
    pub allow_future: bool,
    /// The host that would run tasks; none where hosts do not matter.
    pub host: Option<String>,
    /// What is configured to run loops.
    pub runners: Arc<Runners>,
    /// Who knows the configuration of loops.
    pub settings: Settings,
    /// The agent that a claim is for.
    pub claimant: Claimant,
    /// The folder that entries belong to which name no repository.
    pub folder: Option<String>,
}

/// The agent that a claim is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Claimant {
    /// The caller, named or not.
    #[default]
    Caller,
    /// This one, whoever holds the task that the call settles.
    Named(String),
    /// It must be named, and was not.
    Missing,
}

impl Context {
    /// On a store, in the default scope, by nobody in particular.
    pub fn new(store: impl Into<AnyStore>) -> Self {
        let scope = "default".to_owned();
        Self {
            store: store.into(),
            scope,
            agent: None,
            lease: None,
            ambient_lease: None,
            token: None,
            now: None,
            allow_future: false,
            host: None,
            runners: Arc::default(),
            settings: Settings::default(),
            claimant: Claimant::Caller,
            folder: None,
        }
    }

    /// The scope, time and actor of this call, for an intent.
    pub fn call(&self) -> Call {
        Call {
            scope: self.scope.clone(),
            now: self.now,
            allow_future: self.allow_future,
            actor: self.agent.clone(),
        }
    }

    /// The agent of a claim.
    pub(crate) fn claimant(&self) -> Result<Option<String>> {
        match &self.claimant {
            Claimant::Caller => Ok(self.agent.clone()),
            Claimant::Named(agent) => Ok(Some(agent.clone())),
            Claimant::Missing => {
                let problem = "missing agent: without a session a claim must name its agent";
                Err(bad_value(problem.to_owned()).into())
            }
        }
    }

    /// Who speaks for the lease of a task.
    pub(crate) fn caller(&self, task: &TaskId) -> Result<Caller> {
        let named = match &self.lease {
            Some(text) => Some(LeaseId::parse(text).map_err(|error| bad_value(error.to_string()))?),
            None => None,
        };
        let ambient = self.ambient_lease.as_deref().and_then(|text| LeaseId::parse(text).ok());
        let lease = named.or_else(|| ambient.filter(|lease| lease.task == *task));
        Ok(Caller { agent: self.agent.clone(), lease })
    }
}

pub(crate) fn bad_value(problem: String) -> Refusal {
    Refusal::BadValue { problem }
}

/// Checks an id that came from outside.
pub fn task_id(text: &str) -> Result<TaskId> {
    Ok(TaskId::new(text).map_err(Refusal::from)?)
}

/// Checks a free word that came from outside; the empty one is none.
pub fn checked_name(field: &'static str, text: Option<String>) -> Result<Option<String>> {
    let name = text.filter(|text| !text.is_empty());
    if let Some(name) = &name {
        rota_core::id::check_name(field, name).map_err(Refusal::from)?;
    }
    Ok(name)
}

pub(crate) fn checked_text(field: &'static str, text: &str, limit: usize) -> Result<()> {
    // PostgreSQL has no place for it, and no store takes what another one cannot.
    if text.contains('\0') {
        return Err(bad_value(format!("{field} contains a NUL character")).into());
    }
    if text.len() > limit {
        let problem = format!("{field} is {} bytes long, at most {limit} are allowed", text.len());
        return Err(bad_value(problem).into());
    }
    Ok(())
}
