//! Ending attempts, many at once, and claiming the next in the same transaction (P1, P2).

use rota_core::event::EventKind;
use rota_core::status::Outcome;
use rota_core::transition::{Command, RateLimit, Verb};
use rota_core::{Json, Refusal, Status};

use crate::lab::{after, at, claim, claim_of, done, fail, held, holder, id, ids, new};
use crate::{Lab, Subject};
use rota_store::intents::Call;
use rota_store::intents::claim::Claim;
use rota_store::intents::settle::{Settle, Step};

/// P2: each step of a batch is accepted or refused by itself; a late one does not undo the others.
pub fn a_batch_settles_each_step_by_itself<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), new("b"), new("c"), after("d", &["a", "c"])]);
    lab.ok(&claim(at(0), 9));
    let results = lab.steps(
        at(1),
        vec![
            ("a", done(held("a", 1))),
            ("b", done(held("b", 7))),
            ("x", done(held("x", 1))),
            ("c", done(held("c", 1))),
            ("c", fail(held("c", 1))),
            ("d", done(held("d", 1))),
        ],
    );
    let accepted: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [true, false, false, true, false, false]);
    assert!(matches!(results[1], Err(Refusal::StaleLease { .. })));
    assert_eq!(results[2], Err(Refusal::TaskNotFound { id: id("x") }));
    assert_eq!(results[4], Err(Refusal::NotActive { id: id("c"), status: Status::Done }));
    assert_eq!(results[5], Err(Refusal::NotActive { id: id("d"), status: Status::Open }));
    lab.check();
    assert_eq!(lab.claim(at(2), 9), ["d"]);
    let many: Vec<Step> = Vec::new();
    assert!(lab.ok(&Settle { call: lab.call(at(3)), steps: many, then: None }).steps.is_empty());
    lab.check();
}

/// What a step frees can be had in the same transaction.
pub fn settling_and_claiming_the_next_in_one_go<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"tasks":{"maxConcurrent":1}}}"#);
    lab.add(at(0), &[new("a"), after("b", &["a"]), after("c", &["b"])]);
    lab.take(at(0), "a");
    for (name, next) in [("a", vec!["b"]), ("b", vec!["c"]), ("c", vec![])] {
        let step = Step { id: id(name), command: done(held(name, 1)) };
        let settle = Settle { call: lab.call(at(1)), steps: vec![step], then: Some(claim(at(1), 5)) };
        let settled = lab.ok(&settle);
        assert!(settled.steps[0].is_ok());
        assert_eq!(ids(&settled.granted), next);
        lab.check();
    }
    // A refused step keeps its lease, so there is no room.
    lab.add(at(2), &[new("d"), new("e")]);
    lab.take(at(2), "d");
    let step = Step { id: id("d"), command: done(held("d", 9)) };
    let settled = lab.ok(&Settle { call: lab.call(at(2)), steps: vec![step], then: Some(claim(at(2), 5)) });
    assert!(settled.steps[0].is_err() && settled.granted.is_empty());
    lab.check();
}

/// A refused step claims nothing, also where there is room; the accepted steps of the same batch are kept.
pub fn a_refused_step_claims_nothing<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), new("b"), new("c"), new("d"), new("free")]);
    for name in ["a", "b", "c", "d"] {
        lab.take(at(0), name);
    }
    let settle = |steps: Vec<(&str, Command)>| {
        let steps = steps.into_iter().map(|(name, command)| Step { id: id(name), command }).collect();
        let settled = lab.ok(&Settle { call: lab.call(at(1)), steps, then: Some(claim(at(1), 5)) });
        lab.check();
        let accepted: Vec<bool> = settled.steps.iter().map(Result::is_ok).collect();
        (accepted, ids(&settled.granted).join(","))
    };
    let before = lab.picture(at(1)).events.len();
    assert_eq!(settle(vec![("a", done(held("a", 9)))]), (vec![false], String::new()), "another lease");
    assert_eq!(settle(vec![("x", done(held("x", 1)))]), (vec![false], String::new()), "no such task");
    assert_eq!(settle(vec![("free", done(held("free", 1)))]), (vec![false], String::new()), "not held");
    assert_eq!(lab.picture(at(1)).events.len(), before, "nothing was journalled");
    // A batch of settlements is one statement where nothing depends on them, and one by one elsewhere.
    assert_eq!(
        settle(vec![("a", done(held("a", 1))), ("b", done(held("b", 9)))]),
        (vec![true, false], String::new())
    );
    assert_eq!(
        settle(vec![("b", fail(held("b", 9))), ("c", done(held("c", 1)))]),
        (vec![false, true], String::new())
    );
    assert_eq!((lab.task("a").status, lab.task("c").status), (Status::Done, Status::Done));
    assert_eq!(settle(vec![("d", done(held("d", 1)))]), (vec![true], "free".to_owned()));
}

