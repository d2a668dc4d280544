//! The flat form of six keys that one queue's rules can have: `sched policy` speaks it, and old files are written in
//! it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys::FLAT;
use super::parse::{read_json, refuse_low_cap};
use super::{Policy, QueuePolicy};
use crate::json::Json;
use crate::shape::{KeyError, Node, Notation, Section};
use crate::text;

/// The queue that a flat document is about.
pub(super) const QUEUE: &str = "runs";

/// The six keys.
pub const FLAT_KEYS: [&str; 6] =
    ["maxConcurrent", "maxAttempts", "leaseTtlMs", "backoffBaseMs", "backoffFactor", "backoffCapMs"];

/// The rules of one queue, flat.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The rules of a queue, flat.
    pub fn flat(&self, queue: &str) -> FlatPolicy {
        let QueuePolicy { max_concurrent, max_attempts, lease_ttl_ms, backoff, .. } =
            self.queue(queue).clone();
        FlatPolicy {
            max_concurrent,
            max_attempts,
            lease_ttl_ms,
            backoff_base_ms: backoff.map(|backoff| backoff.base_ms),
            backoff_factor: backoff.map(|backoff| super::write::factor(&backoff)),
            backoff_cap_ms: backoff.map(|backoff| backoff.cap_ms),
        }
    }

    /// The same policy with rules of a queue replaced by those a flat document names.
    pub fn with_rules(&self, queue: &str, document: &str) -> Result<Self, KeyError> {
        self.with_flat(queue, &read_json(document)?)
    }

    pub(super) fn with_flat(&self, name: &str, value: &Value) -> Result<Self, KeyError> {
        let checked = FLAT.check(Notation::Json, "", &Node::from(value))?;
        let given = Section::new(FLAT.keys(), "", &checked.node);
        let mut queue = self.queue(name).clone();
        queue.max_concurrent = given.get("maxConcurrent").or(queue.max_concurrent);
        queue.max_attempts = given.get("maxAttempts").or(queue.max_attempts);
        given.set("leaseTtlMs", &mut queue.lease_ttl_ms);
        let waits = ["backoffBaseMs", "backoffFactor", "backoffCapMs"];
        if let Some(mut backoff) = queue.backoff.or_else(|| QueuePolicy::built_in(QUEUE).backoff)
            && waits.iter().any(|key| given.has(key))
        {
            given.set("backoffBaseMs", &mut backoff.base_ms);
            given.set("backoffFactor", &mut backoff.factor_thousandths);
            given.set("backoffCapMs", &mut backoff.cap_ms);
            refuse_low_cap(backoff.base_ms, backoff.cap_ms, "backoffCapMs", "backoffBaseMs")?;
            queue.backoff = Some(backoff);
        }
        if let Some(key) = ["maxAttempts"].iter().chain(&waits).find(|key| given.has(key)) {
            queue.refuse_without_effect(key)?;
        }
        let mut policy = self.clone();
        policy.queues.insert(name.to_owned(), queue);
        Ok(policy)
    }
}

/// Whether a document is in the flat form: it has one of the six keys, or something like one, and no section.
pub(super) fn is_flat(value: &Value) -> bool {
    value.as_object().is_some_and(|object| {
        let keys: Vec<String> = object.keys().map(|key| Notation::Json.spelling(key)).collect();
        let is_section = |key: &String| text::nearest(key, ["queues", "gate"]).is_some();
        let is_rule = |key: &String| text::nearest(key, FLAT_KEYS).is_some();
        !keys.iter().any(is_section) && keys.iter().any(is_rule)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_document_is_about_runs() {
        let policy = Policy::parse(r#"{"maxConcurrent":4,"max_attempts":5,"backoff-factor":1.5}"#);
        let Ok(policy) = policy else { panic!("{policy:?}") };
        let flat = serde_json::to_string(&policy.flat(QUEUE)).unwrap_or_default();
        let wanted = r#"{"maxConcurrent":4,"maxAttempts":5,"leaseTtlMs":300000,"backoffBaseMs":1000,"backoffFactor":1.5,"backoffCapMs":60000}"#;
        assert_eq!(flat, wanted);
        assert_eq!(policy.queue("tasks"), Policy::default().queue("tasks"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (document, message) in [
            (r#"{"maxConcurrent":0}"#, "maxConcurrent: expected a whole number from 1 to 1000000, got 0"),
            (
                r#"{"backoffBaseMs":99999999}"#,
                "backoffCapMs: expected at least backoffBaseMs (99999999), got 60000",
            ),
            (
                r#"{"maxConcurent":1}"#,
                "maxConcurent: unknown key, did you mean 'maxConcurrent'? (known here: schemaVersion, maxConcurrent, maxAttempts, leaseTtlMs, backoffBaseMs, backoffFactor, backoffCapMs)",
            ),
            (r#"{"maxConcurrent":1,"maxConcurrent":2}"#, "maxConcurrent: given twice"),
            (r#"{"schemaVersion":2,"maxConcurrent":2}"#, "schemaVersion: expected 1, got 2"),
            (
                r#"{"maxConcurrent":1,"backofFactor":2}"#,
                "backofFactor: unknown key, did you mean 'backoffFactor'? (known here: schemaVersion, maxConcurrent, maxAttempts, leaseTtlMs, backoffBaseMs, backoffFactor, backoffCapMs)",
            ),
        ] {
            assert_eq!(Policy::parse(document).map_err(|error| error.to_string()), Err(message.to_owned()));
        }
    }

    /// What the flat form writes must be readable as a whole document, or nothing could be decided any more.
    #[test]
    fn a_limit_on_what_is_not_counted_is_refused() {
        let nothing_counts = r#"{"queues":{"runs":{"counts":{"failed":false,"lost":false}}}}"#;
        let Ok(policy) = Policy::parse(nothing_counts) else { panic!("a good document") };
        for flat in [r#"{"maxAttempts":2}"#, r#"{"backoffFactor":2}"#] {
            let refused = policy.with_rules(QUEUE, flat).map_err(|error| error.problem);
            let problem = "has no effect, because counts.failed and counts.lost are both false";
            assert_eq!(refused, Err(problem.to_owned()), "{flat}");
        }
        let changed = policy.with_rules(QUEUE, r#"{"maxConcurrent":2}"#);
        let Ok(changed) = changed else { panic!("{changed:?}") };
        assert_eq!(Policy::parse(changed.to_json().as_str()), Ok(changed));
    }
}
