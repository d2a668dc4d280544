//! The flat form of six keys that one queue's rules can have: `sched policy` speaks it, and old files are written in
//! it.

use serde::Serialize;
use serde_json::Value;

use super::parse::{COUNT, Object, YEAR_MS};
use super::{Policy, PolicyError, QueuePolicy};
use crate::backoff::Backoff;
use crate::json::Json;

/// The queue the flat form is about.
const QUEUE: &str = "runs";

/// The six keys.
pub const FLAT_KEYS: [&str; 6] =
    ["maxConcurrent", "maxAttempts", "leaseTtlMs", "backoffBaseMs", "backoffFactor", "backoffCapMs"];

/// The rules of queue `runs`, flat.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the policy")]
pub struct FlatPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    pub lease_ttl_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_base_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_factor: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_cap_ms: Option<u64>,
}

impl Policy {
    /// The rules of queue `runs`, flat.
    pub fn flat_runs(&self) -> FlatPolicy {
        let QueuePolicy { max_concurrent, max_attempts, lease_ttl_ms, backoff, .. } =
            self.queue(QUEUE).clone();
        FlatPolicy {
            max_concurrent,
            max_attempts,
            lease_ttl_ms,
            backoff_base_ms: backoff.map(|backoff| backoff.base_ms),
            backoff_factor: backoff.map(|backoff| super::write::decimal(backoff.factor_thousandths)),
            backoff_cap_ms: backoff.map(|backoff| backoff.cap_ms),
        }
    }

    /// The same policy with rules of queue `runs` replaced by those a flat document names.
    pub fn with_runs(&self, document: &str) -> Result<Self, PolicyError> {
        let value: Value = serde_json::from_str(document)
            .map_err(|error| PolicyError { path: "policy".into(), problem: format!("not JSON: {error}") })?;
        let mut object = Object::new("", &value)?;
        object.take("schemaVersion");
        let mut queue = self.queue(QUEUE).clone();
        if let Some(field) = object.take("maxConcurrent") {
            queue.max_concurrent = Some(field.small(COUNT)?);
        }
        if let Some(field) = object.take("maxAttempts") {
            queue.max_attempts = Some(field.small(COUNT)?);
        }
        if let Some(field) = object.take("leaseTtlMs") {
            queue.lease_ttl_ms = field.whole(1..=YEAR_MS)?;
        }
        let built_in = QueuePolicy::built_in(QUEUE).backoff;
        let mut backoff = queue.backoff.or(built_in).unwrap_or(Backoff {
            base_ms: 0,
            factor_thousandths: 1_000,
            cap_ms: 0,
        });
        let before = backoff;
        if let Some(field) = object.take("backoffBaseMs") {
            backoff.base_ms = field.whole(0..=YEAR_MS)?;
        }
        if let Some(field) = object.take("backoffFactor") {
            backoff.factor_thousandths = field.thousandths()?;
        }
        let cap = object.take("backoffCapMs");
        if let Some(field) = &cap {
            backoff.cap_ms = field.whole(0..=YEAR_MS)?;
        }
        if backoff.cap_ms < backoff.base_ms {
            let problem = format!("below backoffBaseMs ({}), got {}", backoff.base_ms, backoff.cap_ms);
            return Err(PolicyError { path: "backoffCapMs".into(), problem });
        }
        object.finish()?;
        if backoff != before {
            queue.backoff = Some(backoff);
        }
        let mut policy = self.clone();
        policy.queues.insert(QUEUE.to_owned(), queue);
        Ok(policy)
    }
}

/// Whether a document is in the flat form.
pub(super) fn is_flat(value: &Value) -> bool {
    value.as_object().is_some_and(|object| {
        let flat = |key: &String| FLAT_KEYS.contains(&super::parse::camel_case(key).as_str());
        object.keys().any(flat) && !object.contains_key("queues") && !object.contains_key("gate")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_document_is_about_runs() {
        let policy = Policy::parse(r#"{"maxConcurrent":4,"max_attempts":5,"backoff-factor":1.5}"#);
        let Ok(policy) = policy else { panic!("{policy:?}") };
        let flat = serde_json::to_string(&policy.flat_runs()).unwrap_or_default();
        let wanted = r#"{"maxConcurrent":4,"maxAttempts":5,"leaseTtlMs":300000,"backoffBaseMs":1000,"backoffFactor":1.5,"backoffCapMs":60000}"#;
        assert_eq!(flat, wanted);
        assert_eq!(policy.queue("tasks"), Policy::default().queue("tasks"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (document, message) in [
            (r#"{"maxConcurrent":0}"#, "maxConcurrent: expected a whole number from 1 to 1000000, got 0"),
            (r#"{"backoffBaseMs":99999999}"#, "backoffCapMs: below backoffBaseMs (99999999), got 60000"),
            (
                r#"{"maxConcurrent":1,"backofFactor":2}"#,
                "backofFactor: unknown key, did you mean 'backoffFactor'? (known here: schemaVersion, maxConcurrent, maxAttempts, leaseTtlMs, backoffBaseMs, backoffFactor, backoffCapMs)",
            ),
        ] {
            assert_eq!(Policy::parse(document).map_err(|error| error.to_string()), Err(message.to_owned()));
        }
    }
}
