//! C4: every pair of state and verb, what each step does to every field, how attempts end, who may end them.

use std::fmt::Write as _;

use expect_test::expect;
use rota_core::backoff::Backoff;
use rota_core::limits;
use rota_core::policy::Counts;
use rota_core::transition::{Applied, Command, FAILED_REASON, LOST_REASON, RateLimit, TABLE, Verb, apply};
use rota_core::{Caller, LeaseId, Outcome, QueuePolicy, Refusal, Status, Task, UnixMillis};

use crate::support::{NOW, apply_as_holder, at, command, id, lease, limited, task_in};

/// DESIGN 4, typed in a second time: which verb is allowed where. Columns as in `Status::ALL`.
const GRID: &str = "
            open active paused done failed parked invalidated deleted
Claim       x    .      .      .    .      .      .           .
Renew       .    x      .      .    .      .      .           .
Iterate     .    x      .      .    .      .      .           .
Yield       .    x      .      .    .      .      .           .
Done        .    x      .      .    .      .      .           .
Fail        .    x      .      .    .      .      .           .
Lose        .    x      .      .    .      .      .           .
RateLimit   .    x      .      .    .      .      .           .
Interrupt   .    x      .      .    .      .      .           .
Release     .    x      .      .    .      .      .           .
Exhaust     .    x      .      .    .      .      .           .
Park        x    x      x      .    x      .      .           .
Pause       x    x      .      .    .      .      .           .
Resume      .    .      x      .    .      .      .           .
Reset       .    .      .      .    x      x      x           .
Reiterate   .    .      .      x    x      x      x           .
Delete      x    x      x      x    x      x      x           .
Undelete    .    .      .      .    .      .      .           x
Cancel      x    x      x      .    .      x      .           .
Invalidate  x    x      x      .    .      x      .           .
Orphan      x    x      x      .    .      x      .           .
Override    x    x      .      .    .      .      .           .
";

#[test]
fn exactly_the_pairs_of_the_table_are_accepted() {
    let rows: Vec<Vec<&str>> = GRID.trim().lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[0], Status::ALL.map(Status::word), "the columns");
    assert_eq!(rows.len() - 1, TABLE.len(), "the rows");
    for (row, rule) in rows[1..].iter().zip(TABLE) {
        assert_eq!(row[0], format!("{:?}", rule.verb));
        for (cell, status) in row[1..].iter().zip(Status::ALL) {
            let task = task_in(status);
            let allowed = *cell == "x";
            assert_eq!(rule.from.contains(&status), allowed, "{:?} from {status} in TABLE", rule.verb);
            match apply_as_holder(&task, rule.verb) {
                Ok(applied) => check_accepted(&task, &applied, rule.verb, allowed),
                Err(refusal) => {
                    assert!(!allowed, "{:?} from {status}: {refusal}", rule.verb);
                    let (id, verb) = (task.id.clone(), rule.verb);
                    let wanted = match rule.from {
                        [Status::Active] => Refusal::NotActive { id, status },
                        _ => Refusal::WrongStatus { id, status, verb },
                    };
                    assert_eq!(refusal, wanted);
                }
            }
        }
    }
}

fn check_accepted(task: &Task, applied: &Applied, verb: Verb, allowed: bool) {
    let status = task.status;
    assert!(allowed, "{verb:?} from {status} was accepted");
    assert!(verb.rule().to.contains(&applied.task.status), "{verb:?} from {status}");
    assert_eq!(applied.verb, verb);
    assert_eq!(applied.task.updated_at, NOW, "{verb:?} from {status}");
    let outcome = verb.rule().outcome.filter(|_| status == Status::Active);
    assert_eq!(applied.outcome, outcome, "{verb:?} from {status}: an attempt ends only where one was");
    let belongs_to = match (verb, status) {
        (Verb::Claim, _) => Some(lease(8)),
        (_, Status::Active) => Some(lease(7)),
        _ => None,
    };
    assert_eq!(applied.lease, belongs_to, "{verb:?} from {status}");
}

/// What a step changed, but for `updatedAt`; times as `@millis`.
fn changed(task: &Task, applied: &Applied) -> String {
    let mut line = String::new();
    for (field, value) in task.changes_to(&applied.task) {
        let text = value.as_str();
        let time = text.trim_matches('"').parse::<UnixMillis>().ok();
        let shown = time.map_or_else(|| text.to_owned(), |time| format!("@{}", time.get()));
        if field != "updatedAt" {
            write!(line, " {field}={shown}").unwrap();
        }
    }
    line
}

