//! Policy in the words of `rota.yml`: one table from a path to its place in the policy, read in both directions.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rota_core::Policy;
use rota_core::policy::{GateLevel, PolicyError, QueuePolicy, ScorePolicy};

use super::walk::{Field, KeyError};

const QUEUE: &str = "loops";
const COUNT: RangeInclusive<u64> = 1..=1_000_000;
const POINTS: RangeInclusive<u64> = 0..=1_000_000;
const SECONDS: RangeInclusive<u64> = 0..=365 * 24 * 3_600;
const SOME_SECONDS: RangeInclusive<u64> = 1..=365 * 24 * 3_600;

/// What a file says about the policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyWords {
    /// Single values, by path.
    values: BTreeMap<&'static str, Value>,
    /// Base scores, by kind.
    base: BTreeMap<String, u32>,
    /// All ceilings of kinds, where the file has any say.
    per_kind: Option<BTreeMap<String, u32>>,
    /// The section `queues`, as a policy document.
    queues: Option<String>,
}

/// One value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Number(u32),
    Off,
    Level(GateLevel),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Off => f.write_str("false"),
            Self::Level(level) => f.write_str(level.word()),
        }
    }
}

/// Every value of a policy by its dotted path.
fn leaves(policy: &Policy) -> BTreeMap<String, serde_json::Value> {
    fn collect(path: String, value: serde_json::Value, found: &mut BTreeMap<String, serde_json::Value>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    collect(if path.is_empty() { key } else { format!("{path}.{key}") }, value, found);
                }
            }
            leaf => drop(found.insert(path, leaf)),
        }
    }
    let mut found = BTreeMap::new();
    let document = serde_json::from_str(policy.to_json().as_str()).unwrap_or_default();
    collect(String::new(), document, &mut found);
    found
}

/// A value of the policy that a file can name.
pub(super) struct Word {
    /// `section.key` in the file.
    pub path: &'static str,
    takes: Takes,
    place: fn(&mut Policy) -> Place<'_>,
}

enum Takes {
    Whole(RangeInclusive<u64>),
    WholeOrFalse(RangeInclusive<u64>),
    Level,
}

