//! The one order: by priority; within a priority overdue tasks first, by how long they have been runnable; then by
//! score, age, insertion. The order is total, so every host sorts alike.

use std::cmp::Reverse;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::policy::{QueuePolicy, ScorePolicy};
use crate::status::Status;
use crate::task::Task;
use crate::time::{MINUTE_MS, UnixMillis};

/// The fields of a task that determine its rank. Small, so that long lists can be ranked without their texts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rankable {
    /// Insertion number; identifies the task.
    pub seq: u64,
    /// Lower first.
    pub priority: u32,
    /// The part of the score that does not change with time.
    pub static_score: i64,
    /// When it was added.
    pub created_at: UnixMillis,
    /// The time since which it is runnable.
    pub ready_at: UnixMillis,
}

impl Rankable {
    /// The fields of a task under its queue's policy.
    pub fn of(task: &Task, policy: &QueuePolicy) -> Self {
        Self {
            seq: task.seq,
            priority: task.sort_priority(),
            static_score: static_score(task, policy),
            created_at: task.created_at,
            ready_at: task.ready_at(),
        }
    }
}

/// Sorts ascending: the least key runs first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RankKey {
    priority: u32,
    place: Place,
    created_at: UnixMillis,
    seq: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Overdue(UnixMillis),
    Scored(Reverse<i64>),
}

/// The key of a task at `now`.
pub fn key(rankable: &Rankable, policy: &QueuePolicy, now: UnixMillis) -> RankKey {
    let overdue = overdue_before(policy, now).is_some_and(|limit| rankable.ready_at < limit);
    let place = if overdue {
        Place::Overdue(rankable.ready_at)
    } else {
        Place::Scored(Reverse(rankable.static_score + age_boost(rankable.created_at, policy, now)))
    };
    RankKey { priority: rankable.priority, place, created_at: rankable.created_at, seq: rankable.seq }
}

/// Tasks runnable since before this time are overdue; none if the queue has no guard.
pub fn overdue_before(policy: &QueuePolicy, now: UnixMillis) -> Option<UnixMillis> {
    let minutes = policy.score.as_ref()?.starvation_guard_minutes?;
    Some(now.plus_ms(-i64::from(minutes) * MINUTE_MS))
}

/// The part of the score that does not change while a task waits.
pub fn static_score(task: &Task, policy: &QueuePolicy) -> i64 {
    let Some(score) = &policy.score else { return 0 };
    base(score, task.kind.as_deref()) + depth_boost(score, task.depth) - retry_penalty(score, task)
}

fn base(score: &ScorePolicy, kind: Option<&str>) -> i64 {
    kind.and_then(|kind| score.base.get(kind)).copied().unwrap_or(score.base_other)
}

fn depth_boost(score: &ScorePolicy, depth: u32) -> i64 {
    i64::from(depth).saturating_mul(score.depth_boost_per_level)
}

/// Counts failed iterations: all tries of a waiting loop, all but the current one of a running loop.
fn retry_penalty(score: &ScorePolicy, task: &Task) -> i64 {
    let under_way = u32::from(task.status == Status::Active);
    i64::from(task.tries.saturating_sub(under_way))
        .saturating_mul(score.retry_penalty_per_iteration)
        .min(score.retry_penalty_max)
}

fn age_boost(created_at: UnixMillis, policy: &QueuePolicy, now: UnixMillis) -> i64 {
    let Some(score) = &policy.score else { return 0 };
    let minutes = now.age_ms_of(created_at) / MINUTE_MS;
    minutes.saturating_mul(score.age_boost_per_minute).min(score.age_boost_max)
}

/// A score with its terms.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Score {
    /// The sum.
    pub total: i64,
    /// The terms.
    pub terms: Vec<ScoreTerm>,
}

/// One named term.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScoreTerm {
    /// `base`, `age`, `depth`, `retries`.
    pub name: Cow<'static, str>,
    /// The value of the term.
    pub value: i64,
}

