//! Reads a policy document: the table of [`super::keys`] checks each key by itself, here the values become rules, and
//! what concerns two keys at once is checked.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::keys::DOCUMENT;
use super::{FastFailures, GateLevel, GatePolicy, Policy, QueuePolicy, Reclaim, ScorePolicy};
use crate::backoff::Backoff;
use crate::shape::{KeyError, Node, Notation, Section, below};

impl Policy {
    /// Reads a document; what it does not name has its default.
    pub fn parse(document: &str) -> Result<Self, KeyError> {
        Self::default().merged(document)
    }

    /// This policy with what a document names changed; everything else stays.
    pub fn merged(&self, document: &str) -> Result<Self, KeyError> {
        let value = read_json(document)?;
        if super::flat::is_flat(&value) {
            return self.with_flat(super::flat::QUEUE, &value);
        }
        let checked = DOCUMENT.check(Notation::Json, "", &Node::from(&value))?;
        let given = Section::new(DOCUMENT.keys(), "", &checked.node);
        let mut policy = self.clone();
        read_queues(&mut policy, &given)?;
        if let Some(gate) = given.section("gate") {
            read_gate(&gate, &mut policy.gate)?;
        }
        Ok(policy)
    }

    /// The policy that a document stands for where this one is in force: what it does not name has its default. A flat
    /// document concerns queue `runs` alone.
    pub fn replaced(&self, document: &str) -> Result<Self, KeyError> {
        if !super::flat::is_flat(&read_json(document)?) {
            return Self::parse(document);
        }
        let mut policy = self.clone();
        let runs = super::flat::QUEUE;
        policy.queues.insert(runs.to_owned(), QueuePolicy::built_in(runs));
        policy.merged(document)
    }

    /// Whether a document names no rule at all, as `{}`: it stands for the defaults, and means it.
    pub fn names_nothing(document: &str) -> bool {
        let about = ["schemaVersion", "basedOn"];
        let is_about = |key: &String| about.contains(&Notation::Json.spelling(key).as_str());
        read_json(document).is_ok_and(|value| value.as_object().is_some_and(|keys| keys.keys().all(is_about)))
    }
}

/// JSON without a key that is given twice: of two values one would be silently lost.
pub(super) fn read_json(document: &str) -> Result<Value, KeyError> {
    let value = serde_json::from_str(document)
        .map_err(|error| KeyError { path: "policy".into(), problem: format!("not JSON: {error}") })?;
    match repeated_key("", document) {
        Some(path) => Err(KeyError { path, problem: "given twice".into() }),
        None => Ok(value),
    }
}

/// The path of the first key that an object of the text has twice.
pub(crate) fn repeated_key(path: &str, text: &str) -> Option<String> {
    let entries = match text.trim_start().chars().next()? {
        '{' => serde_json::from_str::<Entries<'_>>(text).ok()?.0,
        '[' => {
            let items = serde_json::from_str::<Vec<&RawValue>>(text).ok()?;
            items.into_iter().enumerate().map(|(place, item)| (place.to_string(), item)).collect()
        }
        _ => return None,
    };
    let mut seen = std::collections::BTreeSet::new();
    entries.iter().find_map(|(key, value)| {
        let path = below(path, key);
        if seen.insert(key) { repeated_key(&path, value.get()) } else { Some(path) }
    })
}

/// Every entry of an object, repeated ones too.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(All)
    }
}

fn read_queues(policy: &mut Policy, given: &Section<'_>) -> Result<(), KeyError> {
    let mut queues: Vec<_> = given.sections("queues").collect();
    // `tasks` first: it is what the user's own queues start from.
    queues.sort_by_key(|(name, _)| *name != "tasks");
    for (name, given) in queues {
        crate::id::check_name("queue name", name)
            .map_err(|error| KeyError::new("queues", error.to_string()))?;
        let start = match policy.queues.get(name) {
            Some(built_in) => built_in.clone(),
            None => policy.queue("tasks").clone(),
        };
        policy.queues.insert(name.to_owned(), read_queue(&given, start)?);
    }
    Ok(())
}

fn read_queue(given: &Section<'_>, start: QueuePolicy) -> Result<QueuePolicy, KeyError> {
    let mut queue = start;
    given.set_or_remove("maxConcurrent", &mut queue.max_concurrent);
    given.set("perKind", &mut queue.per_kind);
    given.set_or_remove("maxAttempts", &mut queue.max_attempts);
    given.set("leaseTtlMs", &mut queue.lease_ttl_ms);
    queue.reclaim = given
        .word("reclaim", &[("auto", Reclaim::Auto), ("explicit", Reclaim::Explicit)])
        .unwrap_or(queue.reclaim);
    given.set("requireLease", &mut queue.require_lease);
    given.set("requireHolder", &mut queue.require_holder);
    given.set("requireCommit", &mut queue.require_commit);
    given.set("agentsMayCreate", &mut queue.agents_may_create);
    if given.has("backoff") {
        let start = queue.backoff;
        queue.backoff = given.section("backoff").map(|given| read_backoff(&given, start)).transpose()?;
    }
    if let Some(counts) = given.section("counts") {
        counts.set("failed", &mut queue.counts.failed);
        counts.set("lost", &mut queue.counts.lost);
    }
    given.set("defaultPriority", &mut queue.default_priority);
    if given.has("score") {
        let start = queue.score.take().unwrap_or_default();
        queue.score = given.section("score").map(|score| read_score(&score, start));
    }
    if given.has("fastFailures") {
        let start = queue.fast_failures;
        let fast = given.section("fastFailures");
        queue.fast_failures = fast.map(|given| read_fast_failures(&given, start)).transpose()?;
    }
    let stated = |key: &str| given.given(key).is_some_and(|value| *value != Node::Null);
    if let Some(key) = ["maxAttempts", "backoff"].into_iter().find(|key| stated(key)) {
        queue.refuse_without_effect(&given.path_of(key))?;
    }
    if !queue.counts_anything() {
        // A default that has no effect is dropped: stated in what is written, it would be refused.
        (queue.max_attempts, queue.backoff) = (None, None);
    }
    Ok(queue)
}

