//! The keys of `rota.yml` that are policy: one table from a path of the file to its place in the policy, read in both
//! directions.

use std::collections::BTreeMap;

use rota_core::Policy;
use rota_core::policy::{GateLevel, QueuePolicy, ScorePolicy};
use rota_core::shape::{KeyError, Node};
use serde_json::{Value, json};

const QUEUE: &str = "loops";

/// What a file says about the policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyKeys {
    /// Single values, by path.
    values: BTreeMap<&'static str, Value>,
    /// Base scores, by kind.
    base: BTreeMap<String, u32>,
    /// All ceilings of kinds, where the file has any say.
    per_kind: Option<BTreeMap<String, u32>>,
    /// The section `queues`, as a policy document.
    queues: Option<String>,
}

/// Every value of a policy by its dotted path.
fn leaves(policy: &Policy) -> BTreeMap<String, Value> {
    fn collect(path: String, value: Value, found: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(map) => {
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
pub(super) struct PolicyKey {
    /// Its dotted path in the file.
    pub path: &'static str,
    place: fn(&mut Policy) -> Place<'_>,
}

enum Place<'a> {
    Points(&'a mut i64),
    Count(&'a mut u32),
    Ceiling(&'a mut Option<u32>),
    Level(&'a mut GateLevel),
}

macro_rules! policy_keys {
    ($($path:literal => $variant:ident($policy:ident) $place:expr;)*) => {
        /// Every single value of the policy that a file can name.
        pub(super) const POLICY_KEYS: &[PolicyKey] =
            &[$(PolicyKey { path: $path, place: |$policy| Place::$variant(&mut $place) }),*];
    };
}

policy_keys! {
    "scheduler.priority.age_boost_per_minute" => Points(policy) score(policy).age_boost_per_minute;
    "scheduler.priority.age_boost_max" => Points(policy) score(policy).age_boost_max;
    "scheduler.priority.depth_boost_per_level" => Points(policy) score(policy).depth_boost_per_level;
    "scheduler.priority.retry_penalty_per_iteration" => Points(policy) score(policy).retry_penalty_per_iteration;
    "scheduler.priority.retry_penalty_max" => Points(policy) score(policy).retry_penalty_max;
    "scheduler.priority.starvation_guard_minutes" => Ceiling(policy) score(policy).starvation_guard_minutes;
    "concurrency.max_loops" => Ceiling(policy) loops(policy).max_concurrent;
    "concurrency.max_api_calls" => Count(policy) policy.gate.max_concurrent;
    "rate_limit.max_requests_per_window" => Count(policy) policy.gate.max_requests_per_window;
    "rate_limit.rate_window_secs" => Count(policy) policy.gate.rate_window_secs;
    "rate_limit.burst" => Count(policy) policy.gate.burst;
    "rate_limit.priority_spread_secs" => Count(policy) policy.gate.priority_spread_secs;
    "rate_limit.initial_backoff_secs" => Count(policy) policy.gate.initial_backoff_secs;
    "rate_limit.max_backoff_secs" => Count(policy) policy.gate.max_backoff_secs;
    "rate_limit.recovery_period_secs" => Count(policy) policy.gate.recovery_period_secs;
    "rate_limit.default_priority" => Level(policy) policy.gate.default_priority;
}

fn loops(policy: &mut Policy) -> &mut QueuePolicy {
    policy.queues.entry(QUEUE.to_owned()).or_insert_with(|| QueuePolicy::built_in(QUEUE))
}

fn score(policy: &mut Policy) -> &mut ScorePolicy {
    loops(policy).score.get_or_insert_default()
}

impl PolicyKey {
    /// The value in a policy; `false` for none.
    pub fn value_in(&self, policy: &Policy) -> Value {
        if self.path.starts_with("scheduler.priority.") && policy.queue(QUEUE).score.is_none() {
            return json!(false);
        }
        match (self.place)(&mut policy.clone()) {
            Place::Points(points) => json!(points),
            Place::Count(count) => json!(count),
            Place::Ceiling(ceiling) => ceiling.map_or(json!(false), |ceiling| json!(ceiling)),
            Place::Level(level) => json!(level.word()),
        }
    }

    fn set(&self, policy: &mut Policy, value: &Value) {
        let number = || value.as_u64().and_then(|number| u32::try_from(number).ok());
        let (place, number) = ((self.place)(policy), number());
        match place {
            Place::Points(points) => *points = number.map_or(*points, i64::from),
            Place::Count(count) => *count = number.unwrap_or(*count),
            Place::Ceiling(ceiling) => *ceiling = number,
            Place::Level(level) => *level = value.as_str().and_then(GateLevel::from_word).unwrap_or(*level),
        }
    }
}

impl PolicyKeys {
    /// The single values that a checked document names.
    pub(super) fn read(document: &Node) -> Self {
        let at = |path: &str| path.split('.').try_fold(document, |node, key| node.get(key));
        let value = |key: &PolicyKey| Some((key.path, at(key.path)?.to_json()));
        Self { values: POLICY_KEYS.iter().filter_map(value).collect(), ..Self::default() }
    }

    pub(super) fn set(&mut self, path: &'static str, value: Value) {
        self.values.insert(path, value);
    }

    pub(super) fn name_kinds(
        &mut self,
        base: BTreeMap<String, u32>,
        per_kind: Option<BTreeMap<String, u32>>,
    ) {
        (self.base, self.per_kind) = (base, per_kind);
    }

    pub(super) fn value(&self, key: &PolicyKey) -> Option<&Value> {
        self.values.get(key.path)
    }

    pub(super) fn base(&self, kind: &str) -> Option<u32> {
        self.base.get(kind).copied()
    }

    pub(super) fn per_kind(&self) -> Option<&BTreeMap<String, u32>> {
        self.per_kind.as_ref()
    }

    /// The rules of queues in the policy's own words; refused where another section says something else.
    pub(super) fn name_queues(&mut self, queues: &Value) -> Result<(), KeyError> {
        let document = json!({ "queues": queues }).to_string();
        let default = Policy::default();
        let before = self.apply_to(&default)?;
        let both = before.merged(&document)?;
        let [default, before, both] = [&default, &before, &both].map(leaves);
        // A rule that the other sections changed, and this one changes again.
        let is_changed_twice = |(path, value): &(&String, &Value)| {
            default.get(*path) != Some(*value) && both.get(*path) != Some(*value)
        };
        if let Some((path, value)) = before.iter().find(is_changed_twice) {
            let problem = format!("another section of the file says {value}");
            return Err(KeyError::new(path, problem));
        }
        self.queues = Some(document);
        Ok(())
    }

    /// The policy with what is named changed: single values one by one, the ceilings of kinds as a whole.
    pub fn apply_to(&self, policy: &Policy) -> Result<Policy, KeyError> {
        let mut changed = policy.clone();
        for key in POLICY_KEYS {
            if let Some(value) = self.value(key) {
                key.set(&mut changed, value);
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
