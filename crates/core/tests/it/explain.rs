//! Why (not) this one: each obstacle and each wait alone, and that the explanation agrees with the decision.

use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use rota_core::backoff::Backoff;
use rota_core::explain::{Check, Explanation, Surroundings, explain};
use rota_core::obstacle::{Facts, ParentFact, Stage, Viewer, Wait};
use rota_core::policy::{Counts, Reclaim};
use rota_core::select::Room;
use rota_core::transition::{Command, apply};
use rota_core::{QueuePolicy, Status, Task, UnixMillis};
use serde_json::{Value, json};

use crate::support::{NOW, at, config, id, limited};

const SECOND_5: &str = "1970-01-01T00:00:05.000Z";

fn open() -> Task {
    Task::new("default", id("t"), "tasks", "T", at(0))
}

fn active(until: i64) -> Task {
    Task { status: Status::Active, lease_expires_at: Some(at(until)), assignee: Some("me".into()), ..open() }
}

fn around(facts: Facts) -> Surroundings {
    Surroundings { facts, ..Surroundings::default() }
}

fn seen_by(viewer: Viewer) -> Surroundings {
    Surroundings { viewer, ..Surroundings::default() }
}

fn parent(status: Status) -> Surroundings {
    around(Facts { parent: Some(ParentFact { status, iteration: 4 }), ..Facts::default() })
}

fn blocked(names: &[&str]) -> Surroundings {
    let open_blockers = u32::try_from(names.len().max(1)).unwrap();
    around(Facts {
        open_blockers,
        blocked_by: names.iter().map(|name| id(name)).collect(),
        ..Facts::default()
    })
}

fn explained(task: &Task, surroundings: &Surroundings) -> Explanation {
    explain(task, &QueuePolicy::built_in(&task.queue), surroundings, NOW)
}

fn failed(explanation: &Explanation) -> Vec<&Check> {
    explanation.checks.iter().filter(|check| !check.ok).collect()
}