impl QueuePolicy {
    fn counts_anything(&self) -> bool {
        self.counts.failed || self.counts.lost
    }

    /// A limit on attempts, or a wait after them, where no attempt is ever counted.
    pub(super) fn refuse_without_effect(&self, path: &str) -> Result<(), KeyError> {
        if self.counts_anything() {
            return Ok(());
        }
        Err(KeyError::new(path, "has no effect, because counts.failed and counts.lost are both false"))
    }
}

/// A number of the document, or of the rule that it changes.
fn required(given: &Section<'_>, key: &str, start: Option<u64>) -> Result<u64, KeyError> {
    given.get(key).or(start).ok_or_else(|| given.error_at(key, "missing"))
}

fn read_backoff(given: &Section<'_>, start: Option<Backoff>) -> Result<Backoff, KeyError> {
    let backoff = Backoff {
        base_ms: required(given, "baseMs", start.map(|start| start.base_ms))?,
        factor_thousandths: required(given, "factor", start.map(|start| start.factor_thousandths))?,
        cap_ms: required(given, "capMs", start.map(|start| start.cap_ms))?,
    };
    refuse_low_cap(backoff.base_ms, backoff.cap_ms, &given.path_of("capMs"), "baseMs")?;
    Ok(backoff)
}

fn read_fast_failures(given: &Section<'_>, start: Option<FastFailures>) -> Result<FastFailures, KeyError> {
    let after = given.get("after").or(start.map(|start| start.after));
    let fast = FastFailures {
        after: after.ok_or_else(|| given.error_at("after", "missing"))?,
        base_ms: required(given, "baseMs", start.map(|start| start.base_ms))?,
        cap_ms: required(given, "capMs", start.map(|start| start.cap_ms))?,
    };
    refuse_low_cap(fast.base_ms, fast.cap_ms, &given.path_of("capMs"), "baseMs")?;
    Ok(fast)
}

pub(super) fn refuse_low_cap(base: u64, cap: u64, path: &str, base_key: &str) -> Result<(), KeyError> {
    if cap >= base {
        return Ok(());
    }
    Err(KeyError::new(path, format!("expected at least {base_key} ({base}), got {cap}")))
}

fn read_score(given: &Section<'_>, start: ScorePolicy) -> ScorePolicy {
    let mut score = start;
    score.base.extend(given.get::<BTreeMap<_, _>>("base").unwrap_or_default());
    given.set("baseOther", &mut score.base_other);
    given.set("ageBoostPerMinute", &mut score.age_boost_per_minute);
    given.set("ageBoostMax", &mut score.age_boost_max);
    given.set("depthBoostPerLevel", &mut score.depth_boost_per_level);
    given.set("retryPenaltyPerIteration", &mut score.retry_penalty_per_iteration);
    given.set("retryPenaltyMax", &mut score.retry_penalty_max);
    given.set_or_remove("starvationGuardMinutes", &mut score.starvation_guard_minutes);
    score
}

fn read_gate(given: &Section<'_>, gate: &mut GatePolicy) -> Result<(), KeyError> {
    given.set("maxConcurrent", &mut gate.max_concurrent);
    given.set("maxRequestsPerWindow", &mut gate.max_requests_per_window);
    given.set("rateWindowSecs", &mut gate.rate_window_secs);
    given.set("burst", &mut gate.burst);
    let levels = GateLevel::ALL.map(|level| (level.word(), level));
    gate.default_priority = given.word("defaultPriority", &levels).unwrap_or(gate.default_priority);
    given.set("prioritySpreadSecs", &mut gate.priority_spread_secs);
    given.set("initialBackoffSecs", &mut gate.initial_backoff_secs);
    given.set("maxBackoffSecs", &mut gate.max_backoff_secs);
    given.set("recoveryPeriodSecs", &mut gate.recovery_period_secs);
    given.set_or_remove("maxInputTokensPerMinute", &mut gate.max_input_tokens_per_minute);
    given.set_or_remove("maxOutputTokensPerMinute", &mut gate.max_output_tokens_per_minute);
    given.set_or_remove("windowMarginMs", &mut gate.window_margin_ms);
    for (name, given) in given.sections("groups") {
        let group = gate.groups.entry(name.to_owned()).or_default();
        given.set("models", &mut group.models);
        given.set_or_remove("maxRequestsPerWindow", &mut group.max_requests_per_window);
        given.set_or_remove("rateWindowSecs", &mut group.rate_window_secs);
        given.set_or_remove("burst", &mut group.burst);
        given.set_or_remove("maxInputTokensPerMinute", &mut group.max_input_tokens_per_minute);
        given.set_or_remove("maxOutputTokensPerMinute", &mut group.max_output_tokens_per_minute);
    }
    let (base, cap) = (gate.initial_backoff_secs, gate.max_backoff_secs);
    refuse_low_cap(base.into(), cap.into(), "gate.maxBackoffSecs", "initialBackoffSecs")
}
