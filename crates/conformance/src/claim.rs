//! Who is chosen, and who may have it (P3, P5, P6).

use async_trait::async_trait;
use rota_core::event::{Event, EventKind};
use rota_core::obstacle::{Facts, Obstacle, Reason, Stage, Wait};
use rota_core::rank;
use rota_core::transition::Command;
use rota_core::{Json, Refusal, Task, TaskId};

use crate::lab::{
    SCOPE, after, at, claim, claim_by_id, claim_of, done, held, holder, id, ids, in_queue, new, of_kind,
    specs, urgent,
};
use crate::{Lab, Subject};
use rota_store::Intent;
use rota_store::Outcome;
use rota_store::intents::add::{NewPriority, NewTask};
use rota_store::intents::claim::{Claim, ClaimById, Wanted};
use rota_store::intents::default_policy;
use rota_store::{AnyTx, Standing, Tx};

/// Changes fields that no verb changes yet: where a loop's folders are, how often it was tried, what it waits for.
#[derive(Clone, Debug)]
pub struct Amend {
    /// Which task; it must have neither parent nor blockers.
    pub id: TaskId,
    /// The new host.
    pub host: Option<String>,
    /// The new number of tries.
    pub tries: u32,
    /// The artifact it waits for, and whether it is there.
    pub artifact: Option<(String, bool)>,
}

#[async_trait]
impl Intent for Amend {
    type Output = Task;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Task> {
        let row = tx.task(SCOPE, &self.id).await?.unwrap();
        let mut next = row.task.clone();
        (next.host, next.tries, next.events) = (self.host.clone(), self.tries, row.task.events + 1);
        next.triggered_by = self.artifact.as_ref().map(|(path, _)| path.clone());
        next.artifact_present = self.artifact.as_ref().is_some_and(|(_, present)| *present);
        let published = tx.policy(SCOPE).await?.unwrap_or_else(default_policy);
        let policy = published.policy.queue(&next.queue);
        let guard = policy.score.as_ref().and_then(|score| score.starvation_guard_minutes);
        let standing = Standing {
            open_blockers: row.open_blockers,
            stage: Stage::of(&next, &Facts::default(), next.updated_at),
            static_score: rank::static_score(&next, policy),
            guarded: guard.is_some(),
            bucketed: policy.is_bucketed(),
        };
        tx.update(&row.task, &next, &standing).await?;
        tx.append(&Event::of_change(EventKind::Edited, Some(&row.task), &next)).await?;
        Ok(next)
    }
}

/// C1: lower priority first, then the older, then the one added first; unset sorts as 2.
pub fn order_is_priority_then_age_then_insertion<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(9), &[urgent("late", 1)]);
    lab.add(at(5), &[urgent("first", 1), urgent("second", 1)]);
    lab.add(at(1), &[NewTask { priority: NewPriority::Unset, ..new("unset") }, urgent("low", 3)]);
    lab.add(at(99), &[urgent("critical", 0), urgent("normal", 2), urgent("huge", u32::MAX)]);
    let order = ["critical", "first", "second", "late", "unset", "normal", "low", "huge"];
    lab.check();
    assert_eq!(lab.claim(at(100), 99), order);
    lab.check();
}

