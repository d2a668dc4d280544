//! Policy as data: what a queue allows, how long a lease lasts, what follows a failure, how loops are scored.
//!
//! One document per scope. [`Policy::parse`] rejects unknown keys and invalid values, naming the key;
//! [`Policy::to_json`] writes the canonical form, whose hash is the version.

mod flat;
mod keys;
mod parse;
mod write;

use std::collections::BTreeMap;

use crate::backoff::Backoff;

pub use flat::{FLAT_KEYS, FlatPolicy};
pub use keys::QUEUES;
pub(crate) use parse::repeated_key;

/// The rules of one scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// By queue name; always has the four built-in queues.
    pub queues: BTreeMap<String, QueuePolicy>,
    /// The gate in front of the LLM API.
    pub gate: GatePolicy,
}

/// The rules of one queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuePolicy {
    /// Leases held at once; none for no ceiling.
    pub max_concurrent: Option<u32>,
    /// Leases held at once per kind.
    pub per_kind: BTreeMap<String, u32>,
    /// Counted attempts after which a task parks; none for no limit.
    pub max_attempts: Option<u32>,
    /// How long a lease lasts.
    pub lease_ttl_ms: u64,
    /// How expired leases are reclaimed.
    pub reclaim: Reclaim,
    /// Whether renewing and settling must name the lease.
    pub require_lease: bool,
    /// Whether renewing and settling must name the lease or its holder. If false, a caller that names neither is accepted.
    pub require_holder: bool,
    /// Whether a result given to `task done` must have a `commit`.
    pub require_commit: bool,
    /// Whether an agent may create tasks with its lease token.
    pub agents_may_create: bool,
    /// The wait after a counted attempt; none for no wait.
    pub backoff: Option<Backoff>,
    /// The outcomes that count as attempts.
    pub counts: Counts,
    /// The priority of tasks that are created without one.
    pub default_priority: u32,
    /// How tasks of one priority are ranked; none for by age.
    pub score: Option<ScorePolicy>,
    /// The cool-down of a loop whose runs fail quickly; none for off.
    pub fast_failures: Option<FastFailures>,
}

/// The cool-down of a loop whose runs end unsuccessfully within seconds, many times in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastFailures {
    /// The number of consecutive fast failures from which on the loop cools down.
    pub after: u32,
    /// The first cool-down; each further one is twice as long.
    pub base_ms: u64,
    /// The longest cool-down.
    pub cap_ms: u64,
}

impl FastFailures {
    /// How long a loop cools down after the given number of consecutive fast failures; none before the threshold.
    pub fn cool_down_ms(&self, in_row: u32) -> Option<i64> {
        let over = in_row.checked_sub(self.after)?.saturating_add(1);
        let backoff = Backoff { base_ms: self.base_ms, factor_thousandths: 2_000, cap_ms: self.cap_ms };
        Some(backoff.after(over))
    }
}

/// How expired leases are reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// By every claim, before it chooses.
    Auto,
    /// Only by `rota sched reclaim`.
    Explicit,
}

/// The outcomes that count as attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Reported failures.
    pub failed: bool,
    /// Leases that expired.
    pub lost: bool,
}

/// The named terms of a score, and the guard that bounds waiting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScorePolicy {
    /// By kind.
    pub base: BTreeMap<String, i64>,
    /// For other kinds.
    pub base_other: i64,
    /// Per whole minute since creation.
    pub age_boost_per_minute: i64,
    /// The most that age can add.
    pub age_boost_max: i64,
    /// Per level below the root.
    pub depth_boost_per_level: i64,
    /// Per failed iteration.
    pub retry_penalty_per_iteration: i64,
    /// The most that tries can subtract.
    pub retry_penalty_max: i64,
    /// A task that was runnable for longer goes first within its priority. None for off.
    pub starvation_guard_minutes: Option<u32>,
}

/// The rules of the gate, kept here because policy is one document; the gate itself is another crate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatePolicy {
    /// Concurrent calls.
    pub max_concurrent: u32,
    /// Starts in any window.
    pub max_requests_per_window: u32,
    /// Length of the window.
    pub rate_window_secs: u32,
    /// Starts that may follow each other immediately.
    pub burst: u32,
    /// The priority of callers without one.
    pub default_priority: GateLevel,
    /// How much later each level is ordered.
    pub priority_spread_secs: u32,
    /// The wait after the first 429.
    pub initial_backoff_secs: u32,
    /// The longest wait.
    pub max_backoff_secs: u32,
    /// The length of the ramp after a block.
    pub recovery_period_secs: u32,
    /// Input tokens a minute; none for no window.
    pub max_input_tokens_per_minute: Option<u64>,
    /// Output tokens a minute; none for no window.
    pub max_output_tokens_per_minute: Option<u64>,
    /// How much longer each window lasts.
    pub window_margin_ms: Option<u32>,
    /// Budgets of model groups.
    pub groups: BTreeMap<String, GateGroup>,
}

