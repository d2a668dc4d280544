//! Expired leases, attempts and ceilings (P3, P4, P6).

use rota_core::obstacle::{Obstacle, Reason};
use rota_core::policy::Counts;
use rota_core::transition::{Command, LOST_REASON, RateLimit};
use rota_core::{Policy, Refusal, Status, UnixMillis};

use crate::lab::{at, claim, claim_by_id, claim_of, done, fail, held, holder, id, in_queue, new, of_kind};
use crate::{Lab, Subject};
use rota_store::intents::add::NewTask;
use rota_store::intents::claim::Claim;
use rota_store::intents::policy::{PauseQueue, PublishPolicy};

/// P4: a lost attempt counts, cools down 1, 2, 4 s, and this claim does not get it.
pub fn a_lost_attempt_is_counted_and_backs_off<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(
        at(0),
        r#"{"queues":{"tasks":{"leaseTtlMs":10000,"backoff":{"baseMs":1000,"factor":2,"capMs":3000}}}}"#,
    );
    lab.add(at(0), &[new("a")]);
    let mut now = 0;
    for (attempts, wait) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
        assert_eq!(lab.claim(at(now), 1), ["a"]);
        assert_eq!(lab.claim(at(now + 9), 1), Vec::<String>::new(), "still held");
        now += 10;
        assert_eq!(lab.claim(at(now), 1), Vec::<String>::new(), "taken back, cooling down");
        let task = lab.task("a");
        assert_eq!((task.status, task.attempts), (Status::Open, attempts));
        assert_eq!((task.next_eligible_at, task.assignee.clone()), (Some(at(now + wait)), None));
        assert_eq!(task.fail_reason.as_deref(), Some(LOST_REASON));
        lab.check();
        assert_eq!(lab.claim(at(now + wait).plus_ms(-1), 1), Vec::<String>::new());
        now += wait;
    }
    assert_eq!(lab.claim(at(now), 1), ["a"]);
    assert_eq!(lab.task("a").ready_at(), at(now), "runnable since it had cooled down");
    lab.check();
}

/// P4: at the limit the task parks with its reason; no claim brings it back, only reset.
pub fn attempts_run_out_and_only_reset_brings_back<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"tasks":{"maxAttempts":2,"leaseTtlMs":1000}}}"#);
    lab.add(at(0), &[new("lost"), new("failed")]);
    let (lost, failed) = (lab.take(at(0), "lost"), lab.take(at(0), "failed"));
    assert_eq!((lost.attempts, failed.attempts), (0, 0), "never counted at grant");
    lab.must(at(0), "failed", fail(holder(&failed)));
    assert_eq!(lab.claim(at(1), 9), ["lost", "failed"]);
    let caller = held("failed", 2);
    let reason = Some("it broke".to_owned());
    let parked = lab.must(at(1), "failed", Command::Fail { caller, reason, default_reason: "-" });
    assert_eq!(parked.parked_reason.as_deref(), Some("it broke (attempt 2/2)"));
    assert_eq!(lab.reclaim(at(2), "tasks"), ["lost"]);
    let parked = lab.task("lost");
    assert_eq!(parked.parked_reason.as_deref(), Some("lease expired (host did not complete) (attempt 2/2)"));
    assert_eq!(lab.claim(UnixMillis::MAX, 9), Vec::<String>::new());
    let refused = lab.step(at(3), "lost", Command::Resume).unwrap_err();
    assert!(matches!(refused, Refusal::WrongStatus { status: Status::Parked, .. }));
    let reset = lab.must(at(4), "lost", Command::Reset);
    assert_eq!((reset.attempts, reset.fence.get(), reset.parked_reason), (0, 2, None));
    assert_eq!(lab.claim(at(4), 9), ["lost"]);
    lab.check();
}

/// P6: a claim by id takes the task's own expired lease back also where it must then wait, so that the wait has a start
/// and an end.
pub fn a_refused_claim_by_id_takes_its_lease_back<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"tasks":{"backoff":{"baseMs":60000,"factor":2,"capMs":60000}}}}"#);
    lab.add(at(0), &[new("a")]);
    lab.take(at(0), "a");
    let reasons = |now| match lab.refused(&claim_by_id(now, "a")) {
        Refusal::NotEligible { reasons, .. } => reasons,
        other => panic!("{other:?}"),
    };
    for now in [at(600), at(630)] {
        assert_eq!(reasons(now), [Reason::Obstacle(Obstacle::CoolingDown { until: at(660) })]);
        lab.check();
    }
    assert_eq!((lab.task("a").status, lab.task("a").attempts), (Status::Open, 1));
    assert_eq!(lab.take(at(660), "a").fence.get(), 2);
    lab.check();
}