enum Place<'a> {
    Points(&'a mut i64),
    Count(&'a mut u32),
    Ceiling(&'a mut Option<u32>),
    Level(&'a mut GateLevel),
}

macro_rules! words {
    ($($path:literal: $takes:expr => $variant:ident($policy:ident) $place:expr;)*) => {
        /// Every single value of the policy that a file can name.
        pub(super) const WORDS: &[Word] = &[$(Word {
            path: $path,
            takes: $takes,
            place: |$policy| Place::$variant(&mut $place),
        }),*];
    };
}

words! {
    "scheduler.priority.age_boost_per_minute": Takes::Whole(POINTS) => Points(policy) score(policy).age_boost_per_minute;
    "scheduler.priority.age_boost_max": Takes::Whole(POINTS) => Points(policy) score(policy).age_boost_max;
    "scheduler.priority.depth_boost_per_level": Takes::Whole(POINTS) => Points(policy) score(policy).depth_boost_per_level;
    "scheduler.priority.retry_penalty_per_iteration": Takes::Whole(POINTS) => Points(policy) score(policy).retry_penalty_per_iteration;
    "scheduler.priority.retry_penalty_max": Takes::Whole(POINTS) => Points(policy) score(policy).retry_penalty_max;
    "scheduler.priority.starvation_guard_minutes": Takes::WholeOrFalse(COUNT) => Ceiling(policy) score(policy).starvation_guard_minutes;
    "concurrency.max_loops": Takes::Whole(COUNT) => Ceiling(policy) loops(policy).max_concurrent;
    "concurrency.max_api_calls": Takes::Whole(COUNT) => Count(policy) policy.gate.max_concurrent;
    "rate_limit.max_requests_per_window": Takes::Whole(COUNT) => Count(policy) policy.gate.max_requests_per_window;
    "rate_limit.rate_window_secs": Takes::Whole(SOME_SECONDS) => Count(policy) policy.gate.rate_window_secs;
    "rate_limit.burst": Takes::Whole(COUNT) => Count(policy) policy.gate.burst;
    "rate_limit.priority_spread_secs": Takes::Whole(SECONDS) => Count(policy) policy.gate.priority_spread_secs;
    "rate_limit.initial_backoff_secs": Takes::Whole(SOME_SECONDS) => Count(policy) policy.gate.initial_backoff_secs;
    "rate_limit.max_backoff_secs": Takes::Whole(SOME_SECONDS) => Count(policy) policy.gate.max_backoff_secs;
    "rate_limit.recovery_period_secs": Takes::Whole(SECONDS) => Count(policy) policy.gate.recovery_period_secs;
    "rate_limit.default_priority": Takes::Level => Level(policy) policy.gate.default_priority;
}

fn loops(policy: &mut Policy) -> &mut QueuePolicy {
    policy.queues.entry(QUEUE.to_owned()).or_insert_with(|| QueuePolicy::built_in(QUEUE))
}

fn score(policy: &mut Policy) -> &mut ScorePolicy {
    loops(policy).score.get_or_insert_default()
}

impl Word {
    /// The word of a path that is in the table.
    pub fn of_path(path: &str) -> &'static Self {
        let word = WORDS.iter().find(|word| word.path == path);
        word.unwrap_or_else(|| unreachable!("{path} is not a word of the policy"))
    }

    /// The words of a section, with their keys.
    pub fn of_section(section: &str) -> impl Iterator<Item = (&'static str, &'static Self)> {
        WORDS.iter().filter_map(move |word| {
            let (before, key) = word.path.rsplit_once('.')?;
            (before == section).then_some((key, word))
        })
    }

    /// What a file says.
    pub fn read(&self, field: &Field<'_>) -> Result<Value, KeyError> {
        let number = |range| field.whole(range).map(|number| Value::Number(narrow(number)));
        match &self.takes {
            Takes::WholeOrFalse(_) if field.is_false() => Ok(Value::Off),
            Takes::Whole(range) | Takes::WholeOrFalse(range) => number(range),
            Takes::Level => {
                let words = GateLevel::ALL.map(|level| (level.word(), Value::Level(level)));
                field.word(&words)
            }
        }
    }

    /// What a policy says.
    pub fn value_in(&self, policy: &Policy) -> Value {
        if self.path.starts_with("scheduler.priority.") && policy.queue(QUEUE).score.is_none() {
            return Value::Off;
        }
        match (self.place)(&mut policy.clone()) {
            Place::Points(points) => Value::Number(narrow(points.unsigned_abs())),
            Place::Count(count) => Value::Number(*count),
            Place::Ceiling(ceiling) => ceiling.map_or(Value::Off, Value::Number),
            Place::Level(level) => Value::Level(*level),
        }
    }

    fn set(&self, policy: &mut Policy, value: Value) {
        match ((self.place)(policy), value) {
            (Place::Points(points), Value::Number(number)) => *points = i64::from(number),
            (Place::Count(count), Value::Number(number)) => *count = number,
            (Place::Ceiling(ceiling), Value::Number(number)) => *ceiling = Some(number),
            (Place::Ceiling(ceiling), Value::Off) => *ceiling = None,
            (Place::Level(level), Value::Level(given)) => *level = given,
            _ => unreachable!("{} was read as what its place holds", self.path),
        }
    }
}

/// Every range lies within.
pub(super) fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The range of base scores.
pub(super) const BASE: RangeInclusive<u64> = POINTS;
/// The range of ceilings.
pub(super) const CEILING: RangeInclusive<u64> = COUNT;

impl PolicyWords {
    pub(super) fn name(&mut self, word: &'static Word, value: Value) {
        self.values.insert(word.path, value);
    }

    pub(super) fn name_base(&mut self, kind: &str, points: u32) {
        self.base.insert(kind.to_owned(), points);
    }

    pub(super) fn name_ceilings(&mut self, ceilings: BTreeMap<String, u32>) {
        self.per_kind = Some(ceilings);
    }

    pub(super) fn value(&self, word: &Word) -> Option<Value> {
        self.values.get(word.path).copied()
    }

    pub(super) fn base(&self, kind: &str) -> Option<u32> {
        self.base.get(kind).copied()
    }

    pub(super) fn per_kind(&self) -> Option<&BTreeMap<String, u32>> {
        self.per_kind.as_ref()
    }

    /// The rules of queues in the policy's own words; refused where another section says something else.
    pub(super) fn name_queues(&mut self, queues: &serde_json::Value) -> Result<(), PolicyError> {
        let document = serde_json::json!({ "queues": queues }).to_string();
        let default = Policy::default();
        let before = self.apply_to(&default)?;
        let both = before.merged(&document)?;
        let [default, before, both] = [&default, &before, &both].map(leaves);
        // A rule that the other sections changed, and this one changes again.
        let is_changed_twice = |(path, value): &(&String, &serde_json::Value)| {
            default.get(*path) != Some(*value) && both.get(*path) != Some(*value)
        };
        if let Some((path, value)) = before.iter().find(is_changed_twice) {
            let problem = format!("another section of the file says {value}");
            return Err(PolicyError { path: path.clone(), problem });
        }
        self.queues = Some(document);
        Ok(())
    }

    /// The policy with what is named changed: single values one by one, the ceilings of kinds as a whole.
    pub fn apply_to(&self, policy: &Policy) -> Result<Policy, PolicyError> {
        let mut changed = policy.clone();
        for word in WORDS {
            if let Some(value) = self.value(word) {
                word.set(&mut changed, value);
            }
        }
        for (kind, points) in &self.base {
            score(&mut changed).base.insert(kind.clone(), i64::from(*points));
        }
        if let Some(ceilings) = &self.per_kind {
            loops(&mut changed).per_kind = ceilings.clone();
        }
        if let Some(queues) = &self.queues {
            changed = changed.merged(queues)?;
        }
        // The two were checked apart; whether they go together is for the policy's own reader to say.
        Policy::parse(changed.to_json().as_str())
    }
}
