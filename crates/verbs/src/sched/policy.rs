//! `sched policy show|set`: the rules of a queue, flat.

use std::sync::Arc;

use rota_core::Json;
use rota_core::policy::FlatPolicy;
use rota_store::intents::policy::{CurrentPolicy, EditRules};
use rota_store::{Published, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, bad_value};
use crate::create::checked_queue;
use crate::input::not_a_number;
use crate::{Result, Word};

/// The rules and where they come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct SchedPolicy {
    pub policy: FlatPolicy,
    pub source: Word,
}

/// The rules in force: `file` once anything was published.
pub async fn policy_show(cx: &Context, queue: &str) -> Result<SchedPolicy> {
    let queue = checked_queue(queue)?;
    let (published, history) = cx.store.perform(&CurrentPolicy { call: cx.call() }).await?;
    let source = if history.is_empty() { "default" } else { "file" };
    Ok(SchedPolicy { policy: published.policy.flat(&queue), source: source.into() })
}

/// The rules that can be set, as flags and as keys of the flat document.
pub const RULES: [&str; 6] =
    ["maxConcurrent", "maxAttempts", "leaseTtlMs", "backoffBaseMs", "backoffFactor", "backoffCapMs"];

/// The flat document that flags make, each a rule and its value as text.
pub fn flat(given: impl IntoIterator<Item = (&'static str, Option<String>)>) -> Result<String> {
    let mut fields = Vec::new();
    for (rule, text) in given {
        let Some(text) = text else { continue };
        let number = Json::parse(&text).ok().filter(|json| {
            // A number of any size; the policy says which it takes.
            serde_json::from_str::<serde_json::Number>(json.as_str()).is_ok()
        });
        let number = number.ok_or_else(|| bad_value(not_a_number(rule, &text)))?;
        fields.push(format!("\"{rule}\":{}", number.as_str()));
    }
    if fields.is_empty() {
        return Err(bad_value("missing a rule to set (e.g. --maxConcurrent 4)".into()).into());
    }
    Ok(format!("{{{}}}", fields.join(",")))
}

/// Changes what a flat document names and publishes it in one step.
pub async fn policy_set(cx: &Context, queue: &str, flat: String) -> Result<(SchedPolicy, Arc<Published>)> {
    let published = cx.store.perform(&EditRules { call: cx.call(), queue: queue.to_owned(), flat }).await?;
    Ok((SchedPolicy { policy: published.policy.flat(queue), source: "file".into() }, published))
}