/// C1 of 000 on stores: scores by kind, depth, age and tries; after 60 minutes the longest waiting first.
pub fn scores_and_the_guard_decide_inside_a_priority<S: Subject>(subject: &S) {
    let minute = |number: i64| at(number * 60);
    let lab = Lab::new(subject);
    let one = |now, name: &str, kind: &str| lab.add(now, &[of_kind(name, "loops", kind)]);
    one(minute(0), "plan", "plan");
    one(minute(1), "plan2", "plan");
    one(minute(30), "other", "whatever");
    one(minute(49), "ralph", "ralph");
    one(minute(50), "tired", "ralph");
    one(minute(50), "waits", "ralph");
    lab.ok(&Amend { id: id("tired"), host: None, tries: 9, artifact: None });
    lab.ok(&Amend { id: id("waits"), host: None, tries: 0, artifact: Some(("out.md".into(), false)) });
    lab.check();
    for (now, wanted) in [
        (minute(50), vec!["ralph", "plan", "plan2", "other", "tired"]),
        (minute(60), vec!["ralph", "plan", "plan2", "other", "tired"]),
        (minute(61), vec!["plan", "ralph", "other", "plan2", "tired"]),
        (minute(62), vec!["plan", "plan2", "ralph", "other", "tired"]),
        (minute(500), vec!["plan", "plan2", "other", "ralph", "tired"]),
    ] {
        let picture = lab.picture(now);
        assert_eq!(crate::oracle::choice(&picture, &claim_of("loops", now, 9)), wanted, "at {now}");
        let heads: Vec<&str> = picture.queues[0].heads[0].iter().map(|task| task.id.as_str()).collect();
        assert_eq!(heads[..3], wanted[..3], "at {now}");
    }
    assert_eq!(lab.claimed(&claim_of("loops", minute(61), 1)), ["plan"]);
    assert_eq!(lab.claimed(&claim_of("loops", minute(61), 1)), ["ralph"]);
    assert_eq!(lab.claimed(&claim_of("loops", minute(62), 1)), ["plan2"]);
    lab.check();
}

/// DESIGN 2: who has waited longest may have been created later than the head of its bucket, and still goes first.
pub fn the_longest_waiting_may_stand_behind_its_buckets_head<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[of_kind("reopened", "loops", "plan")]);
    lab.add(at(60), &[of_kind("waiting", "loops", "plan")]);
    lab.must(at(6_000), "reopened", Command::Pause);
    lab.must(at(6_000), "reopened", Command::Resume);
    let late = at(7_200);
    assert_eq!(lab.picture(late).queues[0].heads[0][0].id, id("waiting"));
    assert_eq!(lab.claimed(&claim_of("loops", at(3_600), 1)), ["reopened"], "nobody is overdue yet");
    lab.must(at(6_000), "reopened", Command::Release { caller: held("reopened", 1) });
    assert_eq!(lab.claimed(&claim_of("loops", late, 1)), ["waiting"]);
    lab.check();
}

/// One transaction grants many, each with a fence of its own; none is asked for, none is given.
pub fn a_claim_may_be_for_many<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let names: Vec<String> = (0..50).map(|number| format!("t{number:02}")).collect();
    let tasks: Vec<NewTask> = names.iter().zip((0..5).cycle()).map(|(name, p)| urgent(name, p)).collect();
    lab.add(at(0), &tasks);
    assert_eq!(lab.claim(at(1), 0), Vec::<String>::new());
    let mut all = Vec::new();
    for limit in [1, 7, 20, 1, 99] {
        all.extend(lab.claim(at(1), limit));
    }
    assert_eq!(lab.claim(at(1), 99), Vec::<String>::new());
    let mut wanted = names.clone();
    wanted.sort_by_key(|name| (name[1..].parse::<u32>().unwrap() % 5, name.clone()));
    assert_eq!(all, wanted);
    assert!(lab.picture(at(1)).rows.values().all(|row| row.task.fence.get() == 1));
    lab.check();
}

/// Category and spec globs narrow the choice, in any priority, without hiding anything.
pub fn filters_narrow_the_choice<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let task = |name: &str, priority, category: Option<&str>, spec: Option<&str>| NewTask {
        category: category.map(str::to_owned),
        spec_ref: spec.map(str::to_owned),
        ..urgent(name, priority)
    };
    lab.add(
        at(0),
        &[
            task("a", 0, None, None),
            task("b", 0, Some("ui"), Some("web/one")),
            task("c", 1, Some("ui"), Some("api/two")),
            task("d", 2, Some("db"), Some("api/one")),
            task("e", 2, Some("db"), None),
        ],
    );
    let category = |name: &str| Wanted { category: Some(name.to_owned()), specs: None };
    let both = Wanted { category: Some("db".into()), ..specs("*/one") };
    for (wanted, chosen) in [
        (category("ui"), vec!["b", "c"]),
        (category("none"), vec![]),
        (specs("api/*"), vec!["c", "d"]),
        (specs("api/t*,web/*"), vec!["b", "c"]),
        (specs(""), vec![]),
        (both, vec!["d"]),
    ] {
        let granted = lab.claimed(&Claim { wanted, ..claim(at(1), 9) });
        assert_eq!(granted, chosen);
        for name in granted {
            lab.must(at(1), &name, Command::Release { caller: holder(&lab.task(&name)) });
        }
    }
    let elsewhere = ClaimById { wanted: category("db"), ..claim_by_id(at(2), "a") };
    assert_eq!(lab.refused(&elsewhere), Refusal::NotEligible { id: id("a"), reasons: vec![] });
    lab.check();
}