/// One obstacle: what stands there, its check, how it is said, what frees it, when it ends if that is known, JSON.
type Case = (Task, Surroundings, &'static str, &'static str, &'static str, Option<i64>, Value);

/// Only a task that cools down has an earliest time.
fn check_obstacles(cases: Vec<Case>) {
    for (task, surroundings, check, detail, freed_by, ends_at, wire) in cases {
        let said = explained(&task, &surroundings);
        assert!(!said.runnable, "{detail}");
        let ends_at = ends_at.map(at);
        let wanted = Check { check: check.into(), ok: false, detail: Some(detail.to_owned()), ends_at };
        assert_eq!(failed(&said), [&wanted]);
        assert_eq!(said.freed_by.as_deref(), Some(freed_by), "{detail}");
        assert_eq!(said.earliest, ends_at.filter(|_| check == "cooldown"), "{detail}");
        assert_eq!((said.position, &said.ahead, said.waits.len()), (None, &None, 0), "{detail}");
        assert_eq!(serde_json::to_value(&said.obstacles).unwrap(), json!([wire]), "{detail}");
    }
}

#[test]
fn what_has_ended_says_what_reopens_it() {
    for (status, detail, freed_by) in [
        (Status::Done, "it is done", "nothing: it is done"),
        (Status::Failed, "it is failed", "rota task reset t"),
        (Status::Parked, "it is parked", "rota task reset t"),
        (Status::Invalidated, "it is invalidated", "rota task reset t"),
        (Status::Deleted, "it is deleted", "rota task undelete t"),
    ] {
        let wire = json!({"reason": "not_open", "status": status.word()});
        let task = Task { status, ..open() };
        check_obstacles(vec![(task, Surroundings::default(), "status", detail, freed_by, None, wire)]);
    }
}

#[test]
fn where_a_task_stands() {
    let alone = Surroundings::default;
    check_obstacles(vec![
        (
            Task { status: Status::Paused, ..open() },
            alone(),
            "status",
            "it is paused",
            "rota task resume t",
            None,
            json!({"reason": "paused"}),
        ),
        (
            active(5_000),
            alone(),
            "status",
            "it is leased by 'me' until 1970-01-01T00:00:05Z",
            "its holder settling it, or the lease running out",
            Some(5_000),
            json!({"reason": "leased", "by": "me", "until": SECOND_5}),
        ),
        (
            Task { assignee: None, ..active(5_000) },
            alone(),
            "status",
            "it is leased until 1970-01-01T00:00:05Z",
            "its holder settling it, or the lease running out",
            Some(5_000),
            json!({"reason": "leased", "until": SECOND_5}),
        ),
        (
            Task { queue: "runs".into(), ..active(1_000) },
            alone(),
            "status",
            "its lease expired at 1970-01-01T00:00:01Z and was not reclaimed yet",
            "rota sched reclaim --queue runs",
            None,
            json!({"reason": "lease_expired_awaiting_reclaim", "since": "1970-01-01T00:00:01.000Z"}),
        ),
        (
            Task { next_eligible_at: Some(at(5_000)), ..open() },
            alone(),
            "cooldown",
            "it cools down until 1970-01-01T00:00:05Z",
            "time",
            Some(5_000),
            json!({"reason": "cooling_down", "until": SECOND_5}),
        ),
    ]);
}

#[test]
fn what_stands_around_a_task() {
    let child = || Task { parent: Some(id("p")), parent_iteration: Some(3), ..open() };
    check_obstacles(vec![
        (
            child(),
            parent(Status::Active),
            "parent",
            "its parent 'p' is active, not done",
            "'p' being done",
            None,
            json!({"reason": "parent_not_done", "parent": "p", "status": "active"}),
        ),
        (
            child(),
            Surroundings::default(),
            "parent",
            "its parent 'p' does not exist",
            "'p' being created and done",
            None,
            json!({"reason": "parent_missing", "parent": "p"}),
        ),
        (
            child(),
            parent(Status::Done),
            "parent",
            "it came from iteration 3 of its parent, which is now at 4",
            "its parent's new iteration making it anew",
            None,
            json!({"reason": "stale", "parentIteration": 3, "current": 4}),
        ),
        (
            Task { triggered_by: Some("a\u{1b}.md".into()), ..open() },
            Surroundings::default(),
            "artifact",
            r"its artifact 'a\u{1b}.md' is not there",
            r"'a\u{1b}.md' being written",
            None,
            json!({"reason": "artifact_missing", "path": "a\u{1b}.md"}),
        ),
        (
            open(),
            blocked(&["b1", "b2"]),
            "blockers",
            "it is blocked by 'b1', 'b2'",
            "'b1', 'b2' being done or deleted",
            None,
            json!({"reason": "blocked_by", "ids": ["b1", "b2"]}),
        ),
        (
            open(),
            blocked(&["1", "2", "3", "4", "5", "6", "7"]),
            "blockers",
            "it is blocked by '1', '2', '3', '4', '5' and 2 more",
            "'1', '2', '3', '4', '5' and 2 more being done or deleted",
            None,
            json!({"reason": "blocked_by", "ids": ["1", "2", "3", "4", "5", "6", "7"]}),
        ),
        (
            open(),
            blocked(&[]),
            "blockers",
            "it is blocked",
            "its blockers being done or deleted",
            None,
            json!({"reason": "blocked_by", "ids": []}),
        ),
    ]);
}

#[test]
fn who_asks() {
    let viewer = Viewer::default;
    check_obstacles(vec![
        (
            open(),
            seen_by(Viewer { queue_paused: true, ..viewer() }),
            "queue",
            "its queue is paused",
            "rota queue resume tasks",
            None,
            json!({"reason": "queue_paused"}),
        ),
        (
            Task { host: Some("there".into()), ..open() },
            seen_by(Viewer { host: Some("here".into()), ..viewer() }),
            "host",
            "its folders are on host 'there'",
            "the daemon on 'there', or rota loop move t",
            None,
            json!({"reason": "other_host", "host": "there"}),
        ),
        (
            Task { kind: Some("odd".into()), ..open() },
            seen_by(Viewer { runners: Some(vec!["plan".into()]), ..viewer() }),
            "runner",
            "nothing is configured to run kind 'odd'",
            "loops.odd.run in rota.yml",
            None,
            json!({"reason": "no_runner", "kind": "odd"}),
        ),
    ]);
}

#[test]
fn each_wait_alone() {
    let full = QueuePolicy { max_concurrent: Some(2), ..QueuePolicy::built_in("tasks") };
    let kind_full =
        QueuePolicy { per_kind: [("plan".to_owned(), 1)].into(), ..QueuePolicy::built_in("tasks") };
    let room = |policy| Room::new(policy, [("plan".to_owned(), 2)].into());
    let outside = |wait| Surroundings { outside: vec![wait], ..Surroundings::default() };
    let blocked_until = |millis| Wait::RateLimited { upstream: "api".into(), until: Some(at(millis)) };
    let cases = [
        (
            Surroundings { room: room(&full), ..Surroundings::default() },
            "ceiling",
            "its queue is full (2 of 2 leases held)",
            "a lease being settled, or a higher ceiling",
            None,
            None,
        ),
        (
            Surroundings { room: room(&kind_full), ..Surroundings::default() },
            "ceiling",
            "kind 'plan' is full (2 of 1 leases held)",
            "a lease being settled, or a higher ceiling",
            None,
            None,
        ),
        (
            outside(blocked_until(5_000)),
            "outside",
            "'api' is rate limited until 1970-01-01T00:00:05.000Z",
            "time, or rota gate unblock",
            Some(5_000),
            Some(5_000),
        ),
        (
            outside(Wait::BudgetSpent { budget: "usd_per_day".into(), until: at(7_000) }),
            "outside",
            "the budget 'usd_per_day' is spent until 1970-01-01T00:00:07.000Z",
            "time, or a higher gateway.budget.usd_per_day in rota.yml",
            Some(7_000),
            Some(7_000),
        ),
        (
            outside(Wait::DiskLow { available: 1, minimum: 2 }),
            "outside",
            "disk space is low (1 bytes free, 2 wanted)",
            "more disk space",
            None,
            None,
        ),
        (
            outside(Wait::WorktreesFull { ceiling: 3, kept: Vec::new() }),
            "outside",
            "all 3 worktrees are in use",
            "a worktree being freed",
            None,
            None,
        ),
        (
            Surroundings { ahead: (7, vec![id("x"), id("y")]), ..Surroundings::default() },
            "order",
            "it is number 8 in line, 'x' is next",
            "the tasks ahead being claimed",
            None,
            Some(1_000),
        ),
    ];
    for (surroundings, check, detail, freed_by, ends_at, earliest) in cases {
        let task = Task { kind: Some("plan".into()), ..open() };
        let said = explained(&task, &surroundings);
        assert!(said.runnable && said.obstacles.is_empty(), "{detail}");
        let wanted = Check {
            check: check.into(),
            ok: false,
            detail: Some(detail.to_owned()),
            ends_at: ends_at.map(at),
        };
        assert_eq!(failed(&said), [&wanted]);
        assert_eq!(said.freed_by.as_deref(), Some(freed_by), "{detail}");
        assert_eq!(said.earliest, earliest.map(at), "{detail}");
        assert_eq!(said.position, Some(surroundings.ahead.0 + 1));
        assert_eq!(said.ahead, Some(surroundings.ahead.1));
    }
}

#[test]
fn the_earliest_time_is_known_where_time_alone_decides() {
    let limited_until = |millis| Wait::RateLimited { upstream: "api".into(), until: Some(at(millis)) };
    let cooling = Task { next_eligible_at: Some(at(5_000)), ..open() };
    let outside = |waits: &[Wait]| Surroundings { outside: waits.to_vec(), ..Surroundings::default() };
    let ahead = Surroundings { ahead: (1, vec![id("x")]), ..outside(&[limited_until(7_000)]) };
    for (task, surroundings, earliest) in [
        (open(), Surroundings::default(), Some(1_000)),
        (cooling.clone(), outside(&[limited_until(9_000)]), Some(5_000)),
        (cooling, blocked(&["b"]), None),
        (open(), outside(&[limited_until(500)]), Some(1_000)),
        (open(), outside(&[limited_until(7_000), limited_until(6_000)]), Some(7_000)),
        (
            open(),
            outside(&[limited_until(7_000), Wait::WorktreesFull { ceiling: 1, kept: Vec::new() }]),
            None,
        ),
        (open(), ahead, Some(7_000)),
    ] {
        assert_eq!(explained(&task, &surroundings).earliest, earliest.map(at), "{surroundings:?}");
    }
}

#[test]
fn every_check_is_listed_with_its_verdict() {
    let names = |said: &Explanation| {
        let check = |check: &Check| format!("{}{}", if check.ok { "" } else { "!" }, check.check);
        said.checks.iter().map(check).collect::<Vec<_>>().join(" ")
    };
    let plain = explained(&open(), &Surroundings::default());
    assert_eq!(names(&plain), "status queue blockers cooldown order");
    assert_eq!(plain.checks[0].detail.as_deref(), Some("open"));
    let looped = Task {
        queue: "loops".into(),
        kind: Some("plan".into()),
        priority: None,
        parent: Some(id("p")),
        triggered_by: Some("spec.md".into()),
        artifact_present: true,
        host: Some("here".into()),
        ..open()
    };
    let fine = explained(&looped, &parent(Status::Done));
    assert_eq!(names(&fine), "status queue parent artifact blockers cooldown host ceiling order");
    assert!(fine.runnable && fine.freed_by.is_none());
    let terms = &fine.score.as_ref().unwrap().terms;
    assert_eq!(
        terms.iter().map(|term| term.name.as_ref()).collect::<Vec<_>>(),
        ["base", "age", "depth", "retries"]
    );
    assert_eq!(explained(&open(), &Surroundings::default()).score, None, "queue tasks has no scores");
    // Everything at once, each named; the first is what must be dealt with first.
    let worst =
        Task { status: Status::Paused, next_eligible_at: Some(at(5_000)), artifact_present: false, ..looped };
    let viewer = Viewer { queue_paused: true, host: Some("x".into()), runners: Some(vec![]) };
    let said = explained(&worst, &Surroundings { viewer, ..blocked(&["b"]) });
    assert_eq!(names(&said), "!status !queue !parent artifact !blockers !cooldown !host !runner");
    assert_eq!(said.freed_by.as_deref(), Some("rota task resume t"));
    assert_eq!(said.earliest, None);
}

#[test]
fn the_payload_is_the_contracts() {
    let said = explained(&open(), &Surroundings { ahead: (1, vec![id("x")]), ..Surroundings::default() });
    let ok = |check: &str| json!({"check": check, "ok": true});
    assert_eq!(
        serde_json::to_value(&said).unwrap(),
        json!({
            "id": "t", "queue": "tasks", "status": "open", "runnable": true,
            "checks": [
                {"check": "status", "ok": true, "detail": "open"}, ok("queue"), ok("blockers"), ok("cooldown"),
                {"check": "order", "ok": false, "detail": "it is number 2 in line, 'x' is next"},
            ],
            "obstacles": [],
            "waits": [{"reason": "outranked", "position": 2, "by": "x"}],
            "position": 2, "ahead": ["x"],
            "freedBy": "the tasks ahead being claimed",
            "earliest": "1970-01-01T00:00:01.000Z",
        })
    );
}

/// CONTRACTS 2: an expired lease is no obstacle where the next claim takes it back and may have the task.
#[test]
fn an_expired_lease_that_the_next_claim_takes_back() {
    let tasks = || QueuePolicy::built_in("tasks");
    for (what, policy, attempts, runnable) in [
        ("reclaim is auto", tasks(), 9, true),
        ("reclaim is explicit", QueuePolicy { reclaim: Reclaim::Explicit, ..tasks() }, 0, false),
        ("it would cool down", limited(None), 0, false),
        ("one attempt is left", QueuePolicy { backoff: None, ..limited(Some(3)) }, 1, true),
        ("it would park", QueuePolicy { backoff: None, ..limited(Some(3)) }, 2, false),
        (
            "lost ones do not count",
            QueuePolicy { counts: Counts { failed: true, lost: false }, ..limited(Some(1)) },
            0,
            true,
        ),
    ] {
        let task = Task { attempts, ..active(1_000) };
        let said = explain(&task, &policy, &Surroundings::default(), NOW);
        assert_eq!(said.runnable, runnable, "{what}");
        assert_eq!(said.obstacles.is_empty(), runnable, "{what}");
        let held = explain(&task, &policy, &Surroundings::default(), at(999));
        assert!(!held.runnable, "{what}: not before it expired");
    }
}

fn a_task() -> impl Strategy<Value = Task> {
    let time = || of(0_i64..2_000);
    let standing = (select(Status::ALL.to_vec()), 0_u32..4, time(), 0_i64..2_000);
    let tree = (any::<bool>(), of(0_u32..3), of(any::<bool>()));
    (standing, tree).prop_map(|((status, attempts, due, until), (has_parent, parent_iteration, artifact))| {
        Task {
            status,
            attempts,
            next_eligible_at: due.map(at),
            lease_expires_at: (status == Status::Active).then_some(at(until)),
            parent: has_parent.then(|| id("p")),
            parent_iteration,
            triggered_by: artifact.map(|_| "spec.md".to_owned()),
            artifact_present: artifact.unwrap_or(false),
            ..open()
        }
    })
}

fn facts() -> impl Strategy<Value = Facts> {
    let status = prop_oneof![2 => Just(Status::Done), 1 => select(Status::ALL.to_vec())];
    let parent = of((status, 0_u32..3).prop_map(|(status, iteration)| ParentFact { status, iteration }));
    (parent, prop_oneof![3 => Just(0_u32), 1 => 1_u32..3]).prop_map(|(parent, open_blockers)| Facts {
        parent,
        open_blockers,
        blocked_by: Vec::new(),
    })
}

fn rules() -> impl Strategy<Value = QueuePolicy> {
    let backoff =
        of((0_u64..3).prop_map(|base_ms| Backoff { base_ms, factor_thousandths: 2_000, cap_ms: 60 }));
    (of(1_u32..4), backoff, any::<(bool, bool)>(), any::<bool>()).prop_map(
        |(max_attempts, backoff, (failed, lost), auto)| QueuePolicy {
            max_attempts,
            backoff,
            counts: Counts { failed, lost },
            reclaim: if auto { Reclaim::Auto } else { Reclaim::Explicit },
            ..QueuePolicy::built_in("tasks")
        },
    )
}

/// Whether a claim could have the task: it is ready, or it is once the claim has taken an expired lease back. A wait
/// that lies ahead holds also then.
fn claim_could_have(task: &Task, facts: &Facts, rules: &QueuePolicy, now: UnixMillis) -> bool {
    let cooling = task.next_eligible_at.is_some_and(|due| due > now);
    if task.lease_expired(now) && rules.reclaim == Reclaim::Auto && !cooling {
        let reclaimed = apply(task, &Command::Lose, rules, now).unwrap().task;
        return Stage::of(&reclaimed, facts, now) == Stage::Ready;
    }
    Stage::of(task, facts, now) == Stage::Ready
}

proptest! {
    #![proptest_config(config(2_000))]

    /// The same code decides and explains: runnable if and only if a claim could have it.
    #[test]
    fn explaining_agrees_with_deciding(
        task in a_task(),
        facts in facts(),
        rules in rules(),
        now in 0_i64..2_000,
        rate_limited in of(0_i64..2_000),
    ) {
        let now = at(now);
        let outside = rate_limited.map(|until| Wait::RateLimited { upstream: "api".into(), until: Some(at(until)) });
        let surroundings = Surroundings {
            facts: facts.clone(),
            outside: outside.into_iter().collect(),
            ..Surroundings::default()
        };
        let said = explain(&task, &rules, &surroundings, now);
        prop_assert_eq!(said.runnable, claim_could_have(&task, &facts, &rules, now));
        prop_assert_eq!(said.runnable, said.obstacles.is_empty());
        prop_assert_eq!(said.freed_by.is_none(), said.obstacles.is_empty() && said.waits.is_empty());
        prop_assert_eq!(failed(&said).len(), said.obstacles.len() + said.waits.len());
        prop_assert_eq!(said.position.is_some(), said.runnable);
        // At the earliest time it is runnable indeed, and not a millisecond before.
        if let Some(earliest) = said.earliest.filter(|_| !said.runnable) {
            prop_assert!(claim_could_have(&task, &facts, &rules, earliest));
            prop_assert!(!claim_could_have(&task, &facts, &rules, earliest.plus_ms(-1)));
        }
    }
}
