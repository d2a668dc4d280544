//! Reads a policy document. Every key is taken by name; what is left over is unknown and refused.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::{Counts, GateGroup, GateLevel, GatePolicy, Policy, QueuePolicy, Reclaim, ScorePolicy};
use crate::backoff::Backoff;
use crate::text;

/// Where a document is wrong, and what is allowed there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct PolicyError {
    /// Dotted path of the key.
    pub path: String,
    /// What is wrong, and what is wanted.
    pub problem: String,
}

pub(super) const COUNT: std::ops::RangeInclusive<u64> = 1..=1_000_000;
pub(super) const YEAR_MS: u64 = 365 * 24 * 3_600 * 1_000;
const YEAR_SECS: u64 = 365 * 24 * 3_600;

impl Policy {
    /// Reads a document; what it does not name has its default.
    pub fn parse(document: &str) -> Result<Self, PolicyError> {
        let value = serde_json::from_str(document)
            .map_err(|error| PolicyError { path: "policy".into(), problem: format!("not JSON: {error}") })?;
        if super::flat::is_flat(&value) {
            return Self::default().with_runs(document);
        }
        let mut object = Object::new("", &value)?;
        if let Some(version) = object.take("schemaVersion")
            && version.value != &Value::from(1)
        {
            return Err(version.wrong("1"));
        }
        object.take("basedOn");
        let mut policy = Self::default();
        if let Some(queues) = object.take("queues") {
            read_queues(&mut policy, &queues)?;
        }
        if let Some(gate) = object.take("gate") {
            policy.gate = read_gate(&gate)?;
        }
        object.finish()?;
        Ok(policy)
    }
}

fn read_queues(policy: &mut Policy, queues: &Field<'_>) -> Result<(), PolicyError> {
    let mut entries = queues.entries()?;
    // `tasks` first: it is what the user's own queues start from.
    entries.sort_by_key(|(name, _)| name.as_str() != "tasks");
    for (name, field) in entries {
        crate::id::check_name("queue name", &name)
            .map_err(|error| PolicyError { path: queues.path.clone(), problem: error.to_string() })?;
        let start = match policy.queues.get(&name) {
            Some(built_in) => built_in.clone(),
            None => policy.queue("tasks").clone(),
        };
        policy.queues.insert(name, read_queue(&field, start)?);
    }
    Ok(())
}

fn read_queue(field: &Field<'_>, start: QueuePolicy) -> Result<QueuePolicy, PolicyError> {
    let mut object = field.object()?;
    let mut queue = start;
    if let Some(field) = object.take("maxConcurrent") {
        queue.max_concurrent = field.optional(|field| field.small(COUNT))?;
    }
    if let Some(field) = object.take("perKind") {
        queue.per_kind = field.map(|field| field.small(COUNT))?;
    }
    let max_attempts = object.take("maxAttempts");
    if let Some(field) = &max_attempts {
        queue.max_attempts = field.optional(|field| field.small(COUNT))?;
    }
    if let Some(field) = object.take("leaseTtlMs") {
        queue.lease_ttl_ms = field.whole(1..=YEAR_MS)?;
    }
    if let Some(field) = object.take("reclaim") {
        queue.reclaim = field.word(&[("auto", Reclaim::Auto), ("explicit", Reclaim::Explicit)])?;
    }
    if let Some(field) = object.take("requireLease") {
        queue.require_lease = field.boolean()?;
    }
    let backoff = object.take("backoff");
    if let Some(field) = &backoff {
        queue.backoff = field.optional(|field| read_backoff(field, queue.backoff))?;
    }
    if let Some(field) = object.take("counts") {
        queue.counts = read_counts(&field, queue.counts)?;
    }
    if let Some(field) = object.take("defaultPriority") {
        queue.default_priority = field.small(0..=u64::from(u32::MAX))?;
    }
    if let Some(field) = object.take("score") {
        queue.score = field.optional(|field| read_score(field, queue.score.clone().unwrap_or_default()))?;
    }
    object.finish()?;
    if queue.counts.failed || queue.counts.lost {
        return Ok(queue);
    }
    let limit = max_attempts.filter(|_| queue.max_attempts.is_some());
    if let Some(field) = limit.or(backoff.filter(|_| queue.backoff.is_some())) {
        let problem = "has no effect, because counts.failed and counts.lost are both false";
        return Err(field.error(problem.into()));
    }
    // A default that has no effect is dropped: stated in what is written, it would be refused.
    (queue.max_attempts, queue.backoff) = (None, None);
    Ok(queue)
}

