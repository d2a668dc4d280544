//! Reads a policy document: the table of [`super::shape`] checks each key by itself, here the values become rules, and
//! what concerns two keys at once is checked.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::shape::{DOCUMENT, below};
use super::{
    Counts, FastFailures, GateGroup, GateLevel, GatePolicy, Policy, QueuePolicy, Reclaim, ScorePolicy,
};
use crate::backoff::Backoff;

/// Where a document is wrong, and what is allowed there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct PolicyError {
    /// Dotted path of the key.
    pub path: String,
    /// What is wrong, and what is wanted.
    pub problem: String,
}

impl Policy {
    /// Reads a document; what it does not name has its default.
    pub fn parse(document: &str) -> Result<Self, PolicyError> {
        Self::default().merged(document)
    }

    /// This policy with what a document names changed; everything else stays.
    pub fn merged(&self, document: &str) -> Result<Self, PolicyError> {
        let value = read_json(document)?;
        if super::flat::is_flat(&value) {
            return self.with_flat(super::flat::QUEUE, &value);
        }
        let given = DOCUMENT.read("", &value)?;
        let mut policy = self.clone();
        if let Some(queues) = given.get("queues").and_then(Value::as_object) {
            read_queues(&mut policy, queues)?;
        }
        if let Some(gate) = given.get("gate").and_then(Value::as_object) {
            policy.gate = read_gate(&Given(gate), &self.gate)?;
        }
        Ok(policy)
    }

    /// The policy that a document stands for where this one is in force: what it does not name has its default. A flat
    /// document concerns queue `runs` alone.
    pub fn replaced(&self, document: &str) -> Result<Self, PolicyError> {
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
        let is_about = |key: &String| about.contains(&super::shape::camel_case(key).as_str());
        read_json(document).is_ok_and(|value| value.as_object().is_some_and(|keys| keys.keys().all(is_about)))
    }
}

/// JSON without a key that is given twice: of two values one would be silently lost.
pub(super) fn read_json(document: &str) -> Result<Value, PolicyError> {
    let value = serde_json::from_str(document)
        .map_err(|error| PolicyError { path: "policy".into(), problem: format!("not JSON: {error}") })?;
    match repeated_key("", document) {
        Some(path) => Err(PolicyError { path, problem: "given twice".into() }),
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

/// An object whose keys and values have been checked: what cannot be read is absent or `null`.
pub(super) struct Given<'a>(pub &'a Map<String, Value>);

impl<'a> Given<'a> {
    fn object(&self, key: &str) -> Option<Given<'a>> {
        self.0.get(key).and_then(Value::as_object).map(Given)
    }

    pub fn whole(&self, key: &str) -> Option<u64> {
        self.0.get(key).and_then(Value::as_u64)
    }

    pub fn small(&self, key: &str) -> Option<u32> {
        self.whole(key).map(small)
    }

    fn truth(&self, key: &str) -> Option<bool> {
        self.0.get(key).and_then(Value::as_bool)
    }

    fn word(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).and_then(Value::as_str)
    }

    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    fn numbers<T>(&self, key: &str, read: impl Fn(u64) -> T) -> Option<BTreeMap<String, T>> {
        let entry = |(name, value): (&String, &Value)| Some((name.clone(), read(value.as_u64()?)));
        Some(self.object(key)?.0.iter().filter_map(entry).collect())
    }
}

/// Every range of the table ends within 32 bits where this is used.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn read_queues(policy: &mut Policy, queues: &Map<String, Value>) -> Result<(), PolicyError> {
    // `tasks` first: it is what the user's own queues start from.
    let mut names: Vec<&String> = queues.keys().collect();
    names.sort_by_key(|name| name.as_str() != "tasks");
    for name in names {
        crate::id::check_name("queue name", name)
            .map_err(|error| PolicyError { path: "queues".into(), problem: error.to_string() })?;
        let Some(given) = queues[name].as_object() else { continue };
        let start = match policy.queues.get(name) {
            Some(built_in) => built_in.clone(),
            None => policy.queue("tasks").clone(),
        };
        let queue = read_queue(&Given(given), start, &below("queues", name))?;
        policy.queues.insert(name.clone(), queue);
    }
    Ok(())
}

