//! `rota loop config`: each setting of a loop, and where it comes from.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use rota_core::obstacle::Wait;
use rota_core::{Policy, Task, TaskId};
use rota_store::Store;
use rota_store::intents::policy::CurrentPolicy;
use rota_store::intents::read::Show;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::named;
use crate::context::Context;
use crate::input::Id;
use crate::verb::{Route, Verb};
use crate::{Result, Word};

/// A value in force, and where it comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Its path in `rota.yml`.
    pub name: String,
    /// The value.
    pub value: Value,
    /// `default`, `rota.yml` or `policy`.
    pub from: Word,
    /// What `rota.yml` says where the published policy says something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Value>,
}

type Made = dyn Fn(&str, &Policy) -> Vec<Setting> + Send + Sync;
type Waits = dyn Fn(&str) -> Vec<Wait> + Send + Sync;
type Validating = dyn Fn(&Task) -> bool + Send + Sync;

/// Whoever knows the configuration: makes settings out of a kind and the policy in force.
#[derive(Clone, Default)]
pub struct Settings {
    made: Option<Arc<Made>>,
    waits: Option<Arc<Waits>>,
    validating: Option<Arc<Validating>>,
}

impl Settings {
    /// By a function of the kind and the policy, and one that says what keeps a kind from beginning on this host.
    pub fn by(
        made: impl Fn(&str, &Policy) -> Vec<Setting> + Send + Sync + 'static,
        waits: impl Fn(&str) -> Vec<Wait> + Send + Sync + 'static,
    ) -> Self {
        Self { made: Some(Arc::new(made)), waits: Some(Arc::new(waits)), validating: None }
    }

    /// With a function that says whether the validation of a loop that runs on this host is under way.
    #[must_use]
    pub fn with_validating(self, validating: impl Fn(&Task) -> bool + Send + Sync + 'static) -> Self {
        Self { validating: Some(Arc::new(validating)), ..self }
    }

    pub(crate) fn is_validating(&self, task: &Task) -> bool {
        self.validating.as_ref().is_some_and(|validating| validating(task))
    }

    /// What keeps each of these kinds from beginning on this host now.
    pub(crate) fn waits<'a>(&self, kinds: impl Iterator<Item = &'a String>) -> BTreeMap<String, Vec<Wait>> {
        let Some(waits) = &self.waits else { return BTreeMap::new() };
        kinds.map(|kind| (kind.clone(), waits(kind))).collect()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Settings")
    }
}

/// The settings of a loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoopConfig {
    /// The loop.
    pub id: TaskId,
    /// Its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Each with its source.
    pub settings: Vec<Setting>,
}

/// Show the settings of a loop, and where each comes from
///
/// Example: rota loop config ralph-7
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigureLoop {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for ConfigureLoop {
    type Payload = LoopConfig;
    const ROUTE: Route = Route::get("loop config", "/loops/{id}/config");

    async fn run(self, cx: &Context) -> Result<LoopConfig> {
        let shown = cx.store.perform(&Show { call: cx.call(), id: self.id.into_inner() }).await;
        let (view, _) = named(shown)?;
        let (published, _) = cx.store.perform(&CurrentPolicy { call: cx.call() }).await?;
        let kind = view.task.kind;
        let made = |made: &Arc<Made>| made(kind.as_deref().unwrap_or_default(), &published.policy);
        let settings = cx.settings.made.as_ref().map(made).unwrap_or_default();
        Ok(LoopConfig { id: view.task.id, kind, settings })
    }
}
