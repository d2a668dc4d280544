//! C5, C6: arithmetic at the edges, with overflow checks on, and shapes that nobody should build.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::select;
use rota_core::backoff::{AFTER_RATE_LIMIT, Backoff};
use rota_core::event::{Event, EventKind, fold};
use rota_core::explain::{Surroundings, explain};
use rota_core::graph::{Edges, child_depth, find_cycle};
use rota_core::obstacle::{Facts, Obstacle, ParentFact, Stage, obstacles};
use rota_core::plan_sync::{PlanScope, Stored, diff, read};
use rota_core::policy::ScorePolicy;
use rota_core::rank::{self, Rankable};
use rota_core::select::{Candidate, Room};
use rota_core::transition::{Command, TABLE, Verb, apply};
use rota_core::{Caller, Fence, QueuePolicy, Status, Task, TaskId, UnixMillis, limits};

use crate::support::{NOW, at, command, config, id, limited, task_in};

const INSTANTS: [UnixMillis; 5] =
    [UnixMillis::MIN, UnixMillis::new(-1), UnixMillis::new(0), UnixMillis::new(1), UnixMillis::MAX];

/// A score as large as a policy allows.
fn huge_score() -> QueuePolicy {
    let most = 1_000_000;
    let score = ScorePolicy {
        base: BTreeMap::new(),
        base_other: most,
        age_boost_per_minute: most,
        age_boost_max: most,
        depth_boost_per_level: most,
        retry_penalty_per_iteration: most,
        retry_penalty_max: most,
        starvation_guard_minutes: Some(u32::MAX),
    };
    QueuePolicy { score: Some(score), ..QueuePolicy::built_in("tasks") }
}

/// A task whose every number is as large as it gets.
fn huge_task(status: Status, stamp: UnixMillis) -> Task {
    Task {
        attempts: u32::MAX,
        tries: u32::MAX,
        iteration: u32::MAX,
        limited_in_row: u32::MAX,
        depth: u32::MAX,
        priority: Some(u32::MAX),
        fence: Fence::new(i64::MAX as u64),
        created_at: stamp,
        open_since: stamp,
        next_eligible_at: Some(stamp),
        lease_expires_at: (status == Status::Active).then_some(stamp),
        ..task_in(status)
    }
}

fn rules() -> [QueuePolicy; 4] {
    let steep = Backoff { base_ms: u64::MAX, factor_thousandths: u64::MAX, cap_ms: u64::MAX };
    [
        QueuePolicy::built_in("tasks"),
        limited(Some(u32::MAX)),
        QueuePolicy { backoff: Some(steep), max_attempts: None, ..limited(None) },
        QueuePolicy { lease_ttl_ms: u64::MAX, ..huge_score() },
    ]
}

/// C5: every step, at every edge of time and of every count, ends without overflow and stays in range.
#[test]
fn every_step_at_every_edge() {
    for now in INSTANTS {
        for stamp in INSTANTS {
            for policy in rules() {
                for rule in TABLE {
                    for status in rule.from {
                        let task = huge_task(*status, stamp);
                        let caller = Caller { agent: None, lease: task.lease() };
                        let stepped = apply(&task, &command(rule.verb, caller), &policy, now).unwrap().task;
                        let times =
                            [stepped.lease_expires_at, stepped.next_eligible_at, Some(stepped.open_since)];
                        for time in times.into_iter().flatten() {
                            assert!((UnixMillis::MIN..=UnixMillis::MAX).contains(&time), "{:?}", rule.verb);
                        }
                        let starts_over = matches!(rule.verb, Verb::Reset | Verb::Reiterate);
                        assert_eq!(stepped.attempts, if starts_over { 0 } else { u32::MAX });
                    }
                }
            }
        }
    }
}

#[test]
fn a_lease_of_any_length_ends_within_time() {
    let policy = QueuePolicy { lease_ttl_ms: u64::MAX, ..QueuePolicy::built_in("tasks") };
    for (now, ttl_ms, until) in [
        (at(0), Some(i64::MAX), UnixMillis::MAX),
        (UnixMillis::MAX, Some(1), UnixMillis::MAX),
        (UnixMillis::MIN, Some(0), UnixMillis::MIN),
        (UnixMillis::MIN, Some(i64::MAX), UnixMillis::MAX),
        (at(0), None, UnixMillis::MAX),
        (at(5), Some(0), at(5)),
    ] {
        let claim = Command::Claim { agent: None, ttl_ms };
        let task = apply(&task_in(Status::Open), &claim, &policy, now).unwrap().task;
        assert_eq!(task.lease_expires_at, Some(until));
        let renew = Command::Renew { caller: Caller::default(), ttl_ms };
        assert_eq!(apply(&task, &renew, &policy, now).unwrap().task.lease_expires_at, Some(until));
        assert_eq!(task.lease_expired(now), until <= now, "a lease of no length has expired at once");
    }
}

