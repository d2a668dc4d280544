//! `rota policy apply`

use async_trait::async_trait;
use rota_core::{Json, Policy, Refusal};
use rota_store::intents::policy::{CurrentPolicy, PublishPolicy};
use rota_store::{Fault, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::based_on;
use super::diff::{Change, between};
use crate::context::Context;
use crate::verb::{Route, Verb};
use crate::{Error, Result};

/// What was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Applied {
    /// The version now in force.
    pub version: String,
    /// What it changed.
    pub changes: Vec<Change>,
}

/// What becomes of published rules that the document does not name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum Unnamed {
    /// The document is refused if one of them would go back to its default.
    #[default]
    Refuse,
    /// They stay.
    Merge,
    /// They go back to their defaults.
    Replace,
}

/// Check a document, tell what it changes, publish it
///
/// Example: rota policy apply rota.policy.json
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplyPolicy {
    /// The text of the document
    pub document: String,
    /// Whether published rules that the document does not name are refused, kept, or set back to their defaults
    #[serde(default)]
    pub unnamed: Unnamed,
}

#[async_trait]
impl Verb for ApplyPolicy {
    type Payload = Applied;
    const ROUTE: Route = Route::post("policy apply", "/policies");
    const PUBLISHES: bool = true;

    /// Refused if it was made from a version that is no longer current. The policy in force may be unreadable: this is the way out.
    async fn run(self, cx: &Context) -> Result<Applied> {
        let document = &self.document;
        // What is wrong by itself is told before anything is asked of the store.
        Policy::parse(document).map_err(Refusal::from)?;
        let based_on = based_on(document);
        let before = match cx.store.perform(&CurrentPolicy { call: cx.call() }).await {
            Ok((before, _)) => Some(before),
            Err(Error::Fault(Fault::UnreadablePolicy { .. })) => None,
            Err(other) => return Err(other),
        };
        let policy = with_unnamed(before.as_ref().map(|before| &before.policy), document, self.unnamed)?;
        // What the diff was made from is what must still be in force.
        let based_on = based_on.or_else(|| before.as_ref().map(|before| before.version.clone()));
        let changes = between(before.as_ref().map(|before| &before.policy), &policy).changes;
        let published = cx.store.perform(&PublishPolicy { call: cx.call(), policy, based_on }).await?;
        Ok(Applied { version: published.version.clone(), changes })
    }
}

/// The policy that is published for a document.
fn with_unnamed(before: Option<&Policy>, document: &str, unnamed: Unnamed) -> Result<Policy> {
    let default = Policy::default();
    let before = before.unwrap_or(&default);
    let replaced = || before.replaced(document).map_err(Refusal::from);
    let merged = || before.merged(document).map_err(Refusal::from);
    match unnamed {
        Unnamed::Merge => return Ok(merged()?),
        Unnamed::Replace => return Ok(replaced()?),
        Unnamed::Refuse => {}
    }
    let replaced = replaced()?;
    // The two differ in what was published, is not its default, and is not named.
    let reverts = between(Some(&merged()?), &replaced).changes;
    if reverts.is_empty() || Policy::names_nothing(document) {
        return Ok(replaced);
    }
    let word = |value: &Option<Json>| value.as_ref().map_or("none", Json::as_str).to_owned();
    let told =
        |change: &Change| format!("{} (now {}, then {})", change.path, word(&change.from), word(&change.to));
    let reverts = reverts.iter().map(told).collect::<Vec<_>>().join(", ");
    Err(Refusal::PolicyReverts { reverts }.into())
}