fn read_backoff(field: &Field<'_>, start: Option<Backoff>) -> Result<Backoff, PolicyError> {
    let mut object = field.object()?;
    let base_ms = match (object.take("baseMs"), start) {
        (Some(field), _) => field.whole(0..=YEAR_MS)?,
        (None, Some(start)) => start.base_ms,
        (None, None) => return Err(object.missing("baseMs")),
    };
    let factor_thousandths = match (object.take("factor"), start) {
        (Some(field), _) => field.thousandths()?,
        (None, Some(start)) => start.factor_thousandths,
        (None, None) => return Err(object.missing("factor")),
    };
    let cap = object.take("capMs");
    let cap_ms = match (&cap, start) {
        (Some(field), _) => field.whole(0..=YEAR_MS)?,
        (None, Some(start)) => start.cap_ms,
        (None, None) => return Err(object.missing("capMs")),
    };
    if cap_ms < base_ms {
        let error = |field: &Field<'_>| field.error(format!("below baseMs ({base_ms}), got {cap_ms}"));
        return Err(cap.as_ref().map_or_else(|| error(field), error));
    }
    object.finish()?;
    Ok(Backoff { base_ms, factor_thousandths, cap_ms })
}

fn read_counts(field: &Field<'_>, start: Counts) -> Result<Counts, PolicyError> {
    let mut object = field.object()?;
    let mut read = |key, default| object.take(key).map_or(Ok(default), |field| field.boolean());
    let counts = Counts { failed: read("failed", start.failed)?, lost: read("lost", start.lost)? };
    object.finish()?;
    Ok(counts)
}

fn read_score(field: &Field<'_>, start: ScorePolicy) -> Result<ScorePolicy, PolicyError> {
    const POINTS: std::ops::RangeInclusive<u64> = 0..=1_000_000;
    let mut object = field.object()?;
    let base = match object.take("base") {
        Some(field) => {
            let mut base = start.base.clone();
            base.extend(field.map(|field| field.whole(POINTS).map(u64::cast_signed))?);
            base
        }
        None => start.base.clone(),
    };
    let mut points = |key, default: i64| {
        object.take(key).map_or(Ok(default), |field| field.whole(POINTS).map(u64::cast_signed))
    };
    let mut score = ScorePolicy {
        base,
        base_other: points("baseOther", start.base_other)?,
        age_boost_per_minute: points("ageBoostPerMinute", start.age_boost_per_minute)?,
        age_boost_max: points("ageBoostMax", start.age_boost_max)?,
        depth_boost_per_level: points("depthBoostPerLevel", start.depth_boost_per_level)?,
        retry_penalty_per_iteration: points("retryPenaltyPerIteration", start.retry_penalty_per_iteration)?,
        retry_penalty_max: points("retryPenaltyMax", start.retry_penalty_max)?,
        starvation_guard_minutes: start.starvation_guard_minutes,
    };
    if let Some(field) = object.take("starvationGuardMinutes") {
        score.starvation_guard_minutes = field.optional(|field| field.small(COUNT))?;
    }
    object.finish()?;
    Ok(score)
}