fn read_queue(given: &Given<'_>, start: QueuePolicy, path: &str) -> Result<QueuePolicy, PolicyError> {
    let mut queue = start;
    if given.has("maxConcurrent") {
        queue.max_concurrent = given.small("maxConcurrent");
    }
    if given.has("maxAttempts") {
        queue.max_attempts = given.small("maxAttempts");
    }
    if given.has("backoff") {
        let backoff = given.object("backoff");
        let read = |backoff| read_backoff(&backoff, queue.backoff, &below(path, "backoff"));
        queue.backoff = backoff.map(read).transpose()?;
    }
    if let Some(counts) = given.object("counts") {
        queue.counts = Counts {
            failed: counts.truth("failed").unwrap_or(queue.counts.failed),
            lost: counts.truth("lost").unwrap_or(queue.counts.lost),
        };
    }
    if given.has("score") {
        let start = queue.score.take().unwrap_or_default();
        queue.score = given.object("score").map(|score| read_score(&score, start));
    }
    queue.per_kind = given.numbers("perKind", small).unwrap_or(queue.per_kind);
    queue.lease_ttl_ms = given.whole("leaseTtlMs").unwrap_or(queue.lease_ttl_ms);
    queue.reclaim = match given.word("reclaim") {
        Some("auto") => Reclaim::Auto,
        Some(_) => Reclaim::Explicit,
        None => queue.reclaim,
    };
    queue.require_lease = given.truth("requireLease").unwrap_or(queue.require_lease);
    queue.require_holder = given.truth("requireHolder").unwrap_or(queue.require_holder);
    queue.require_commit = given.truth("requireCommit").unwrap_or(queue.require_commit);
    queue.agents_may_create = given.truth("agentsMayCreate").unwrap_or(queue.agents_may_create);
    if given.has("fastFailures") {
        let fast = given.object("fastFailures");
        let read = |fast| read_fast_failures(&fast, queue.fast_failures, &below(path, "fastFailures"));
        queue.fast_failures = fast.map(read).transpose()?;
    }
    queue.default_priority = given.small("defaultPriority").unwrap_or(queue.default_priority);
    let stated = |key: &str| given.0.get(key).is_some_and(|value| !value.is_null());
    if let Some(key) = ["maxAttempts", "backoff"].into_iter().find(|key| stated(key)) {
        queue.refuse_without_effect(&below(path, key))?;
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
    pub(super) fn refuse_without_effect(&self, path: &str) -> Result<(), PolicyError> {
        if self.counts_anything() {
            return Ok(());
        }
        let problem = "has no effect, because counts.failed and counts.lost are both false";
        Err(PolicyError { path: path.to_owned(), problem: problem.into() })
    }
}

fn read_backoff(given: &Given<'_>, start: Option<Backoff>, path: &str) -> Result<Backoff, PolicyError> {
    let value = |key: &str, default: Option<u64>| {
        let missing = || PolicyError { path: below(path, key), problem: "missing".into() };
        given.whole(key).or(default).ok_or_else(missing)
    };
    let backoff = Backoff {
        base_ms: value("baseMs", start.map(|start| start.base_ms))?,
        factor_thousandths: value("factor", start.map(|start| start.factor_thousandths))?,
        cap_ms: value("capMs", start.map(|start| start.cap_ms))?,
    };
    refuse_low_cap(backoff.base_ms, backoff.cap_ms, &below(path, "capMs"), "baseMs")?;
    Ok(backoff)
}

fn read_fast_failures(
    given: &Given<'_>,
    start: Option<FastFailures>,
    path: &str,
) -> Result<FastFailures, PolicyError> {
    let missing = |key: &str| PolicyError { path: below(path, key), problem: "missing".into() };
    let value = |key: &str, default: Option<u64>| given.whole(key).or(default).ok_or_else(|| missing(key));
    let fast = FastFailures {
        after: small(value("after", start.map(|start| start.after.into()))?),
        base_ms: value("baseMs", start.map(|start| start.base_ms))?,
        cap_ms: value("capMs", start.map(|start| start.cap_ms))?,
    };
    refuse_low_cap(fast.base_ms, fast.cap_ms, &below(path, "capMs"), "baseMs")?;
    Ok(fast)
}

pub(super) fn refuse_low_cap(base_ms: u64, cap_ms: u64, path: &str, base: &str) -> Result<(), PolicyError> {
    if cap_ms >= base_ms {
        return Ok(());
    }
    let problem = format!("expected at least {base} ({base_ms}), got {cap_ms}");
    Err(PolicyError { path: path.to_owned(), problem })
}

fn read_score(given: &Given<'_>, start: ScorePolicy) -> ScorePolicy {
    let mut base = start.base;
    base.extend(given.numbers("base", u64::cast_signed).unwrap_or_default());
    let points = |key: &str, default: i64| given.whole(key).map_or(default, u64::cast_signed);
    ScorePolicy {
        base,
        base_other: points("baseOther", start.base_other),
        age_boost_per_minute: points("ageBoostPerMinute", start.age_boost_per_minute),
        age_boost_max: points("ageBoostMax", start.age_boost_max),
        depth_boost_per_level: points("depthBoostPerLevel", start.depth_boost_per_level),
        retry_penalty_per_iteration: points("retryPenaltyPerIteration", start.retry_penalty_per_iteration),
        retry_penalty_max: points("retryPenaltyMax", start.retry_penalty_max),
        starvation_guard_minutes: if given.has("starvationGuardMinutes") {
            given.small("starvationGuardMinutes")
        } else {
            start.starvation_guard_minutes
        },
    }
}

fn read_gate(given: &Given<'_>, start: &GatePolicy) -> Result<GatePolicy, PolicyError> {
    let number = |key: &str, default: u32| given.small(key).unwrap_or(default);
    let level = given.word("defaultPriority");
    let level = GateLevel::ALL.into_iter().find(|known| Some(known.word()) == level);
    let large = |key: &str, default: Option<u64>| if given.has(key) { given.whole(key) } else { default };
    let group = |(name, value): (&String, &Value)| {
        let start = start.groups.get(name).cloned().unwrap_or_default();
        Some((name.clone(), read_group(&Given(value.as_object()?), start)))
    };
    let mut groups = start.groups.clone();
    groups.extend(given.object("groups").into_iter().flat_map(|groups| groups.0.iter().filter_map(group)));
    let gate = GatePolicy {
        max_concurrent: number("maxConcurrent", start.max_concurrent),
        max_requests_per_window: number("maxRequestsPerWindow", start.max_requests_per_window),
        rate_window_secs: number("rateWindowSecs", start.rate_window_secs),
        burst: number("burst", start.burst),
        default_priority: level.unwrap_or(start.default_priority),
        priority_spread_secs: number("prioritySpreadSecs", start.priority_spread_secs),
        initial_backoff_secs: number("initialBackoffSecs", start.initial_backoff_secs),
        max_backoff_secs: number("maxBackoffSecs", start.max_backoff_secs),
        recovery_period_secs: number("recoveryPeriodSecs", start.recovery_period_secs),
        max_input_tokens_per_minute: large("maxInputTokensPerMinute", start.max_input_tokens_per_minute),
        max_output_tokens_per_minute: large("maxOutputTokensPerMinute", start.max_output_tokens_per_minute),
        window_margin_ms: large("windowMarginMs", start.window_margin_ms.map(u64::from)).map(small),
        groups,
    };
    if gate.max_backoff_secs < gate.initial_backoff_secs {
        let (least, given) = (gate.initial_backoff_secs, gate.max_backoff_secs);
        let problem = format!("expected at least initialBackoffSecs ({least}), got {given}");
        return Err(PolicyError { path: "gate.maxBackoffSecs".into(), problem });
    }
    Ok(gate)
}

fn read_group(given: &Given<'_>, start: GateGroup) -> GateGroup {
    let models = given.0.get("models").and_then(Value::as_array);
    let models = models.map(|models| models.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    let large = |key: &str, default: Option<u64>| if given.has(key) { given.whole(key) } else { default };
    let number = |key: &str, default: Option<u32>| large(key, default.map(u64::from)).map(small);
    GateGroup {
        models: models.unwrap_or(start.models),
        max_requests_per_window: number("maxRequestsPerWindow", start.max_requests_per_window),
        rate_window_secs: number("rateWindowSecs", start.rate_window_secs),
        burst: number("burst", start.burst),
        max_input_tokens_per_minute: large("maxInputTokensPerMinute", start.max_input_tokens_per_minute),
        max_output_tokens_per_minute: large("maxOutputTokensPerMinute", start.max_output_tokens_per_minute),
    }
}