/// A claim by id names every reason it is not granted for.
pub fn a_claim_by_id_is_granted_or_explained<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"tasks":{"maxConcurrent":2}}}"#);
    let later = NewTask { not_before: Some(at(50)), ..after("later", &["a"]) };
    lab.add(at(0), &[new("a"), new("b"), new("c"), later]);
    let task = lab.take(at(1), "b");
    assert_eq!((task.fence.get(), task.assignee.as_deref()), (1, Some("a")));
    let reasons = |now, name: &str| match lab.refused(&claim_by_id(now, name)) {
        Refusal::NotEligible { reasons, .. } => reasons,
        other => panic!("{other:?}"),
    };
    let leased = Obstacle::Leased { by: Some("a".into()), until: at(601) };
    assert_eq!(reasons(at(2), "b"), [Reason::Obstacle(leased)]);
    let blocked = Obstacle::BlockedBy { ids: vec![id("a")] };
    let cooling = Obstacle::CoolingDown { until: at(50) };
    assert_eq!(reasons(at(2), "later"), [Reason::Obstacle(blocked), Reason::Obstacle(cooling)]);
    lab.take(at(2), "a");
    let full = Wait::QueueFull { ceiling: 2, active: 2 };
    assert_eq!(reasons(at(3), "c"), [Reason::Wait(full)]);
    assert_eq!(lab.refused(&claim_by_id(at(3), "x")), Refusal::TaskNotFound { id: id("x") });
    // Its own expired lease is taken back first, which also makes room.
    let again = lab.take(at(601), "b");
    assert_eq!((again.fence.get(), again.attempts), (2, 1));
    lab.check();
}

/// A task bound to a host is for that host; who names none sees all.
pub fn hosts_keep_their_trees<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &["a", "b", "c", "d"].map(|name| of_kind(name, "loops", "plan")));
    for (name, host) in [("a", "one"), ("b", "two"), ("c", "two")] {
        lab.ok(&Amend { id: id(name), host: Some(host.into()), tries: 0, artifact: None });
    }
    lab.check();
    let on = |host: &str, now| Claim { host: Some(host.to_owned()), ..claim_of("loops", now, 1) };
    let late = at(3_700);
    assert_eq!(lab.claimed(&on("two", late)), ["b"]);
    assert_eq!(lab.claimed(&on("three", late)), ["d"]);
    assert_eq!(lab.claimed(&on("three", late)), Vec::<String>::new());
    let other = ClaimById { host: Some("three".into()), ..claim_by_id(late, "a") };
    let Refusal::NotEligible { reasons, .. } = lab.refused(&other) else { panic!("it is elsewhere") };
    assert_eq!(reasons, [Reason::Obstacle(Obstacle::OtherHost { host: "one".into() })]);
    assert_eq!(lab.claimed(&claim_of("loops", late, 9)), ["a", "c"]);
    lab.check();
}

/// The policy's length, or the caller's; 0 is a lease that has run out at once.
pub fn the_lease_has_its_length_and_its_holder<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), new("b"), new("c"), in_queue("r", "runs")]);
    let until = |claim: Claim| lab.ok(&claim)[0].task.lease_expires_at;
    assert_eq!(until(claim(at(1), 1)), Some(at(601)));
    assert_eq!(until(Claim { ttl_ms: Some(5_000), ..claim(at(1), 1) }), Some(at(6)));
    assert_eq!(until(Claim { ttl_ms: Some(0), agent: None, ..claim(at(1), 1) }), Some(at(1)));
    assert_eq!(until(claim_of("runs", at(1), 1)), Some(at(301)));
    let picture = lab.picture(at(1));
    assert_eq!((picture.task("a").started_at, &picture.task("a").assignee), (Some(at(1)), &Some("a".into())));
    assert_eq!(picture.task("c").assignee, None);
    let renewed = lab.must(at(9), "b", Command::Renew { caller: held("b", 1), ttl_ms: Some(60_000) });
    assert_eq!((renewed.lease_expires_at, renewed.fence.get()), (Some(at(69)), 1));
    let forever = Claim { ttl_ms: Some(i64::MAX), ..claim(at(2), 1) };
    assert_eq!(lab.ok(&forever).len(), 1, "c ran out at once");
    assert_eq!(lab.task("c").lease_expires_at, Some(rota_core::UnixMillis::MAX));
    lab.check();
}