/// The budget of one model group under the common slots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GateGroup {
    /// Globs on the model's name.
    pub models: Vec<String>,
    /// Starts in any window.
    pub max_requests_per_window: Option<u32>,
    /// Length of the window.
    pub rate_window_secs: Option<u32>,
    /// Starts that may follow each other immediately.
    pub burst: Option<u32>,
    /// Input tokens a minute.
    pub max_input_tokens_per_minute: Option<u64>,
    /// Output tokens a minute.
    pub max_output_tokens_per_minute: Option<u64>,
}

/// The four levels of the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GateLevel {
    /// 0
    Critical,
    /// 1
    High,
    /// 2
    Normal,
    /// 3
    Low,
}

impl GateLevel {
    /// All four, most urgent first.
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Normal, Self::Low];

    /// The word in documents.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    /// The level of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.word() == word)
    }
}

/// The built-in queues.
pub const BUILT_IN_QUEUES: [&str; 4] = ["tasks", "runs", "loops", "issues"];

impl Policy {
    /// The rules of a queue: its own, or those of `tasks` for a queue that the document does not name.
    pub fn queue(&self, name: &str) -> &QueuePolicy {
        match self.queues.get(name).or_else(|| self.queues.get("tasks")) {
            Some(policy) => policy,
            None => unreachable!("a policy always has queue tasks"),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        let queues = BUILT_IN_QUEUES.map(|name| (name.to_owned(), QueuePolicy::built_in(name)));
        Self { queues: BTreeMap::from(queues), gate: GatePolicy::default() }
    }
}

impl QueuePolicy {
    /// The defaults of a built-in queue; any other name gets those of `tasks`.
    pub fn built_in(name: &str) -> Self {
        let tasks = Self {
            max_concurrent: None,
            per_kind: BTreeMap::new(),
            max_attempts: None,
            lease_ttl_ms: 600_000,
            reclaim: Reclaim::Auto,
            require_lease: false,
            require_holder: true,
            require_commit: true,
            agents_may_create: true,
            backoff: None,
            counts: Counts { failed: true, lost: true },
            default_priority: crate::task::NORMAL_PRIORITY,
            score: None,
            fast_failures: None,
        };
        let backoff = Some(Backoff { base_ms: 1_000, factor_thousandths: 2_000, cap_ms: 60_000 });
        match name {
            "runs" => Self {
                max_concurrent: Some(1),
                max_attempts: Some(3),
                lease_ttl_ms: 300_000,
                reclaim: Reclaim::Explicit,
                require_lease: true,
                require_commit: false,
                backoff,
                default_priority: 100,
                ..tasks
            },
            "loops" => Self {
                max_concurrent: Some(50),
                max_attempts: Some(3),
                lease_ttl_ms: 120_000,
                require_lease: true,
                require_commit: false,
                backoff,
                score: Some(ScorePolicy::default()),
                fast_failures: Some(FastFailures { after: 10, base_ms: 1_000, cap_ms: 60_000 }),
                ..tasks
            },
            "issues" => Self {
                max_concurrent: Some(1),
                max_attempts: Some(3),
                lease_ttl_ms: 1_800_000,
                require_lease: true,
                require_commit: false,
                ..tasks
            },
            _ => tasks,
        }
    }

    /// Whether its tasks are ranked in buckets; otherwise by priority, age and insertion.
    pub fn is_bucketed(&self) -> bool {
        self.score.is_some() || !self.per_kind.is_empty()
    }

    /// The default lease as a signed length.
    pub fn lease_ttl(&self) -> i64 {
        i64::try_from(self.lease_ttl_ms).unwrap_or(i64::MAX)
    }