#[test]
fn a_lease_without_a_length_lasts_as_the_policy_says() {
    for (queue, until) in [("tasks", 601_000), ("runs", 301_000), ("loops", 121_000), ("issues", 1_801_000)] {
        let policy = QueuePolicy::built_in(queue);
        let claim = Command::Claim { agent: None, ttl_ms: None };
        let task = apply(&task_in(Status::Open), &claim, &policy, NOW).unwrap().task;
        assert_eq!(task.lease_expires_at, Some(at(until)), "{queue}");
        let renew = Command::Renew { caller: Caller::lease(task.lease().unwrap()), ttl_ms: None };
        let renewed = apply(&task, &renew, &policy, at(2_000)).unwrap().task;
        assert_eq!(renewed.lease_expires_at, Some(at(until + 1_000)), "{queue}");
    }
}

/// C5: ages clamp at zero, so a stamp from the future is only young.
#[test]
fn a_stamp_from_the_future_is_only_young() {
    let policy = QueuePolicy::built_in("loops");
    for now in INSTANTS {
        for created in INSTANTS {
            let task = Task { open_since: created, ..Task::new("s", id("t"), "loops", "T", created) };
            let score = rank::score(&task, &policy, now).unwrap();
            let age = score.terms.iter().find(|term| term.name == "age").unwrap().value;
            assert!((0..=50).contains(&age));
            assert_eq!(age == 0, now.age_ms_of(created) < 60_000, "{now} {created}");
            assert_eq!(
                Stage::of(&task, &Facts::default(), now),
                Stage::Ready,
                "only waits and leases hold back"
            );
        }
    }
}

/// C5: ranking, choosing and explaining at the edges.
#[test]
fn ranking_at_every_edge() {
    for now in INSTANTS {
        for stamp in INSTANTS {
            for policy in rules() {
                let task = huge_task(Status::Open, stamp);
                let rankable = Rankable::of(&task, &policy);
                assert_eq!(rank::key(&rankable, &policy, now), rank::key(&rankable, &policy, now));
                let said = explain(&task, &policy, &Surroundings::default(), now);
                assert_eq!(said.runnable, stamp <= now);
                let total = said.score.map_or(0, |score| score.total);
                let in_parts = rankable.static_score;
                assert!(total >= in_parts, "age only adds");
            }
        }
    }
    let mut room =
        Room::new(&QueuePolicy::built_in("runs"), [("a".into(), u32::MAX), ("b".into(), 1)].into());
    assert_eq!((room.active(), room.left()), (u32::MAX, Some(0)));
    let candidate =
        Candidate { id: id("t"), kind: None, rankable: Rankable::of(&task_in(Status::Open), &rules()[0]) };
    let none = rota_core::select::select(vec![candidate], &mut room, &rules()[0], NOW, usize::MAX);
    assert!(none.is_empty());
}

/// The journal takes every instant there is.
#[test]
fn the_journal_holds_the_ends_of_time() {
    for stamp in INSTANTS {
        let task = Task { events: 1, ..huge_task(Status::Active, stamp) };
        let folded = fold(None, &Event::of_change(EventKind::Created, None, &task)).unwrap();
        assert_eq!(folded.task, task);
    }
}

#[test]
fn waits_at_the_edges() {
    let backoff = |base_ms, factor_thousandths, cap_ms| Backoff { base_ms, factor_thousandths, cap_ms };
    for (backoff, attempts, wait) in [
        (backoff(1_000, 2_000, 60_000), 0, 0),
        (backoff(1_000, 2_000, 60_000), u32::MAX, 60_000),
        (backoff(0, u64::MAX, u64::MAX), u32::MAX, 0),
        (backoff(1, 1_000, u64::MAX), u32::MAX, 1),
        (backoff(5, 2_000, 0), 3, 0),
        (backoff(u64::MAX, u64::MAX, u64::MAX), u32::MAX, i64::MAX),
        (backoff(1, 0, 10), 7, 1),
        // Would wrap to exactly nothing.
        (backoff(1 << 62, 1 << 63, u64::MAX), 2, i64::MAX),
    ] {
        assert_eq!(backoff.after(attempts), wait, "{backoff:?} after {attempts}");
    }
    assert_eq!((AFTER_RATE_LIMIT.after(0), AFTER_RATE_LIMIT.after(u32::MAX)), (0, 120_000));
}