fn read_gate(field: &Field<'_>) -> Result<GatePolicy, PolicyError> {
    let mut object = field.object()?;
    let mut gate = GatePolicy::default();
    let mut number =
        |key, range: std::ops::RangeInclusive<u64>, place: &mut u32| -> Result<(), PolicyError> {
            if let Some(field) = object.take(key) {
                *place = field.small(range)?;
            }
            Ok(())
        };
    number("maxConcurrent", COUNT, &mut gate.max_concurrent)?;
    number("maxRequestsPerWindow", COUNT, &mut gate.max_requests_per_window)?;
    number("rateWindowSecs", 1..=YEAR_SECS, &mut gate.rate_window_secs)?;
    number("burst", COUNT, &mut gate.burst)?;
    number("prioritySpreadSecs", 0..=YEAR_SECS, &mut gate.priority_spread_secs)?;
    number("initialBackoffSecs", 1..=YEAR_SECS, &mut gate.initial_backoff_secs)?;
    number("maxBackoffSecs", 1..=YEAR_SECS, &mut gate.max_backoff_secs)?;
    number("recoveryPeriodSecs", 0..=YEAR_SECS, &mut gate.recovery_period_secs)?;
    if let Some(field) = object.take("defaultPriority") {
        gate.default_priority = field.word(&GateLevel::ALL.map(|level| (level.word(), level)))?;
    }
    if let Some(field) = object.take("maxInputTokensPerMinute") {
        gate.max_input_tokens_per_minute = field.optional(|field| field.whole(1..=u64::MAX))?;
    }
    if let Some(field) = object.take("maxOutputTokensPerMinute") {
        gate.max_output_tokens_per_minute = field.optional(|field| field.whole(1..=u64::MAX))?;
    }
    if let Some(field) = object.take("windowMarginMs") {
        gate.window_margin_ms = field.optional(|field| field.small(0..=60_000))?;
    }
    if let Some(field) = object.take("groups") {
        gate.groups = field.map(read_group)?;
    }
    if gate.max_backoff_secs < gate.initial_backoff_secs {
        let problem = format!("below initialBackoffSecs ({})", gate.initial_backoff_secs);
        return Err(PolicyError { path: object.path_of("maxBackoffSecs"), problem });
    }
    object.finish()?;
    Ok(gate)
}

fn read_group(field: &Field<'_>) -> Result<GateGroup, PolicyError> {
    let mut object = field.object()?;
    let group = GateGroup {
        models: object.take("models").map_or(Ok(Vec::new()), |field| field.words())?,
        max_requests_per_window: object
            .take("maxRequestsPerWindow")
            .map(|field| field.small(COUNT))
            .transpose()?,
        rate_window_secs: object
            .take("rateWindowSecs")
            .map(|field| field.small(1..=YEAR_SECS))
            .transpose()?,
        burst: object.take("burst").map(|field| field.small(COUNT)).transpose()?,
        max_input_tokens_per_minute: object
            .take("maxInputTokensPerMinute")
            .map(|field| field.whole(1..=u64::MAX))
            .transpose()?,
        max_output_tokens_per_minute: object
            .take("maxOutputTokensPerMinute")
            .map(|field| field.whole(1..=u64::MAX))
            .transpose()?,
    };
    object.finish()?;
    Ok(group)
}

/// An object whose keys are taken one by one, in any of the three spellings.
pub(super) struct Object<'a> {
    path: String,
    left: BTreeMap<String, (&'a str, &'a Value)>,
    known: Vec<&'static str>,
    twice: Option<String>,
}