/// The grant that follows a settlement is journalled for its claimant, which may not be who settled.
pub fn the_next_lease_is_the_claimants<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), new("b")]);
    lab.take(at(0), "a");
    let by = |actor: Option<&str>| Call { actor: actor.map(str::to_owned), ..lab.call(at(1)) };
    let then = Claim { call: by(Some("next")), agent: Some("next".to_owned()), ..claim(at(1), 1) };
    let step = Step { id: id("a"), command: done(held("a", 1)) };
    let settled = lab.ok(&Settle { call: by(Some("first")), steps: vec![step], then: Some(then) });
    assert_eq!(settled.granted[0].task.assignee.as_deref(), Some("next"));
    let events = lab.picture(at(1)).events;
    let actors: Vec<Option<&str>> = events.iter().rev().take(2).map(|event| event.actor.as_deref()).collect();
    assert_eq!(actors, [Some("next"), Some("first")]);
    lab.check();
}

/// One transaction: if the claim that follows is refused as a whole, nothing was acknowledged and nothing is kept.
pub fn a_refused_next_claim_settles_nothing<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a")]);
    let task = lab.take(at(0), "a");
    let step = Step { id: id("a"), command: done(held("a", 1)) };
    let then = Some(claim_of("nowhere", at(1), 1));
    let refused = lab.refused(&Settle { call: lab.call(at(1)), steps: vec![step], then });
    assert!(matches!(refused, Refusal::UnknownQueue { .. }));
    assert_eq!(lab.task("a"), task);
    lab.check();
}

/// DESIGN 4: the seven outcomes, how each is journalled, whether it counts, where it leads.
pub fn every_end_of_an_attempt<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let caller = || held("a", 1);
    let reason = || "because".to_owned();
    for (command, outcome, attempts, status) in [
        (done(caller()), Outcome::Done, 0, Status::Done),
        (fail(caller()), Outcome::Failed, 1, Status::Open),
        (Command::Lose, Outcome::Lost, 1, Status::Open),
        (
            Command::RateLimit { caller: caller(), limit: RateLimit::default() },
            Outcome::RateLimited,
            0,
            Status::Open,
        ),
        (Command::Interrupt { caller: caller() }, Outcome::Interrupted, 0, Status::Open),
        (Command::Release { caller: caller() }, Outcome::Released, 0, Status::Open),
        (Command::Exhaust { caller: caller(), reason: reason() }, Outcome::Released, 0, Status::Failed),
        (Command::Park { caller: caller(), reason: reason() }, Outcome::NeedsPerson, 0, Status::Parked),
        (Command::Pause, Outcome::Released, 0, Status::Paused),
        (Command::Delete, Outcome::Released, 0, Status::Deleted),
        (Command::Cancel, Outcome::Released, 0, Status::Invalidated),
        (Command::Invalidate { reason: reason() }, Outcome::Released, 0, Status::Invalidated),
        (Command::Orphan { parent: "p".into() }, Outcome::Released, 0, Status::Failed),
        (Command::Override { result: None }, Outcome::Released, 0, Status::Done),
    ] {
        let lab = Lab { subject: lab.subject, store: subject.fresh() };
        lab.add(at(0), &[new("a")]);
        let held = lab.take(at(1), "a");
        let task = lab.must(at(2), "a", command.clone());
        assert_eq!((task.status, task.attempts), (status, attempts), "{command:?}");
        assert_eq!((task.lease_expires_at, task.fence), (None, held.fence));
        let event = lab.picture(at(2)).events.pop().unwrap();
        assert_eq!((event.kind, event.data.outcome), (EventKind::Step(command.verb()), Some(outcome)));
        assert_eq!((event.lease(), event.from, event.to), (held.lease(), Some(Status::Active), Some(status)));
        lab.check();
        let renewed = lab.step(at(3), "a", Command::Renew { caller: holder(&held), ttl_ms: None });
        assert!(renewed.is_err(), "the lease has ended");
    }
    assert_eq!(Verb::Renew.rule().outcome, None);
}

/// P1: a result is kept to the byte, but for white space.
pub fn results_are_kept_as_given<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    for (number, (given, kept)) in (0..).zip([
        (r#"{ "commit" : "x", "n": 1.0e400 }"#, Some(r#"{"commit":"x","n":1.0e400}"#)),
        (r#""text 😀 \u0000 \" ""#, Some(r#""text 😀 \u0000 \" ""#)),
        ("[]", Some("[]")),
        ("null", None),
    ]) {
        let name = format!("t{number}");
        lab.add(at(0), &[new(&name)]);
        let caller = holder(&lab.take(at(1), &name));
        lab.must(at(1), &name, Command::Done { caller, result: Json::parse(given).ok() });
        assert_eq!(lab.task(&name).result.as_ref().map(Json::as_str), kept);
    }
    lab.check();
}