#[test]
fn what_every_step_does_to_every_field() {
    let mut lines = String::new();
    for rule in TABLE {
        for status in rule.from {
            let task = task_in(*status);
            let applied = apply_as_holder(&task, rule.verb).unwrap();
            writeln!(lines, "{:?} {status}:{}", rule.verb, changed(&task, &applied)).unwrap();
        }
    }
    expect![[r#"
        Claim open: assignee="b" fence=8 leaseExpiresAt=@61000 startedAt=@1000 status="active"
        Renew active: leaseExpiresAt=@61000
        Iterate active: iteration=6 leaseExpiresAt=@601000 limitedInRow=0 startedAt=@1000 tries=5
        Yield active: assignee=null leaseExpiresAt=null limitedInRow=0 nextEligibleAt=null openSince=@1000 status="open"
        Done active: finishedAt=@1000 leaseExpiresAt=null limitedInRow=0 result={"commit":"c"} status="done"
        Fail active: assignee=null attempts=2 failReason="boom" leaseExpiresAt=null limitedInRow=0 nextEligibleAt=null openSince=@1000 status="open"
        Lose active: assignee=null attempts=2 failReason="lease expired (host did not complete)" leaseExpiresAt=null limitedInRow=0 nextEligibleAt=null openSince=@1000 status="open" tries=3
        RateLimit active: assignee=null leaseExpiresAt=null limitedInRow=3 nextEligibleAt=@21000 openSince=@1000 status="open" tries=3
        Interrupt active: assignee=null leaseExpiresAt=null nextEligibleAt=null openSince=@1000 status="open" tries=3
        Release active: assignee=null leaseExpiresAt=null limitedInRow=0 nextEligibleAt=null openSince=@1000 status="open" tries=3
        Exhaust active: assignee=null failReason="out of iterations" finishedAt=@1000 leaseExpiresAt=null limitedInRow=0 status="failed"
        Park open: limitedInRow=0 nextEligibleAt=null parkedReason="look at it" status="parked"
        Park active: assignee=null leaseExpiresAt=null limitedInRow=0 nextEligibleAt=null parkedReason="look at it" status="parked" tries=3
        Park paused: limitedInRow=0 nextEligibleAt=null parkedReason="look at it" status="parked"
        Park failed: finishedAt=null limitedInRow=0 nextEligibleAt=null parkedReason="look at it" status="parked"
        Pause open: limitedInRow=0 status="paused"
        Pause active: assignee=null leaseExpiresAt=null limitedInRow=0 status="paused" tries=3
        Resume paused: limitedInRow=0 openSince=@1000 status="open"
        Reset parked: attempts=0 failReason=null limitedInRow=0 nextEligibleAt=null openSince=@1000 parkedReason=null result=null status="open" tries=0
        Reset failed: attempts=0 failReason=null finishedAt=null limitedInRow=0 nextEligibleAt=null openSince=@1000 parkedReason=null result=null status="open" tries=0
        Reset invalidated: attempts=0 failReason=null finishedAt=null limitedInRow=0 nextEligibleAt=null openSince=@1000 parkedReason=null result=null status="open" tries=0
        Reiterate done: assignee=null attempts=0 failReason=null finishedAt=null limitedInRow=0 nextEligibleAt=null openSince=@1000 parkedReason=null result=null status="open" tries=0
        Reiterate parked: attempts=0 failReason=null limitedInRow=0 nextEligibleAt=null openSince=@1000 parkedReason=null result=null status="open" tries=0
        Reiterate failed: attempts=0 failReason=null finishedAt=null limitedInRow=0 nextEligibleAt=null openSince=@1000 parkedReason=null result=null status="open" tries=0
        Reiterate invalidated: attempts=0 failReason=null finishedAt=null limitedInRow=0 nextEligibleAt=null openSince=@1000 parkedReason=null result=null status="open" tries=0
        Delete open: finishedAt=@1000 limitedInRow=0 status="deleted"
        Delete active: assignee=null finishedAt=@1000 leaseExpiresAt=null limitedInRow=0 status="deleted"
        Delete paused: finishedAt=@1000 limitedInRow=0 status="deleted"
        Delete done: assignee=null finishedAt=@1000 limitedInRow=0 status="deleted"
        Delete failed: finishedAt=@1000 limitedInRow=0 status="deleted"
        Delete parked: finishedAt=@1000 limitedInRow=0 status="deleted"
        Delete invalidated: finishedAt=@1000 limitedInRow=0 status="deleted"
        Undelete deleted: finishedAt=null limitedInRow=0 openSince=@1000 parkedReason=null status="open"
        Cancel open: finishedAt=@1000 limitedInRow=0 status="invalidated"
        Cancel active: assignee=null finishedAt=@1000 leaseExpiresAt=null limitedInRow=0 status="invalidated"
        Cancel paused: finishedAt=@1000 limitedInRow=0 status="invalidated"
        Cancel parked: finishedAt=@1000 limitedInRow=0 status="invalidated"
        Invalidate open: failReason="parent moved on" finishedAt=@1000 limitedInRow=0 status="invalidated"
        Invalidate active: assignee=null failReason="parent moved on" finishedAt=@1000 leaseExpiresAt=null limitedInRow=0 status="invalidated"
        Invalidate paused: failReason="parent moved on" finishedAt=@1000 limitedInRow=0 status="invalidated"
        Invalidate parked: failReason="parent moved on" finishedAt=@1000 limitedInRow=0 status="invalidated"
        Orphan open: failReason="'p', above it, was deleted" finishedAt=@1000 limitedInRow=0 status="failed"
        Orphan active: assignee=null failReason="'p', above it, was deleted" finishedAt=@1000 leaseExpiresAt=null limitedInRow=0 status="failed"
        Orphan paused: failReason="'p', above it, was deleted" finishedAt=@1000 limitedInRow=0 status="failed"
        Orphan parked: failReason="'p', above it, was deleted" finishedAt=@1000 limitedInRow=0 status="failed"
        Override open: finishedAt=@1000 limitedInRow=0 result={"commit":"c"} status="done"
        Override active: finishedAt=@1000 leaseExpiresAt=null limitedInRow=0 result={"commit":"c"} status="done"
    "#]].assert_eq(&lines);
}

#[test]
fn refusals_say_what_was_asked_and_what_is_allowed() {
    for (verb, status, message) in [
        (Verb::Done, Status::Parked, "task 't' is not active (status: parked)"),
        (Verb::Renew, Status::Open, "task 't' is not active (status: open)"),
        (Verb::Lose, Status::Deleted, "task 't' is not active (status: deleted)"),
        (
            Verb::Reset,
            Status::Open,
            "task 't' cannot be reset (status: open); only parked, failed and invalidated tasks can",
        ),
        (Verb::Claim, Status::Done, "task 't' cannot be claimed (status: done); only open tasks can"),
        (
            Verb::Override,
            Status::Paused,
            "task 't' cannot be marked done (status: paused); only open and active tasks can",
        ),
    ] {
        let refusal = apply_as_holder(&task_in(status), verb).unwrap_err();
        assert_eq!(refusal.to_string(), message);
        assert_eq!(refusal.exit_code(), 1);
    }
}

/// Grants the task and ends the attempt with `end`, as the holder.
fn attempt(task: &Task, policy: &QueuePolicy, now: UnixMillis, end: impl Fn(Caller) -> Command) -> Applied {
    let grant = Command::Claim { agent: None, ttl_ms: Some(10) };
    let granted = apply(task, &grant, policy, now).unwrap();
    assert_eq!(granted.task.attempts, task.attempts, "P4: never counted at grant");
    apply(&granted.task, &end(Caller::lease(granted.lease.unwrap())), policy, now).unwrap()
}

/// How an attempt ends, given who holds it.
type End = fn(Caller) -> Command;

fn fail(caller: Caller) -> Command {
    Command::Fail { caller, reason: None, default_reason: FAILED_REASON }
}

fn fresh() -> Task {
    Task::new("default", id("t"), "runs", "T", at(0))
}

#[test]
fn runs_wait_longer_each_time() {
    let policy = limited(None);
    for end in [fail as End, |_| Command::Lose] {
        let mut task = fresh();
        let mut waits = Vec::new();
        for count in 1..=8 {
            let ended = attempt(&task, &policy, NOW, end);
            task = ended.task;
            assert_eq!((task.status, task.attempts), (Status::Open, count));
            waits.push((task.next_eligible_at.unwrap().get() - NOW.get()) / 1_000);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}

#[test]
fn runs_park_at_the_limit_with_the_reason() {
    let runs = QueuePolicy::built_in("runs");
    let boom = |caller| Command::Fail { caller, reason: Some("boom".into()), default_reason: FAILED_REASON };
    let cases: [(End, Outcome, &str, Option<&str>); 3] = [
        (fail, Outcome::Failed, "released as failed (attempt 3/3)", None),
        (boom, Outcome::Failed, "boom (attempt 3/3)", Some("boom")),
        (
            |_| Command::Lose,
            Outcome::Lost,
            "lease expired (host did not complete) (attempt 3/3)",
            Some(LOST_REASON),
        ),
    ];
    for (end, outcome, parked_reason, fail_reason) in cases {
        let mut task = fresh();
        for attempts in 1..=3 {
            let ended = attempt(&task, &runs, NOW, end);
            assert_eq!(ended.outcome, Some(outcome));
            task = ended.task;
            let status = if attempts < 3 { Status::Open } else { Status::Parked };
            assert_eq!((task.status, task.attempts), (status, attempts), "P4");
            assert_eq!(task.fail_reason.as_deref(), fail_reason);
        }
        assert_eq!(task.parked_reason.as_deref(), Some(parked_reason));
        assert_eq!((task.next_eligible_at, task.assignee, task.lease_expires_at), (None, None, None));
    }
}

#[test]
fn tasks_reopen_at_once_without_limit() {
    let tasks = QueuePolicy::built_in("tasks");
    let mut task = fresh();
    for attempts in 1..=100 {
        task = attempt(&task, &tasks, NOW, fail).task;
        assert_eq!((task.status, task.attempts, task.next_eligible_at), (Status::Open, attempts, None));
    }
}

#[test]
fn what_does_not_count_neither_waits_nor_parks() {
    let ends: [(End, Counts); 2] = [
        (fail, Counts { failed: false, lost: true }),
        (|_| Command::Lose, Counts { failed: true, lost: false }),
    ];
    for (end, counts) in ends {
        let policy = QueuePolicy { counts, ..limited(Some(1)) };
        let mut task = fresh();
        for _ in 0..50 {
            task = attempt(&task, &policy, NOW, end).task;
            assert_eq!((task.status, task.attempts, task.next_eligible_at), (Status::Open, 0, None));
        }
        assert_eq!(policy.lost_stays_claimable(0), !counts.lost);
    }
    // The other one still counts.
    let policy = QueuePolicy { counts: Counts { failed: false, lost: true }, ..limited(Some(1)) };
    assert_eq!(attempt(&fresh(), &policy, NOW, |_| Command::Lose).task.status, Status::Parked);
    let policy = QueuePolicy { counts: Counts { failed: true, lost: false }, ..limited(Some(1)) };
    assert_eq!(attempt(&fresh(), &policy, NOW, fail).task.status, Status::Parked);
}

fn rate_limit(blocked_until: Option<UnixMillis>) -> impl Fn(Caller) -> Command {
    limited_by(RateLimit { blocked_until, ..RateLimit::default() })
}

fn limited_by(limit: RateLimit) -> impl Fn(Caller) -> Command {
    move |caller| Command::RateLimit { caller, limit }
}

#[test]
fn rate_limits_wait_5_to_120_seconds_and_the_twentieth_parks() {
    let policy = limited(Some(1));
    let mut task = fresh();
    let mut waits = Vec::new();
    for in_row in 1..limits::RATE_LIMITED_IN_ROW {
        let ended = attempt(&task, &policy, NOW, rate_limit(None));
        assert_eq!(ended.outcome, Some(Outcome::RateLimited));
        task = ended.task;
        assert_eq!((task.status, task.attempts, task.limited_in_row), (Status::Open, 0, in_row));
        waits.push((task.next_eligible_at.unwrap().get() - NOW.get()) / 1_000);
    }
    assert_eq!(waits.len(), 19);
    assert_eq!(waits[..7], [5, 10, 20, 40, 80, 120, 120]);
    assert!(waits[7..].iter().all(|wait| *wait == 120));
    // While nobody's calls succeed it just waits.
    let waiting = attempt(&task, &policy, NOW, rate_limit(None)).task;
    assert_eq!((waiting.status, waiting.limited_in_row), (Status::Open, 20));
    let succeed = RateLimit { others_succeed: true, ..RateLimit::default() };
    let parked = attempt(&task, &policy, NOW, limited_by(succeed)).task;
    assert_eq!((parked.status, parked.attempts, parked.limited_in_row), (Status::Parked, 0, 20));
    let reason = "rate limited 20 times in a row while other calls succeeded";
    assert_eq!(parked.parked_reason.as_deref(), Some(reason));
    assert_eq!(parked.next_eligible_at, None);
}

#[test]
fn the_policy_says_how_long_a_limited_task_waits() {
    let backoff = Backoff { base_ms: 1_000, factor_thousandths: 2_000, cap_ms: 3_000 };
    let configured = RateLimit { backoff: Some(backoff), ..RateLimit::default() };
    let mut task = fresh();
    for wait in [1_000, 2_000, 3_000, 3_000] {
        task = attempt(&task, &limited(None), NOW, limited_by(configured)).task;
        assert_eq!(task.next_eligible_at, Some(NOW.plus_ms(wait)));
    }
}

#[test]
fn a_rate_limited_task_opens_at_the_blocks_end_but_not_too_early() {
    for (blocked_until, opens) in
        [(None, 6_000), (Some(0), 6_000), (Some(5_999), 6_000), (Some(6_001), 6_001)]
    {
        let task = attempt(&fresh(), &limited(None), NOW, rate_limit(blocked_until.map(at))).task;
        assert_eq!(task.next_eligible_at, Some(at(opens)), "{blocked_until:?}");
    }
}

#[test]
fn only_an_end_of_another_kind_breaks_the_row() {
    for (end, in_row) in [
        (Verb::Interrupt, 3),
        (Verb::Renew, 3),
        (Verb::RateLimit, 4),
        (Verb::Release, 0),
        (Verb::Fail, 0),
        (Verb::Lose, 0),
        (Verb::Pause, 0),
        (Verb::Done, 0),
    ] {
        let task = Task { limited_in_row: 3, ..task_in(Status::Active) };
        assert_eq!(apply_as_holder(&task, end).unwrap().task.limited_in_row, in_row, "{end:?}");
    }
    let open = Task { limited_in_row: 3, ..task_in(Status::Open) };
    assert_eq!(apply_as_holder(&open, Verb::Claim).unwrap().task.limited_in_row, 3);
}

/// The seven outcomes of DESIGN 4: which verb says it, whether it counts, where it leads.
#[test]
fn seven_outcomes() {
    for (verb, outcome, counted, to) in [
        (Verb::Done, Outcome::Done, false, Status::Done),
        (Verb::Fail, Outcome::Failed, true, Status::Open),
        (Verb::Lose, Outcome::Lost, true, Status::Open),
        (Verb::RateLimit, Outcome::RateLimited, false, Status::Open),
        (Verb::Interrupt, Outcome::Interrupted, false, Status::Open),
        (Verb::Release, Outcome::Released, false, Status::Open),
        (Verb::Yield, Outcome::Released, false, Status::Open),
        (Verb::Pause, Outcome::Released, false, Status::Paused),
        (Verb::Delete, Outcome::Released, false, Status::Deleted),
        (Verb::Exhaust, Outcome::Released, false, Status::Failed),
        (Verb::Override, Outcome::Released, false, Status::Done),
        (Verb::Park, Outcome::NeedsPerson, false, Status::Parked),
    ] {
        let task = task_in(Status::Active);
        let ended = apply_as_holder(&task, verb).unwrap();
        assert_eq!((ended.outcome, ended.task.status), (Some(outcome), to), "{verb:?}");
        assert_eq!(ended.task.attempts, task.attempts + u32::from(counted), "{verb:?}");
        assert_eq!(ended.task.lease(), None, "{verb:?}");
    }
}

/// P2.
#[test]
fn the_fence_grows_by_one_at_every_grant_and_never_otherwise() {
    for rule in TABLE {
        for status in rule.from {
            let task = task_in(*status);
            let applied = apply_as_holder(&task, rule.verb).unwrap();
            let grown = u64::from(rule.verb == Verb::Claim);
            assert_eq!(applied.task.fence.get(), 7 + grown, "{:?} from {status}", rule.verb);
        }
    }
    let mut task = fresh();
    for fence in 1..=5 {
        task = attempt(&task, &limited(None), NOW, fail).task;
        task = apply_as_holder(&apply_as_holder(&task, Verb::Park).unwrap().task, Verb::Reset).unwrap().task;
        assert_eq!((task.fence.get(), task.attempts), (fence, 0), "reset keeps the fence");
    }
}

#[test]
fn a_wait_survives_holding_back_but_not_a_reset() {
    for (away, back, kept) in [
        (Verb::Pause, Verb::Resume, true),
        (Verb::Delete, Verb::Undelete, true),
        (Verb::Park, Verb::Reset, false),
        (Verb::Cancel, Verb::Reset, false),
        (Verb::Cancel, Verb::Reiterate, false),
    ] {
        let task = Task { next_eligible_at: Some(at(9_999)), ..fresh() };
        let gone = apply_as_holder(&task, away).unwrap().task;
        let open = apply_as_holder(&gone, back).unwrap().task;
        assert_eq!(open.status, Status::Open);
        assert_eq!(open.next_eligible_at, kept.then_some(at(9_999)), "{away:?}, {back:?}");
    }
    // The wait stays on the row while it is leased, so an earlier `now` still sees it.
    let task = Task { next_eligible_at: Some(at(500)), ..fresh() };
    assert_eq!(apply_as_holder(&task, Verb::Claim).unwrap().task.next_eligible_at, Some(at(500)));
}

/// DESIGN 13.9: until it is reclaimed or granted again, the holder may still speak.
#[test]
fn a_late_holder_is_heard_until_the_lease_is_taken_back() {
    let policy = QueuePolicy::built_in("runs");
    let late = at(1_000_000);
    let task = task_in(Status::Active);
    assert!(task.lease_expired(at(2_000)) && !task.lease_expired(at(1_999)), "expired means <= now");
    let reclaimed = apply(&task, &Command::Lose, &policy, late).unwrap().task;
    let again = Command::Claim { agent: Some("b".into()), ttl_ms: Some(10) };
    let regranted = apply(&reclaimed, &again, &policy, late).unwrap().task;
    for verb in [Verb::Renew, Verb::Done, Verb::Fail, Verb::Release] {
        let late_command = command(verb, Caller::lease(lease(7)));
        assert!(apply(&task, &late_command, &policy, late).is_ok(), "{verb:?}");
        let refused = apply(&reclaimed, &late_command, &policy, late).unwrap_err();
        assert_eq!(refused, Refusal::NotActive { id: id("t"), status: Status::Open });
        let refused = apply(&regranted, &late_command, &policy, late).unwrap_err();
        assert_eq!(refused.to_string(), "lease 'lease-t-7' is not the current lease of task 't'");
        assert_eq!(refused.hint().unwrap(), "it is held by 'b' under lease-t-8 until 1970-01-01T00:16:40Z");
    }
}

/// DESIGN 13.18: the agent of a deleted task is told so.
#[test]
fn the_agent_of_a_deleted_task_is_told_so() {
    let deleted = apply_as_holder(&task_in(Status::Active), Verb::Delete).unwrap().task;
    let done = command(Verb::Done, Caller::lease(lease(7)));
    let refused = apply(&deleted, &done, &QueuePolicy::built_in("tasks"), NOW).unwrap_err();
    assert_eq!(refused.to_string(), "task 't' is not active (status: deleted)");
}

/// DESIGN 13.11: assignee, agent named, fence named; then the answer by default, where `requireHolder` is false, and
/// where the lease is required.
const HOLDERS: &str = "
a -  -  holder_required  ok           lease_required
a a  -  ok               ok           lease_required
a b  -  not_holder       not_holder   not_holder
a -  7  ok               ok           ok
a a  7  ok               ok           ok
a b  7  not_holder       not_holder   not_holder
a -  6  stale_lease      stale_lease  stale_lease
a a  6  stale_lease      stale_lease  stale_lease
a b  6  stale_lease      stale_lease  stale_lease
a -  8  stale_lease      stale_lease  stale_lease
- -  -  ok               ok           lease_required
- a  -  ok               ok           lease_required
- -  7  ok               ok           ok
- a  7  ok               ok           ok
- -  6  stale_lease      stale_lease  stale_lease
- a  6  stale_lease      stale_lease  stale_lease
";

const HOLDERS_VERBS: [Verb; 10] = [
    Verb::Renew,
    Verb::Iterate,
    Verb::Yield,
    Verb::Done,
    Verb::Fail,
    Verb::RateLimit,
    Verb::Interrupt,
    Verb::Release,
    Verb::Exhaust,
    Verb::Park,
];

#[test]
fn who_may_speak_for_a_lease() {
    let given = |word: &str| (word != "-").then(|| word.to_owned());
    for row in HOLDERS.trim().lines() {
        let [assignee, agent, fence, by_default, free, strict] =
            row.split_whitespace().collect::<Vec<_>>()[..]
        else {
            panic!("{row}")
        };
        let task = Task { assignee: given(assignee), ..task_in(Status::Active) };
        let named = given(fence).map(|fence| lease(fence.parse().unwrap()));
        let caller = Caller { agent: given(agent), lease: named };
        for (require_lease, require_holder, wanted) in
            [(false, true, by_default), (false, false, free), (true, true, strict), (true, false, strict)]
        {
            let policy = QueuePolicy { require_lease, require_holder, ..QueuePolicy::built_in("tasks") };
            for verb in HOLDERS_VERBS {
                let answer = apply(&task, &command(verb, caller.clone()), &policy, NOW);
                let code = answer.as_ref().map_or_else(Refusal::code, |_| "ok");
                // A person may park what an agent holds, without knowing its lease.
                let by_person = verb == Verb::Park && matches!(wanted, "lease_required" | "holder_required");
                assert_eq!(code, if by_person { "ok" } else { wanted }, "{verb:?}: {row}");
            }
        }
    }
}

#[test]
fn another_tasks_lease_is_stale_whatever_its_number() {
    let stranger = LeaseId { task: id("u"), ..lease(7) };
    let done = command(Verb::Done, Caller::lease(stranger));
    let refused = apply(&task_in(Status::Active), &done, &QueuePolicy::built_in("tasks"), NOW).unwrap_err();
    assert_eq!(refused.code(), "stale_lease");
}

#[test]
fn who_is_refused_learns_who_holds_it() {
    let policy = QueuePolicy::built_in("tasks");
    let refused = |task: &Task, caller| apply(task, &command(Verb::Done, caller), &policy, NOW).unwrap_err();
    let task = task_in(Status::Active);
    let by_agent = refused(&task, Caller::agent("b"));
    assert_eq!(by_agent.to_string(), "agent 'b' is not the assignee of task 't'");
    let by_lease = refused(&task, Caller::lease(lease(6)));
    for refusal in [by_agent, by_lease] {
        let hint = refusal.hint().unwrap();
        assert_eq!(hint, "it is held by 'a' under lease-t-7 until 1970-01-01T00:00:02Z");
    }
    let anonymous = Task { assignee: None, ..task };
    let hint = refused(&anonymous, Caller::lease(lease(6))).hint().unwrap();
    assert!(hint.starts_with("it is held by an agent without a name under lease-t-7"), "{hint}");
}

/// The verbs that a person, a planner or the daemon uses ask nobody.
#[test]
fn verbs_without_a_caller_need_no_lease() {
    let policy = QueuePolicy { require_lease: true, ..QueuePolicy::built_in("tasks") };
    for rule in TABLE.iter().filter(|rule| rule.from.contains(&Status::Active)) {
        let asks = HOLDERS_VERBS.contains(&rule.verb);
        let stranger = command(rule.verb, Caller::agent("stranger"));
        assert_eq!(stranger.caller().is_some(), asks, "{:?}", rule.verb);
        assert_eq!(
            apply(&task_in(Status::Active), &stranger, &policy, NOW).is_err(),
            asks,
            "{:?}",
            rule.verb
        );
    }
    // Where no lease is held there is nothing to name.
    for status in [Status::Open, Status::Paused, Status::Failed] {
        let park = command(Verb::Park, Caller::lease(lease(3)));
        assert!(apply(&task_in(status), &park, &policy, NOW).is_ok(), "{status}");
    }
}