/// The score of a task with its terms; none in a queue without scores.
pub fn score(task: &Task, policy: &QueuePolicy, now: UnixMillis) -> Option<Score> {
    let rules = policy.score.as_ref()?;
    let terms = vec![
        ScoreTerm { name: "base".into(), value: base(rules, task.kind.as_deref()) },
        ScoreTerm { name: "age".into(), value: age_boost(task.created_at, policy, now) },
        ScoreTerm { name: "depth".into(), value: depth_boost(rules, task.depth) },
        ScoreTerm { name: "retries".into(), value: -retry_penalty(rules, task) },
    ];
    Some(Score { total: terms.iter().map(|term| term.value).sum(), terms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TaskId;

    const NOW: UnixMillis = UnixMillis::new(1_000_000_000);

    fn policy() -> QueuePolicy {
        QueuePolicy::built_in("loops")
    }

    /// A loop that waits for this iteration, all before it having failed.
    fn looped(id: &str, kind: &str, minutes: i64, depth: u32, iteration: u32) -> Task {
        let created = NOW.plus_ms(-minutes * MINUTE_MS);
        let mut task = Task::new("default", TaskId::from_stored(id.into()), "loops", id, created);
        task.kind = Some(kind.into());
        task.priority = None;
        (task.depth, task.tries) = (depth, iteration.saturating_sub(1));
        task
    }

    /// C1: every score that 000 works out, and the ones its scenarios compare.
    #[test]
    fn the_sources_scores() {
        for (kind, minutes, depth, iteration, wanted) in [
            ("ralph", 5, 3, 1, 135),
            ("phase", 30, 2, 1, 130),
            ("ralph", 1, 3, 5, 111),
            ("ralph", 0, 3, 1, 130),
            ("spec", 40, 1, 1, 110),
            ("plan", 50, 0, 1, 90),
            ("plan", 500, 0, 1, 90),
            ("ralph", 10, 3, 7, 110),
            ("ralph", 10, 3, 1, 140),
            ("ralph", 2, 3, 1, 132),
            ("ralph", 5, 0, 1, 105),
            ("ralph", 5, 0, 0, 105),
            ("ralph", -5, 0, 0, 100),
            ("other", 0, 0, 0, 60),
            ("plan", 0, 0, 0, 40),
            ("spec", 0, 1, 0, 70),
            ("phase", 0, 2, 0, 100),
            ("ralph", 0, 3, u32::MAX, 100),
        ] {
            let task = looped("t", kind, minutes, depth, iteration);
            let total = score(&task, &policy(), NOW).map(|score| score.total);
            assert_eq!(total, Some(wanted), "{kind} {minutes} {depth} {iteration}");
            let in_parts = static_score(&task, &policy()) + age_boost(task.created_at, &policy(), NOW);
            assert_eq!(in_parts, wanted);
        }
    }

    /// The penalty counts failed iterations, whether the loop waits or runs its next one.
    #[test]
    fn each_failure_takes_five_points() {
        for (failures, wanted) in [(0, 0), (1, -5), (4, -20), (6, -30), (7, -30)] {
            let penalty = |task: &Task| {
                score(task, &policy(), NOW).and_then(|score| score.terms.last().map(|term| term.value))
            };
            let mut task = looped("t", "ralph", 0, 0, 0);
            task.tries = failures;
            assert_eq!(penalty(&task), Some(wanted), "waiting after {failures}");
            (task.status, task.tries) = (Status::Active, failures + 1);
            assert_eq!(penalty(&task), Some(wanted), "running after {failures}");
        }
    }

    fn order(tasks: &[Task], policy: &QueuePolicy) -> Vec<String> {
        let mut sorted: Vec<(usize, &Task)> = tasks.iter().enumerate().collect();
        sorted.sort_by_key(|(seq, task)| {
            key(&Rankable { seq: *seq as u64, ..Rankable::of(task, policy) }, policy, NOW)
        });
        sorted.into_iter().map(|(_, task)| task.id.to_string()).collect()
    }

    /// C1: the orders of 000: the worked example, its four scenarios, the worked tree, and the guard that makes
    /// "no starvation" true.
    #[test]
    fn the_sources_orders() {
        type Loop = (&'static str, &'static str, i64, u32, u32);
        let cases: &[(&[Loop], &[&str])] = &[
            (&[("C", "ralph", 1, 3, 5), ("B", "phase", 30, 2, 1), ("A", "ralph", 5, 3, 1)], &["A", "B", "C"]),
            (&[("Y", "spec", 40, 1, 1), ("X", "ralph", 0, 3, 1)], &["X", "Y"]),
            (&[("A", "plan", 50, 0, 1), ("B", "ralph", 0, 3, 1)], &["B", "A"]),
            (&[("X", "ralph", 10, 3, 7), ("Y", "ralph", 10, 3, 1)], &["Y", "X"]),
            (&[("005", "ralph", 2, 3, 1), ("004", "ralph", 5, 3, 1)], &["004", "005"]),
            (
                &[
                    ("PlanB", "plan", 0, 0, 0),
                    ("SpecA2", "spec", 0, 1, 0),
                    ("PhaseA1b", "phase", 0, 2, 0),
                    ("RalphA1a1", "ralph", 0, 3, 0),
                ],
                &["RalphA1a1", "PhaseA1b", "SpecA2", "PlanB"],
            ),
            // At exactly 60 minutes the plan still waits; after them it runs, the oldest first.
            (&[("plan", "plan", 60, 0, 1), ("ralph", "ralph", 0, 3, 1)], &["ralph", "plan"]),
            (
                &[("plan61", "plan", 61, 0, 1), ("ralph", "ralph", 0, 3, 1), ("plan62", "plan", 62, 0, 1)],
                &["plan62", "plan61", "ralph"],
            ),
        ];
        for (tasks, wanted) in cases {
            let tasks: Vec<Task> =
                tasks.iter().map(|(id, kind, m, d, t)| looped(id, kind, *m, *d, *t)).collect();
            assert_eq!(order(&tasks, &policy()), *wanted);
        }
    }

    /// C1: 002's order, and the ties that the sources leave open.
    #[test]
    fn priority_then_age_then_insertion() {
        let plain = QueuePolicy::built_in("tasks");
        let task = |id: &str, priority, created| {
            let mut task =
                Task::new("d", TaskId::from_stored(id.into()), "tasks", id, UnixMillis::new(created));
            task.priority = priority;
            task
        };
        let tasks = [
            task("late", Some(1), 9),
            task("first", Some(1), 5),
            task("second", Some(1), 5),
            task("unset", None, 1),
            task("critical", Some(0), 99),
            task("normal", Some(2), 2),
        ];
        assert_eq!(order(&tasks, &plain), ["critical", "first", "second", "late", "unset", "normal"]);
    }

    /// The guard counts from when a task became runnable, and never crosses priorities.
    #[test]
    fn overdue_stays_inside_its_priority() {
        let mut urgent = looped("urgent", "plan", 0, 0, 0);
        urgent.priority = Some(1);
        let mut reopened = looped("reopened", "plan", 500, 0, 0);
        reopened.open_since = NOW;
        let tasks = [looped("old", "plan", 500, 0, 0), urgent, reopened, looped("ralph", "ralph", 0, 3, 0)];
        assert_eq!(order(&tasks, &policy()), ["urgent", "old", "ralph", "reopened"]);
    }
}