/// P3, P6: a kind at its ceiling is passed over, and what comes behind it is granted.
pub fn a_full_kind_hides_nothing<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"tasks":{"perKind":{"plan":1,"spec":2},"maxConcurrent":5}}}"#);
    let tasks = ["p1", "p2", "p3"].map(|name| of_kind(name, "tasks", "plan"));
    lab.add(at(0), &tasks.map(|task| NewTask { priority: NewPriority::Given(0), ..task }));
    lab.add(at(0), &["s1", "s2", "s3"].map(|name| of_kind(name, "tasks", "spec")));
    lab.add(at(1), &["n1", "n2", "n3"].map(new));
    assert_eq!(lab.claim(at(2), 2), ["p1", "s1"]);
    assert_eq!(lab.claim(at(2), 9), ["s2", "n1", "n2"]);
    assert_eq!(lab.claim(at(2), 9), Vec::<String>::new());
    let Refusal::NotEligible { reasons, .. } = lab.refused(&claim_by_id(at(2), "p2")) else {
        panic!("the queue is full")
    };
    assert_eq!(reasons, [Reason::Wait(Wait::QueueFull { ceiling: 5, active: 5 })]);
    lab.must(at(3), "n1", done(held("n1", 1)));
    let Refusal::NotEligible { reasons, .. } = lab.refused(&claim_by_id(at(3), "p2")) else {
        panic!("the kind is full")
    };
    assert_eq!(reasons, [Reason::Wait(Wait::KindFull { kind: "plan".into(), ceiling: 1, active: 1 })]);
    assert_eq!(lab.claim(at(3), 9), ["n3"]);
    lab.must(at(4), "p1", done(held("p1", 1)));
    assert_eq!(lab.claim(at(4), 9), ["p2"]);
    lab.check();
}

/// A queue exists once the policy names it or a task was added; any other is refused, with the known ones.
pub fn unknown_queues_are_refused_and_known_ones_may_be_empty<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[in_queue("a", "mine")]);
    assert_eq!(lab.claimed(&claim_of("issues", at(1), 1)), Vec::<String>::new());
    let known = ["issues", "loops", "mine", "runs", "tasks"].map(str::to_owned).to_vec();
    let refused = lab.refused(&claim_of("yours", at(1), 1));
    assert_eq!(refused, Refusal::UnknownQueue { name: "yours".into(), known });
    assert_eq!(lab.claimed(&claim_of("mine", at(1), 1)), ["a"]);
    lab.check();
}

/// A grant carries what its blockers came to.
pub fn grants_bring_the_blockers_results<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("b"), new("a"), after("c", &["b", "a"])]);
    for name in ["a", "b"] {
        let caller = holder(&lab.take(at(1), name));
        let result = Json::parse(&format!(r#"{{"commit":"{name}"}}"#)).ok();
        lab.must(at(1), name, Command::Done { caller, result });
    }
    let grants = lab.ok(&claim(at(2), 1));
    assert_eq!(ids(&grants), ["c"]);
    let results: Vec<(&str, &str)> = grants[0]
        .blockers
        .iter()
        .map(|blocker| (blocker.id.as_str(), blocker.result.as_ref().unwrap().as_str()))
        .collect();
    assert_eq!(results, [("a", r#"{"commit":"a"}"#), ("b", r#"{"commit":"b"}"#)]);
}

/// C2 on stores, P5: from 6 seeded backlogs of 60 tasks, every claim is what core would choose from all of them.
pub fn random_backlogs_are_chosen_from_as_core_would<S: Subject>(subject: &S) {
    for seed in 0..6 {
        crate::program::drain(subject, seed);
    }
}