    /// Whether a lost attempt leaves the task claimable immediately: neither parked nor cooling down.
    pub fn lost_stays_claimable(&self, attempts_before: u32) -> bool {
        let attempts = attempts_before.saturating_add(u32::from(self.counts.lost));
        let parks = self.counts.lost && self.max_attempts.is_some_and(|limit| attempts >= limit);
        let cools = self.counts.lost && self.backoff.is_some_and(|backoff| backoff.after(attempts) > 0);
        !parks && !cools
    }
}

impl Default for ScorePolicy {
    fn default() -> Self {
        let base = [("plan", 40), ("spec", 60), ("phase", 80), ("ralph", 100)];
        Self {
            base: base.map(|(kind, score)| (kind.to_owned(), score)).into(),
            base_other: 60,
            age_boost_per_minute: 1,
            age_boost_max: 50,
            depth_boost_per_level: 10,
            retry_penalty_per_iteration: 5,
            retry_penalty_max: 30,
            starvation_guard_minutes: Some(60),
        }
    }
}

impl Default for GatePolicy {
    fn default() -> Self {
        Self {
            max_concurrent: 10,
            max_requests_per_window: 50,
            rate_window_secs: 60,
            burst: 10,
            default_priority: GateLevel::Normal,
            priority_spread_secs: 60,
            initial_backoff_secs: 5,
            max_backoff_secs: 120,
            recovery_period_secs: 30,
            max_input_tokens_per_minute: None,
            max_output_tokens_per_minute: None,
            window_margin_ms: None,
            groups: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document of the contracts, word for word.
    const CONTRACT: &str = r#"{
  "schemaVersion": 1,
  "queues": {
    "tasks":  { "leaseTtlMs": 600000, "reclaim": "auto", "requireLease": false },
    "runs":   { "maxConcurrent": 1, "maxAttempts": 3, "leaseTtlMs": 300000, "reclaim": "explicit", "requireLease": true,
                "backoff": { "baseMs": 1000, "factor": 2, "capMs": 60000 }, "defaultPriority": 100 },
    "loops":  { "maxConcurrent": 50, "perKind": {}, "maxAttempts": 3, "leaseTtlMs": 120000, "reclaim": "auto", "requireLease": true,
                "backoff": { "baseMs": 1000, "factor": 2, "capMs": 60000 },
                "score": { "base": { "plan": 40, "spec": 60, "phase": 80, "ralph": 100 }, "baseOther": 60,
                           "ageBoostPerMinute": 1, "ageBoostMax": 50, "depthBoostPerLevel": 10,
                           "retryPenaltyPerIteration": 5, "retryPenaltyMax": 30, "starvationGuardMinutes": 60 } },
    "issues": { "maxConcurrent": 1, "maxAttempts": 3, "leaseTtlMs": 1800000, "reclaim": "auto", "requireLease": true }
  },
  "gate": { "maxConcurrent": 10, "maxRequestsPerWindow": 50, "rateWindowSecs": 60, "burst": 10, "defaultPriority": "normal",
            "prioritySpreadSecs": 60, "initialBackoffSecs": 5, "maxBackoffSecs": 120, "recoveryPeriodSecs": 30 }
}"#;

    #[test]
    fn the_defaults_are_those_of_the_contract() {
        assert_eq!(Policy::parse(CONTRACT), Ok(Policy::default()));
        assert_eq!(Policy::parse("{}"), Ok(Policy::default()));
        let written = Policy::default().to_json();
        assert_eq!(Policy::parse(written.as_str()), Ok(Policy::default()));
        let document = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        assert_eq!(document(written.as_str()), document(CONTRACT), "{}", written.as_str());
    }

    #[test]
    fn keys_read_in_three_forms() {
        for key in ["maxConcurrent", "max_concurrent", "max-concurrent"] {
            let policy = Policy::parse(&format!(r#"{{"queues":{{"tasks":{{"{key}":4}}}}}}"#));
            assert_eq!(policy.map(|policy| policy.queue("tasks").max_concurrent), Ok(Some(4)), "{key}");
        }
    }

    #[test]
    fn a_users_queue_takes_what_it_names_and_else_the_values_of_tasks() {
        let policy = Policy::parse(
            r#"{"queues":{"tasks":{"leaseTtlMs":5},"mine":{"maxAttempts":2,"backoff":{"baseMs":10,"factor":1.25,"capMs":99}}}}"#,
        );
        let Ok(policy) = policy else { panic!("{policy:?}") };
        let mine = policy.queue("mine");
        assert_eq!((mine.lease_ttl_ms, mine.max_attempts), (5, Some(2)));
        assert_eq!(mine.backoff, Some(Backoff { base_ms: 10, factor_thousandths: 1_250, cap_ms: 99 }));
        assert_eq!(policy.queue("unknown").lease_ttl_ms, 5);
        assert_eq!(Policy::parse(policy.to_json().as_str()), Ok(policy));
    }

    #[test]
    fn values_that_differ_from_their_default_are_written() {
        let document = r#"{"queues":{
            "tasks":{"requireHolder":false,"requireCommit":false,"agentsMayCreate":false},
            "mine":{"requireHolder":true,"fastFailures":{"after":2,"baseMs":1,"capMs":9}},
            "loops":{"fastFailures":null},"runs":{"requireCommit":true}}}"#;
        let Ok(policy) = Policy::parse(document) else { panic!("{document}") };
        assert!(!policy.queue("tasks").require_holder && policy.queue("mine").require_holder);
        assert!(!policy.queue("mine").agents_may_create && policy.queue("runs").require_commit);
        assert_eq!(
            policy.queue("mine").fast_failures,
            Some(FastFailures { after: 2, base_ms: 1, cap_ms: 9 })
        );
        assert_eq!(policy.queue("loops").fast_failures, None);
        assert_eq!(Policy::parse(policy.to_json().as_str()), Ok(policy));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_path() {
        for (document, message) in [
            ("[]", "policy: expected an object, got an array"),
            ("{", "policy: not JSON: EOF while parsing an object at line 1 column 1"),
            (r#"{"schemaVersion":2}"#, "schemaVersion: expected 1, got 2"),
            (
                r#"{"queue":{}}"#,
                "queue: unknown key, did you mean 'queues'? (known here: $schema, schemaVersion, basedOn, queues, gate)",
            ),
            (
                r#"{"queues":{"runs":{"maxConcurent":1}}}"#,
                "queues.runs.maxConcurent: unknown key, did you mean 'maxConcurrent'? (known here: maxConcurrent, perKind, maxAttempts, leaseTtlMs, reclaim, requireLease, requireHolder, requireCommit, agentsMayCreate, backoff, counts, defaultPriority, score, fastFailures)",
            ),
            (
                r#"{"queues":{"runs":{"maxConcurrent":0}}}"#,
                "queues.runs.maxConcurrent: expected a whole number from 1 to 1000000, got 0",
            ),
            (
                r#"{"queues":{"runs":{"maxConcurrent":1.5}}}"#,
                "queues.runs.maxConcurrent: expected a whole number from 1 to 1000000, got 1.5",
            ),
            (
                r#"{"queues":{"runs":{"maxConcurrent":"4"}}}"#,
                "queues.runs.maxConcurrent: expected a whole number from 1 to 1000000, got \"4\"",
            ),
            (
                r#"{"queues":{"runs":{"leaseTtlMs":-1}}}"#,
                "queues.runs.leaseTtlMs: expected a whole number from 1 to 31536000000, got -1",
            ),
            (
                r#"{"queues":{"runs":{"backoff":{"factor":0.5}}}}"#,
                "queues.runs.backoff.factor: expected a number from 1 to 1000 with at most three decimals, got 0.5",
            ),
            (
                r#"{"queues":{"runs":{"backoff":{"factor":1.0001}}}}"#,
                "queues.runs.backoff.factor: expected a number from 1 to 1000 with at most three decimals, got 1.0001",
            ),
            (
                r#"{"queues":{"runs":{"reclaim":"never"}}}"#,
                "queues.runs.reclaim: expected one of auto, explicit, got \"never\"",
            ),
            (
                r#"{"queues":{"runs":{"max_attempts":1,"maxAttempts":2}}}"#,
                "queues.runs.maxAttempts: given twice",
            ),
            (
                r#"{"queues":{"runs":{"maxAttempts":1,"leaseTtlMs":1,"maxAttempts":2}}}"#,
                "queues.runs.maxAttempts: given twice",
            ),
            (r#"{"queues":{"runs":{}},"gate":{},"queues":{}}"#, "queues: given twice"),
            (r#"{"queues":{"my":{},"my":{"leaseTtlMs":1}}}"#, "queues.my: given twice"),
            (
                r#"{"gate":{"groups":{"g":{"models":[{"a":1,"a":1}]}}}}"#,
                "gate.groups.g.models.0.a: given twice",
            ),
            (r#"{"basedOn":5}"#, "basedOn: expected a text, got 5"),
            (
                r#"{"queues":{"runs":{"counts":{"failed":false,"lost":false},"maxAttempts":2}}}"#,
                "queues.runs.maxAttempts: has no effect, because counts.failed and counts.lost are both false",
            ),
            (r#"{"queues":{"tasks":{"backoff":{"baseMs":5}}}}"#, "queues.tasks.backoff.factor: missing"),
            (
                r#"{"queues":{"tasks":{"backoff":{"baseMs":50,"factor":2,"capMs":5}}}}"#,
                "queues.tasks.backoff.capMs: expected at least baseMs (50), got 5",
            ),
            (
                r#"{"queues":{"loops":{"fastFailures":{"capMs":5}}}}"#,
                "queues.loops.fastFailures.capMs: expected at least baseMs (1000), got 5",
            ),
            (
                r#"{"queues":{"tasks":{"fastFailures":{"after":2}}}}"#,
                "queues.tasks.fastFailures.baseMs: missing",
            ),
            (r#"{"queues":{"":{}}}"#, "queues: queue name is empty"),
            (r#"{"gate":{"burst":0}}"#, "gate.burst: expected a whole number from 1 to 1000000, got 0"),
        ] {
            let refused = Policy::parse(document).map_err(|error| error.to_string());
            assert_eq!(refused, Err(message.to_owned()), "{document}");
        }
    }
}
