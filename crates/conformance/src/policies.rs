//! Policy as data: publishing, and what follows for the backlog.

use rota_core::event::EventKind;
use rota_core::{Policy, Refusal};

use crate::lab::{at, claim_of, done, held, in_queue, new, of_kind};
use crate::{Lab, Subject};
use rota_store::intents::policy::{CurrentPolicy, PublishPolicy};
use rota_store::intents::{default_policy, policy_version};

fn parsed(document: &str) -> Policy {
    Policy::parse(document).unwrap()
}

/// Versions are hashes; the same again adds none; what is based on an older one is refused.
pub fn publishing_versions_and_conflicts<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let current = || lab.ok(&CurrentPolicy { call: lab.call(at(0)) });
    assert_eq!((current().0.version.clone(), current().1.len()), (default_policy().version.clone(), 0));
    let publish = |document: &str, based_on: Option<&str>| PublishPolicy {
        call: rota_store::intents::Call { actor: Some("me".into()), ..lab.call(at(5)) },
        policy: parsed(document),
        based_on: based_on.map(str::to_owned),
    };
    let (one, two) =
        (r#"{"queues":{"tasks":{"maxConcurrent":1}}}"#, r#"{"queues":{"tasks":{"maxConcurrent":2}}}"#);
    let first = lab.ok(&publish(one, Some(&default_policy().version)));
    assert_eq!(first.version, policy_version(&parsed(one)));
    assert_eq!(lab.ok(&publish(one, Some(&first.version))).version, first.version);
    assert_eq!(current().1.len(), 1, "the same again adds none");
    let second = lab.ok(&publish(two, Some(&first.version)));
    let refused = lab.refused(&publish(one, Some(&first.version)));
    let moved = Refusal::PolicyMoved { based_on: first.version.clone(), current: second.version.clone() };
    assert_eq!(refused, moved);
    lab.ok(&publish(one, None));
    let (published, history) = lab.another().ok(&CurrentPolicy { call: lab.call(at(9)) });
    assert_eq!(*published, *first, "back to the first one, also seen through another handle");
    let rows: Vec<(u64, &str)> = history.iter().map(|row| (row.number, row.version.as_str())).collect();
    assert_eq!(rows, [(1, &*first.version), (2, &*second.version), (3, &*first.version)]);
    assert_eq!((history[0].published_at, history[0].actor.as_deref()), (at(5), Some("me")));
    lab.check();
}

/// Scores are in the index; a policy that changes them moves every waiting task.
pub fn a_new_score_reorders_the_backlog<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let tasks = ["plan", "spec", "ralph"].map(|kind| of_kind(kind, "loops", kind));
    lab.add(at(0), &tasks);
    lab.add(at(0), &["x", "y"].map(|kind| of_kind(kind, "mine", kind)));
    lab.check();
    lab.publish(
        at(1),
        r#"{"queues":{"loops":{"score":{"base":{"plan":900,"spec":800,"ralph":700}}},
            "mine":{"score":{"base":{"y":70},"starvationGuardMinutes":1}}}}"#,
    );
    lab.check();
    assert_eq!(lab.claimed(&claim_of("loops", at(2), 1)), ["plan"]);
    assert_eq!(lab.claimed(&claim_of("mine", at(2), 1)), ["y"]);
    lab.must(at(2), "y", done(held("y", 1)));
    lab.add(at(30), &[of_kind("y2", "mine", "y")]);
    assert_eq!(lab.claimed(&claim_of("mine", at(61), 1)), ["x"], "the guard is on");
    // What is leased while the policy changes comes back under the new one.
    lab.publish(at(62), r#"{"queues":{"mine":{"maxConcurrent":3}}}"#);
    lab.check();
    lab.must(at(63), "x", rota_core::transition::Command::Release { caller: held("x", 1) });
    lab.check();
    assert_eq!(lab.claimed(&claim_of("mine", at(64), 9)), ["x", "y2"]);
    lab.check();
}

/// P3: a lower ceiling ends no lease, but grants nothing until there is room.
pub fn a_new_ceiling_holds_for_the_next_claim<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &["a", "b", "c", "d"].map(new));
    assert_eq!(lab.claim(at(1), 3).len(), 3);
    lab.publish(at(2), r#"{"queues":{"tasks":{"maxConcurrent":2}}}"#);
    assert_eq!(lab.claim(at(3), 9), Vec::<String>::new());
    lab.must(at(4), "a", done(held("a", 1)));
    assert_eq!(lab.claim(at(4), 9), Vec::<String>::new());
    lab.must(at(5), "b", done(held("b", 1)));
    assert_eq!(lab.claim(at(5), 9), ["d"]);
    lab.check();
}

/// DESIGN 5: every decision is journalled with the version that made it.
pub fn decisions_carry_the_policys_version<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let document = r#"{"queues":{"mine":{"leaseTtlMs":1000}}}"#;
    lab.add(at(0), &[in_queue("a", "mine")]);
    lab.publish(at(1), document);
    lab.claimed(&claim_of("mine", at(2), 1));
    let events = lab.picture(at(2)).events;
    let versions: Vec<Option<&str>> = events.iter().map(|event| event.policy.as_deref()).collect();
    let (old, new) = (default_policy().version.clone(), policy_version(&parsed(document)));
    assert_eq!(versions, [Some(old.as_str()), Some(&new), Some(&new)]);
    assert_eq!(events[1].kind, EventKind::PolicyPublished);
    assert_eq!(lab.task("a").lease_expires_at, Some(at(3)));
}