/// C6: a task that is its own parent waits for itself, and says so.
#[test]
fn a_task_that_is_its_own_parent() {
    let task = Task { parent: Some(id("t")), ..Task::new("s", id("t"), "loops", "T", at(0)) };
    let facts = Facts { parent: Some(ParentFact { status: task.status, iteration: 0 }), ..Facts::default() };
    let wanted = Obstacle::ParentNotDone { parent: id("t"), status: Status::Open };
    assert_eq!(obstacles(&task, &facts, NOW), [wanted]);
}

/// C6, P7: only done and deleted satisfy an edge, only done a child; what is missing satisfies nothing.
#[test]
fn what_satisfies_whom() {
    let child = Task { parent: Some(id("p")), ..Task::new("s", id("t"), "loops", "T", at(0)) };
    assert_eq!(Stage::of(&child, &Facts::default(), NOW), Stage::Obstructed);
    for status in Status::ALL {
        assert_eq!(status.satisfies_edge(), matches!(status, Status::Done | Status::Deleted), "{status}");
        let facts = Facts { parent: Some(ParentFact { status, iteration: 0 }), ..Facts::default() };
        assert_eq!(Stage::of(&child, &facts, NOW) == Stage::Ready, status == Status::Done, "{status}");
    }
}

/// C6: as many blockers as are allowed, read, compared and changed.
#[test]
fn as_many_blockers_as_allowed() {
    let names: Vec<TaskId> = (0..limits::BLOCKERS).map(|n| id(&format!("b{n}"))).collect();
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let line = |deps: &[String]| format!(r#"{{"id":"t","t":"T","deps":[{}]}}"#, deps.join(","));
    let mut stored = Stored::default();
    for name in names.iter().chain([&id("t")]) {
        let task = Task::new("s", name.clone(), "tasks", "T", at(0));
        stored.tasks.insert(name.clone(), (task, BTreeSet::new()));
    }
    let scope = PlanScope { scope: "s", queue: "tasks", default_priority: 2, specs: None };
    let changes = |stored: &Stored, deps: &[String]| {
        let lines = read(line(deps).as_bytes()).unwrap().lines;
        let update = diff(&lines, stored, &scope, NOW).unwrap().update;
        update.first().map_or((0, 0), |change| (change.add.len(), change.remove.len()))
    };
    assert_eq!(changes(&stored, &quoted), (limits::BLOCKERS, 0));
    stored.tasks.get_mut(&id("t")).unwrap().1 = names.iter().cloned().collect();
    assert_eq!(changes(&stored, &quoted), (0, 0));
    assert_eq!(changes(&stored, &quoted[..10_000]), (0, limits::BLOCKERS - 10_000));
    let edges: Edges = [(id("t"), names)].into();
    assert_eq!(find_cycle(&edges), None);
}

#[test]
fn the_hierarchy_ends_at_its_limit() {
    let mut depth = 0;
    while let Ok(below) = child_depth(&id("t"), depth) {
        assert_eq!(below, depth + 1);
        depth = below;
    }
    assert_eq!(depth, limits::DEPTH);
    assert_eq!(child_depth(&id("t"), 10_000).unwrap_err().code(), "too_deep");
}

proptest! {
    #![proptest_config(config(2_000))]

    /// C5: time never wraps, whatever is added to it, and reads back from its text.
    #[test]
    fn time_stays_in_range(start: i64, plus: i64) {
        let (start, later) = (at(start), at(start).plus_ms(plus));
        prop_assert!((UnixMillis::MIN..=UnixMillis::MAX).contains(&later));
        prop_assert!((plus >= 0 && later >= start) || (plus < 0 && later <= start));
        prop_assert!(later.age_ms_of(start) >= 0);
        prop_assert_eq!(later.to_string().parse::<UnixMillis>(), Ok(later));
    }

    /// C5: a task never waits less for having failed more often, however often that was.
    #[test]
    fn more_attempts_never_wait_less(attempts in select(vec![0, 1, 2, 30, 31, 64, u32::MAX - 1]), base: u64, factor in 1_000_u64.., cap: u64) {
        let backoff = Some(Backoff { base_ms: base, factor_thousandths: factor, cap_ms: cap });
        let policy = QueuePolicy { backoff, ..QueuePolicy::built_in("tasks") };
        let due = |attempts| {
            let task = Task { attempts, ..task_in(Status::Active) };
            apply(&task, &Command::Lose, &policy, NOW).unwrap().task.next_eligible_at.unwrap_or(NOW)
        };
        prop_assert!(due(attempts) <= due(attempts + 1));
    }
}