/// DESIGN 13.12: `counts.lost: false` reopens without counting, backoff or limit; `counts.failed` alike.
pub fn counts_may_be_turned_off<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a")]);
    for (lost, failed) in [(false, true), (true, false)] {
        let mut policy = Policy::default();
        let queue = policy.queues.get_mut("tasks").unwrap();
        (queue.counts, queue.max_attempts) = (Counts { failed, lost }, Some(5));
        lab.ok(&PublishPolicy { call: lab.call(at(0)), policy, based_on: None });
        let before = lab.task("a").attempts;
        lab.ok(&Claim { ttl_ms: Some(0), ..claim(at(0), 1) });
        lab.reclaim(at(1), "tasks");
        assert_eq!(lab.task("a").attempts, before + u32::from(lost));
        let task = lab.take(at(2), "a");
        lab.must(at(2), "a", fail(holder(&task)));
        assert_eq!(lab.task("a").attempts, before + 1);
        lab.check();
    }
}

/// Queue `runs`: only an explicit reclaim takes expired leases back, oldest first.
pub fn explicit_reclaim_leaves_expired_leases_alone<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"runs":{"maxConcurrent":2}}}"#);
    lab.add(at(0), &[in_queue("a", "runs"), in_queue("b", "runs"), in_queue("c", "runs")]);
    lab.ok(&Claim { ttl_ms: Some(20_000), ..claim_of("runs", at(0), 1) });
    lab.ok(&Claim { ttl_ms: Some(10_000), ..claim_of("runs", at(0), 1) });
    assert_eq!(lab.claimed(&claim_of("runs", at(99), 9)), Vec::<String>::new());
    assert!(matches!(lab.refused(&claim_by_id(at(99), "a")), Refusal::NotEligible { .. }));
    assert_eq!(lab.task("a").status, Status::Active);
    assert_eq!(lab.reclaim(at(15), "runs"), ["b"]);
    assert_eq!(lab.reclaim(at(99), "runs"), ["a"]);
    assert_eq!(lab.reclaim(at(99), "runs"), Vec::<String>::new());
    assert_eq!(lab.claimed(&claim_of("runs", at(99), 9)), ["b", "c"]);
    assert!(matches!(lab.step(at(99), "a", done(held("a", 1))), Err(Refusal::LeaseLost { .. })));
    lab.check();
}

/// P3, DESIGN 13.8: an expired lease takes its place until it is reclaimed.
pub fn a_ceiling_counts_expired_leases_until_reclaimed<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[in_queue("a", "runs"), in_queue("b", "runs")]);
    assert_eq!(lab.claimed(&claim_of("runs", at(0), 9)), ["a"]);
    for now in [1, 300, 9_999] {
        assert_eq!(lab.claimed(&claim_of("runs", at(now), 9)), Vec::<String>::new());
    }
    let Refusal::NotEligible { reasons, .. } = lab.refused(&claim_by_id(at(9_999), "b")) else {
        panic!("it is full")
    };
    assert_eq!(reasons.len(), 1);
    lab.reclaim(at(9_999), "runs");
    assert_eq!(lab.claimed(&claim_of("runs", at(9_999), 9)), ["b"]);
    lab.check();
}

/// P3: whatever is settled, lost, renewed or claimed, neither ceiling is exceeded at any commit.
pub fn ceilings_per_queue_and_kind_are_never_exceeded<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"tasks":{"maxConcurrent":4,"perKind":{"x":2},"leaseTtlMs":5000}}}"#);
    let kinds = ["x", "x", "x", "y"];
    let tasks = (0..40).map(|number| of_kind(&format!("t{number:02}"), "tasks", kinds[number % 4]));
    lab.add(at(0), &tasks.collect::<Vec<_>>());
    for now in 0..60 {
        lab.claim(at(now), usize::try_from(now % 5).unwrap());
        let picture = lab.picture(at(now));
        let active: Vec<_> =
            picture.rows.values().map(|row| &row.task).filter(|task| task.status == Status::Active).collect();
        let of_x = active.iter().filter(|task| task.kind.as_deref() == Some("x")).count();
        assert!(active.len() <= 4 && of_x <= 2, "{} active, {of_x} of kind x", active.len());
        if let Some(task) = active.iter().filter(|_| now % 3 != 0).max_by_key(|task| task.seq) {
            lab.must(at(now), task.id.as_str(), done(holder(task)));
        }
    }
    lab.check();
}

/// A paused queue grants nothing, also by id, and still takes expired leases back.
pub fn a_paused_queue_grants_nothing<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), new("b")]);
    lab.take(at(0), "a");
    let pause = |paused| PauseQueue { call: lab.call(at(1)), queue: "tasks".into(), paused };
    assert!(lab.ok(&pause(true)).paused);
    lab.ok(&pause(true));
    assert_eq!(lab.claim(at(601), 9), Vec::<String>::new());
    assert_eq!(lab.task("a").status, Status::Open);
    assert!(matches!(lab.refused(&claim_by_id(at(601), "b")), Refusal::NotEligible { .. }));
    lab.check();
    lab.ok(&pause(false));
    assert_eq!(lab.claim(at(602), 9), ["a", "b"]);
    // A queue that only the policy names can be paused too.
    lab.ok(&PauseQueue { queue: "issues".into(), ..pause(true) });
    lab.add(at(603), &[in_queue("i", "issues")]);
    assert_eq!(lab.claimed(&claim_of("issues", at(603), 1)), Vec::<String>::new());
    assert!(matches!(
        lab.refused(&PauseQueue { queue: "x".into(), ..pause(true) }),
        Refusal::UnknownQueue { .. }
    ));
    lab.check();
}

