//! Writes the one canonical form of a policy: every value stated, keys in a fixed order.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{BUILT_IN_QUEUES, GateGroup, GatePolicy, Policy, QueuePolicy, Reclaim, ScorePolicy};
use crate::backoff::Backoff;
use crate::json::Json;
use crate::shape::decimal;

impl Policy {
    /// The canonical document; its hash is the policy's version.
    pub fn to_json(&self) -> Json {
        Json::of(&self.document())
    }

    /// The canonical document as a value to embed in payloads.
    pub fn document(&self) -> impl Serialize + use<> {
        let built_in = BUILT_IN_QUEUES.iter().filter_map(|name| self.queues.get_key_value(*name));
        let own = self.queues.iter().filter(|(name, _)| !BUILT_IN_QUEUES.contains(&name.as_str()));
        let tasks = self.queue("tasks");
        let document = |(name, queue): (&String, &QueuePolicy)| {
            let is_built_in = BUILT_IN_QUEUES.contains(&name.as_str());
            let start = if is_built_in { QueuePolicy::built_in(name) } else { tasks.clone() };
            (name.clone(), QueueDocument::of(queue, &start))
        };
        let queues = built_in.chain(own).map(document).collect();
        Document { schema_version: 1, queues: Ordered(queues), gate: GateDocument::of(&self.gate) }
    }
}

/// A map that keeps the order it was built in.
struct Ordered(Vec<(String, QueueDocument)>);

impl Serialize for Ordered {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, queue)| (name, queue)))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    schema_version: u32,
    queues: Ordered,
    gate: GateDocument,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_concurrent: Option<Option<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_kind: Option<BTreeMap<String, u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<Option<u32>>,
    lease_ttl_ms: u64,
    reclaim: &'static str,
    require_lease: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    require_holder: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    require_commit: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agents_may_create: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<Option<BackoffDocument>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<CountsDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_priority: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<Option<ScoreDocument>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fast_failures: Option<Option<FastFailuresDocument>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FastFailuresDocument {
    after: u32,
    base_ms: u64,
    cap_ms: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BackoffDocument {
    base_ms: u64,
    factor: Json,
    cap_ms: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CountsDocument {
    failed: bool,
    lost: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScoreDocument {
    base: BTreeMap<String, i64>,
    base_other: i64,
    age_boost_per_minute: i64,
    age_boost_max: i64,
    depth_boost_per_level: i64,
    retry_penalty_per_iteration: i64,
    retry_penalty_max: i64,
    starvation_guard_minutes: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GateDocument {
    max_concurrent: u32,
    max_requests_per_window: u32,
    rate_window_secs: u32,
    burst: u32,
    default_priority: &'static str,
    priority_spread_secs: u32,
    initial_backoff_secs: u32,
    max_backoff_secs: u32,
    recovery_period_secs: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_input_tokens_per_minute: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens_per_minute: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_margin_ms: Option<u32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    groups: BTreeMap<String, GroupDocument>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupDocument {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    models: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_requests_per_window: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_window_secs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_input_tokens_per_minute: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens_per_minute: Option<u64>,
}

/// Stated unless it is nothing and would be nothing unstated: a `null` that takes a default away must be written.
fn stated<T, U>(value: Option<T>, start: &Option<U>) -> Option<Option<T>> {
    (value.is_some() || start.is_some()).then_some(value)
}

/// Stated only where it differs from what the reader fills in.
fn changed<T: Copy + PartialEq>(value: &T, start: &T) -> Option<T> {
    (value != start).then_some(*value)
}

impl QueueDocument {
    /// `start` is what the reader fills in for what is not stated.
    fn of(queue: &QueuePolicy, start: &QueuePolicy) -> Self {
        let normal = QueuePolicy::built_in("tasks");
        let counts = queue.counts;
        let kinds_matter = queue.score.is_some() || !queue.per_kind.is_empty() || !start.per_kind.is_empty();
        let backoff = queue.backoff.map(|backoff| BackoffDocument {
            base_ms: backoff.base_ms,
            factor: factor(&backoff),
            cap_ms: backoff.cap_ms,
        });
        Self {
            max_concurrent: stated(queue.max_concurrent, &start.max_concurrent),
            per_kind: kinds_matter.then(|| queue.per_kind.clone()),
            max_attempts: stated(queue.max_attempts, &start.max_attempts),
            lease_ttl_ms: queue.lease_ttl_ms,
            reclaim: match queue.reclaim {
                Reclaim::Auto => "auto",
                Reclaim::Explicit => "explicit",
            },
            require_lease: queue.require_lease,
            require_holder: changed(&queue.require_holder, &start.require_holder),
            require_commit: changed(&queue.require_commit, &start.require_commit),
            agents_may_create: changed(&queue.agents_may_create, &start.agents_may_create),
            backoff: stated(backoff, &start.backoff),
            counts: (counts != normal.counts || counts != start.counts)
                .then_some(CountsDocument { failed: counts.failed, lost: counts.lost }),
            default_priority: (queue.default_priority != normal.default_priority
                || queue.default_priority != start.default_priority)
                .then_some(queue.default_priority),
            score: stated(queue.score.as_ref().map(ScoreDocument::of), &start.score),
            fast_failures: changed(&queue.fast_failures, &start.fast_failures).map(|fast| {
                fast.map(|fast| FastFailuresDocument {
                    after: fast.after,
                    base_ms: fast.base_ms,
                    cap_ms: fast.cap_ms,
                })
            }),
        }
    }
}

/// The factor of a wait as a number of JSON.
pub(super) fn factor(backoff: &Backoff) -> Json {
    Json::from_stored(decimal(backoff.factor_thousandths))
}

impl ScoreDocument {
    fn of(score: &ScorePolicy) -> Self {
        Self {
            base: score.base.clone(),
            base_other: score.base_other,
            age_boost_per_minute: score.age_boost_per_minute,
            age_boost_max: score.age_boost_max,
            depth_boost_per_level: score.depth_boost_per_level,
            retry_penalty_per_iteration: score.retry_penalty_per_iteration,
            retry_penalty_max: score.retry_penalty_max,
            starvation_guard_minutes: score.starvation_guard_minutes,
        }
    }
}

impl GateDocument {
    fn of(gate: &GatePolicy) -> Self {
        Self {
            max_concurrent: gate.max_concurrent,
            max_requests_per_window: gate.max_requests_per_window,
            rate_window_secs: gate.rate_window_secs,
            burst: gate.burst,
            default_priority: gate.default_priority.word(),
            priority_spread_secs: gate.priority_spread_secs,
            initial_backoff_secs: gate.initial_backoff_secs,
            max_backoff_secs: gate.max_backoff_secs,
            recovery_period_secs: gate.recovery_period_secs,
            max_input_tokens_per_minute: gate.max_input_tokens_per_minute,
            max_output_tokens_per_minute: gate.max_output_tokens_per_minute,
            window_margin_ms: gate.window_margin_ms,
            groups: gate
                .groups
                .iter()
                .map(|(name, group)| (name.clone(), GroupDocument::of(group)))
                .collect(),
        }
    }
}

impl GroupDocument {
    fn of(group: &GateGroup) -> Self {
        Self {
            models: group.models.clone(),
            max_requests_per_window: group.max_requests_per_window,
            rate_window_secs: group.rate_window_secs,
            burst: group.burst,
            max_input_tokens_per_minute: group.max_input_tokens_per_minute,
            max_output_tokens_per_minute: group.max_output_tokens_per_minute,
        }
    }
}