/// A value and where it stands.
pub(super) struct Field<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Object<'a> {
    pub fn new(path: &str, value: &'a Value) -> Result<Self, PolicyError> {
        let Value::Object(map) = value else {
            let path = if path.is_empty() { "policy".to_owned() } else { path.to_owned() };
            return Err(PolicyError { path, problem: format!("expected an object, got {}", Kind(value)) });
        };
        let mut left = BTreeMap::new();
        let mut twice = None;
        for (key, value) in map {
            let camel = camel_case(key);
            if left.insert(camel.clone(), (key.as_str(), value)).is_some() {
                twice = Some(camel);
            }
        }
        Ok(Self { path: path.to_owned(), left, known: Vec::new(), twice })
    }

    pub fn take(&mut self, key: &'static str) -> Option<Field<'a>> {
        self.known.push(key);
        self.left.remove(key).map(|(_, value)| Field { path: self.path_of(key), value })
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn missing(&self, key: &str) -> PolicyError {
        PolicyError { path: self.path_of(key), problem: "missing".into() }
    }

    pub fn finish(self) -> Result<(), PolicyError> {
        if let Some(key) = &self.twice {
            return Err(PolicyError { path: self.path_of(key), problem: "given twice".into() });
        }
        let Some((camel, (given, _))) = self.left.first_key_value() else { return Ok(()) };
        let hint = text::nearest(camel, self.known.iter().copied())
            .map_or(String::new(), |word| format!(", did you mean '{word}'?"));
        let known = self.known.join(", ");
        let path = self.path_of(&text::escaped(given));
        Err(PolicyError { path, problem: format!("unknown key{hint} (known here: {known})") })
    }
}

/// A key with a separator too many is nobody's, and stays as it is.
pub(super) fn camel_case(key: &str) -> String {
    if key.split(['_', '-']).any(str::is_empty) {
        return key.to_owned();
    }
    let mut camel = String::with_capacity(key.len());
    let mut upper = false;
    for character in key.chars() {
        if matches!(character, '_' | '-') {
            upper = true;
        } else {
            camel.push(if upper { character.to_ascii_uppercase() } else { character });
            upper = false;
        }
    }
    camel
}

impl<'a> Field<'a> {
    fn error(&self, problem: String) -> PolicyError {
        PolicyError { path: self.path.clone(), problem }
    }

    fn wrong(&self, wanted: &str) -> PolicyError {
        let given: String = self.value.to_string().chars().take(80).collect();
        self.error(format!("expected {wanted}, got {given}"))
    }

    fn object(&self) -> Result<Object<'a>, PolicyError> {
        Object::new(&self.path, self.value)
    }

    fn entries(&self) -> Result<Vec<(String, Field<'a>)>, PolicyError> {
        let Value::Object(map) = self.value else {
            return Err(self.error(format!("expected an object, got {}", Kind(self.value))));
        };
        let entry = |(name, value): (&String, &'a Value)| {
            let path = format!("{}.{}", self.path, text::escaped(name));
            (name.clone(), Field { path, value })
        };
        Ok(map.iter().map(entry).collect())
    }

    fn map<T>(
        &self,
        read: impl Fn(&Field<'a>) -> Result<T, PolicyError>,
    ) -> Result<BTreeMap<String, T>, PolicyError> {
        self.entries()?.into_iter().map(|(name, field)| Ok((name, read(&field)?))).collect()
    }

    /// `null` says "none", also where the default is a value.
    fn optional<T>(&self, read: impl Fn(&Self) -> Result<T, PolicyError>) -> Result<Option<T>, PolicyError> {
        if self.value.is_null() { Ok(None) } else { read(self).map(Some) }
    }

    pub fn whole(&self, range: std::ops::RangeInclusive<u64>) -> Result<u64, PolicyError> {
        let number = self.value.as_u64().filter(|number| range.contains(number));
        number.ok_or_else(|| self.wrong(&format!("a whole number from {} to {}", range.start(), range.end())))
    }

    pub fn small(&self, range: std::ops::RangeInclusive<u64>) -> Result<u32, PolicyError> {
        let number = self.whole(range)?;
        u32::try_from(number).map_err(|_| self.wrong("a smaller whole number"))
    }

    fn boolean(&self) -> Result<bool, PolicyError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, PolicyError> {
        let given = self.value.as_str();
        let found = words.iter().find(|(word, _)| Some(*word) == given);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(&format!("one of {}", words.join(", ")))
        })
    }

    fn words(&self) -> Result<Vec<String>, PolicyError> {
        let list = self.value.as_array().and_then(|list| {
            list.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>()
        });
        list.ok_or_else(|| self.wrong("a list of texts"))
    }

    /// A decimal from 1 to 1,000 as thousandths, read from its digits.
    pub fn thousandths(&self) -> Result<u64, PolicyError> {
        let wrong = || self.wrong("a number from 1 to 1000 with at most three decimals");
        let Value::Number(number) = self.value else { return Err(wrong()) };
        let digits = number.to_string();
        let (whole, decimals) = digits.split_once('.').unwrap_or((&digits, ""));
        let decimals = decimals.trim_end_matches('0');
        if decimals.len() > 3 {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let fraction: u64 = format!("{decimals:0<3}").parse().map_err(|_| wrong())?;
        let thousandths = whole.checked_mul(1_000).and_then(|whole| whole.checked_add(fraction));
        thousandths.filter(|number| (1_000..=1_000_000).contains(number)).ok_or_else(wrong)
    }
}

struct Kind<'a>(&'a Value);

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        })
    }
}
