//! `rota policy show`, `check` and `history`

use async_trait::async_trait;
use rota_core::{Json, Policy, Refusal, UnixMillis};
use rota_store::Store;
use rota_store::intents::policy::{CurrentPolicy, PolicyVersions};
use rota_store::intents::policy_version;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::verb::{Route, Verb};
use crate::{Result, Word};

/// The document in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyPayload {
    /// Hash of its canonical form.
    pub version: String,
    /// `default` until anything was published.
    pub source: Word,
    /// The canonical document.
    pub policy: Json,
}

/// Show the document in force
///
/// Example: rota policy show
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowPolicy {}

#[async_trait]
impl Verb for ShowPolicy {
    type Payload = PolicyPayload;
    const ROUTE: Route = Route::get("policy show", "/policy");

    async fn run(self, cx: &Context) -> Result<PolicyPayload> {
        let (published, history) = cx.store.perform(&CurrentPolicy { call: cx.call() }).await?;
        let source = if history.is_empty() { "default" } else { "published" };
        Ok(PolicyPayload {
            version: published.version.clone(),
            source: source.into(),
            policy: published.policy.to_json(),
        })
    }
}

/// A document that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// Always true: what cannot be used is an error.
    pub valid: bool,
    /// The version it would have.
    pub version: String,
}

/// Check a document
///
/// Example: rota policy check rota.policy.json
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckPolicy {
    /// The text of the document
    pub document: String,
}

#[async_trait]
impl Verb for CheckPolicy {
    type Payload = Checked;
    const ROUTE: Route = Route::post("policy check", "/policies/check");

    async fn run(self, _cx: &Context) -> Result<Checked> {
        check(&self.document)
    }
}

/// Checks a document without a store.
pub fn check(document: &str) -> Result<Checked> {
    let policy = Policy::parse(document).map_err(Refusal::from)?;
    Ok(Checked { valid: true, version: policy_version(&policy) })
}

/// Every version, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// How many.
    pub total: usize,
    /// Oldest first.
    pub versions: Vec<Version>,
}

/// One published version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields say it")]
pub struct Version {
    pub number: u64,
    pub version: String,
    pub published_at: UnixMillis,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// List the published versions
///
/// Example: rota policy history
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListPolicies {}

#[async_trait]
impl Verb for ListPolicies {
    type Payload = History;
    const ROUTE: Route = Route::get("policy history", "/policies");

    /// Also where the newest cannot be read.
    async fn run(self, cx: &Context) -> Result<History> {
        let rows = cx.store.perform(&PolicyVersions { call: cx.call() }).await?;
        let version = |row: rota_store::PolicyRow| Version {
            number: row.number,
            version: row.version,
            published_at: row.published_at,
            actor: row.actor,
        };
        let versions: Vec<Version> = rows.into_iter().map(version).collect();
        Ok(History { total: versions.len(), versions })
    }
}