/// DESIGN 6: `--now` may lie before any stored time; only waits and leases hold a task back.
pub fn a_now_before_everything_stored<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(1_000), r#"{"queues":{"tasks":{"backoff":{"baseMs":1000,"factor":2,"capMs":60000}}}}"#);
    lab.add(at(1_000), &[new("a"), new("b"), of_kind("l", "loops", "plan")]);
    let waits = lab.take(at(1_000), "b");
    lab.must(at(1_000), "b", fail(holder(&waits)));
    // Let in by a later now, held back again for an earlier one.
    assert_eq!(lab.claimed(&Claim { limit: 1, ..claim(at(2_000), 1) }), ["a"]);
    lab.must(at(2_000), "a", Command::Release { caller: held("a", 1) });
    assert_eq!(lab.claim(at(1_000), 9), ["a"], "b cools down until 1001");
    assert_eq!(lab.claim(at(1_000), 1), Vec::<String>::new(), "also where one is wanted");
    lab.check();
    assert_eq!(lab.claimed(&claim_of("loops", at(0), 9)), ["l"], "its age is 0");
    assert_eq!(lab.reclaim(at(0), "tasks"), Vec::<String>::new());
    lab.must(at(0), "a", fail(held("a", 2)));
    let task = lab.task("a");
    assert_eq!((task.next_eligible_at, task.open_since), (Some(at(1)), at(1_000)));
    assert_eq!((task.updated_at, task.created_at), (at(0), at(1_000)));
    assert_eq!(lab.claim(at(1), 9), ["a"]);
    assert_eq!(lab.claim(UnixMillis::MIN, 9), Vec::<String>::new());
    assert_eq!(lab.claim(at(1_001), 9), ["b"], "the lease on a ran out in the meantime: it cools down");
    assert_eq!(lab.task("a").next_eligible_at, Some(at(1_003)), "after its second attempt");
    lab.check();
}

/// River#1318: more expired leases than are taken back at once; all of them come back, oldest first.
pub fn more_expired_leases_than_a_batch<S: Subject>(subject: &S) {
    const MANY: usize = 1_101;
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"tasks":{"maxAttempts":1}}}"#);
    lab.add(at(0), &(0..MANY).map(|number| new(&format!("t{number:04}"))).collect::<Vec<_>>());
    assert_eq!(lab.ok(&claim(at(0), MANY)).len(), MANY);
    assert_eq!(lab.claim(at(600), 1), Vec::<String>::new(), "all of them parked");
    let picture = lab.picture(at(600));
    assert!(picture.rows.values().all(|row| row.task.status == Status::Parked));
    assert_eq!(picture.queues[0].active.len(), 0);
}

/// DESIGN 2: everything that is due enters before the choice, however many there are.
pub fn more_cooling_tasks_than_a_batch<S: Subject>(subject: &S) {
    const MANY: u32 = 1_101;
    let lab = Lab::new(subject);
    // The most urgent one is the last to be due.
    let task = |number: u32| NewTask {
        not_before: Some(at(i64::from(number))),
        ..crate::lab::urgent(&format!("t{number:04}"), MANY - number)
    };
    lab.add(at(-1), &(0..MANY).map(task).collect::<Vec<_>>());
    assert_eq!(lab.claim(at(-1), 9), Vec::<String>::new());
    assert_eq!(lab.claim(at(500), 1), ["t0500"]);
    assert_eq!(lab.claim(at(9_999), 2), ["t1100", "t1099"]);
}

/// DESIGN 4: rate-limited ends count no attempt, wait 5 s doubling to 120 s or for the block, and park at 20 if others
/// succeed meanwhile.
pub fn rate_limited_ends_wait_and_park<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a")]);
    let mut now = 0;
    for (number, wait) in (1..20).zip([5, 10, 20, 40, 80].into_iter().chain(std::iter::repeat(120))) {
        let caller = holder(&lab.take(at(now), "a"));
        let blocked_until = (number == 3).then(|| at(now + 77));
        let wait = if number == 3 { 77 } else { wait };
        let limit = RateLimit { blocked_until, ..RateLimit::default() };
        let task = lab.must(at(now), "a", Command::RateLimit { caller, limit });
        assert_eq!((task.attempts, task.limited_in_row), (0, number));
        assert_eq!(task.next_eligible_at, Some(at(now + wait)));
        now += wait;
    }
    let caller = holder(&lab.take(at(now), "a"));
    let limit = RateLimit { others_succeed: true, ..RateLimit::default() };
    let task = lab.must(at(now), "a", Command::RateLimit { caller, limit });
    assert_eq!((task.status, task.attempts), (Status::Parked, 0));
    assert_eq!(lab.step(at(now), "x", Command::Reset), Err(Refusal::TaskNotFound { id: id("x") }));
    lab.check();
}
