//! Who may end a lease (P2, S2).

use rota_core::lease::{Caller, LeaseId};
use rota_core::transition::{Command, RateLimit};
use rota_core::{Fence, Refusal, Status};

use crate::lab::{at, claim, done, fail, held, holder, id, in_queue, new};
use crate::{Lab, Subject};
use rota_store::intents::claim::Claim;

/// The four verbs of a worker, and the rest that end a lease, all by the same caller.
fn all_verbs(caller: &Caller) -> Vec<Command> {
    let caller = || caller.clone();
    vec![
        Command::Renew { caller: caller(), ttl_ms: Some(1) },
        done(caller()),
        fail(caller()),
        Command::Release { caller: caller() },
        Command::RateLimit { caller: caller(), limit: RateLimit::default() },
        Command::Interrupt { caller: caller() },
        Command::Exhaust { caller: caller(), reason: "out".into() },
        Command::Park { caller: caller(), reason: "stuck".into() },
    ]
}

/// S2, P2: lease, expire, lease again; then the old holder's renew, done, fail and release are refused, each told who
/// holds it now, and the new holder's row is untouched.
pub fn a_zombie_is_refused_four_times<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a")]);
    let old = lab.ok(&Claim { agent: Some("old".into()), ..claim(at(0), 1) }).remove(0).task;
    assert_eq!(old.lease_expires_at, Some(at(600)));
    let new = lab.ok(&Claim { agent: Some("new".into()), ..claim(at(600), 1) }).remove(0).task;
    assert_eq!((new.fence.get(), new.attempts), (2, 1));
    let before = lab.picture(at(601)).normal();
    for caller in
        [holder(&old), Caller::lease(old.lease().unwrap()), Caller { agent: None, lease: old.lease() }]
    {
        for command in all_verbs(&caller) {
            let refused = lab.step(at(601), "a", command.clone());
            let Err(Refusal::StaleLease { lease, holder, .. }) = refused else {
                panic!("{command:?}: {refused:?}")
            };
            assert_eq!((Some(lease), holder.lease), (old.lease(), new.lease().unwrap()));
            assert_eq!((holder.agent.as_deref(), holder.until), (Some("new"), at(1_200)));
        }
    }
    for command in all_verbs(&Caller::agent("old")) {
        let refused = lab.step(at(601), "a", command);
        assert!(
            matches!(refused, Err(Refusal::NotHolder { ref agent, .. }) if agent == "old"),
            "{refused:?}"
        );
    }
    assert_eq!(lab.picture(at(601)).normal(), before, "nothing was changed");
    assert_eq!(lab.task("a"), new);
    assert_eq!(lab.must(at(602), "a", done(holder(&new))).status, Status::Done);
    lab.check();
}

/// P2: every grant has the next fence, whatever ended the one before, also after reset, delete and undelete.
pub fn fences_grow_for_ever<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a")]);
    let ends: Vec<Box<dyn Fn(Caller) -> Vec<Command>>> = vec![
        Box::new(|caller| vec![Command::Release { caller }]),
        Box::new(|caller| vec![fail(caller)]),
        Box::new(|_| vec![Command::Pause, Command::Resume]),
        Box::new(|caller| vec![Command::Park { caller, reason: "r".into() }, Command::Reset]),
        Box::new(|_| vec![Command::Delete, Command::Undelete]),
        Box::new(|_| vec![Command::Cancel, Command::Reset]),
        Box::new(|caller| vec![done(caller), Command::Reiterate]),
        Box::new(|_| vec![Command::Lose]),
    ];
    for (number, end) in (1..).zip(&ends) {
        let task = lab.take(at(number), "a");
        assert_eq!(task.fence, Fence::new(u64::try_from(number).unwrap()));
        assert_eq!(task.lease().unwrap().to_string(), format!("lease-a-{number}"));
        for command in end(holder(&task)) {
            lab.must(at(number), "a", command);
        }
        lab.check();
    }
}

/// DESIGN 13.9: after expiry the holder may still renew and settle, while nobody took the lease back.
pub fn an_expired_lease_is_the_holders_until_it_is_taken_back<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), new("b")]);
    let (a, b) = (lab.take(at(0), "a"), lab.take(at(0), "b"));
    assert!(a.lease_expired(at(600)) && !a.lease_expired(at(599)));
    assert_eq!(lab.must(at(9_000), "a", done(holder(&a))).status, Status::Done);
    let renewed = lab.must(at(9_000), "b", Command::Renew { caller: holder(&b), ttl_ms: None });
    assert_eq!(renewed.lease_expires_at, Some(at(9_600)));
    assert_eq!(lab.reclaim(at(9_599), "tasks"), Vec::<String>::new());
    assert_eq!(lab.reclaim(at(9_600), "tasks"), ["b"]);
    let late = lab.step(at(9_600), "b", done(holder(&b)));
    let Some(lease) = b.lease() else { panic!("it was held") };
    let lost = || Refusal::LeaseLost {
        id: id("b"),
        status: Status::Open,
        lease: lease.clone(),
        expired_at: at(9_600),
    };
    assert_eq!(late, Err(lost()));
    for caller in [Caller { lease: None, ..holder(&b) }, Caller::lease(lease.clone()), Caller::default()] {
        assert_eq!(lab.step(at(9_601), "b", done(caller)), Err(lost()));
    }
    let other = lab.step(at(9_601), "b", done(Caller::agent("somebody-else")));
    assert_eq!(other, Err(Refusal::NotActive { id: id("b"), status: Status::Open }));
    lab.check();
}

/// DESIGN 13.11: a wrong agent or lease is refused, and so is a caller that names neither, unless the policy lets it.
pub fn naming_somebody_else_is_refused<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), new("anonymous")]);
    lab.take(at(0), "a");
    let wrong = |caller: Caller| lab.step(at(1), "a", done(caller)).unwrap_err();
    assert!(matches!(wrong(Caller::agent("b")), Refusal::NotHolder { .. }));
    assert!(matches!(wrong(held("a", 2)), Refusal::StaleLease { .. }));
    assert!(matches!(wrong(held("a", 0)), Refusal::StaleLease { .. }));
    let other = LeaseId { task: id("anonymous"), fence: Fence::new(1) };
    assert!(matches!(wrong(Caller::lease(other)), Refusal::StaleLease { .. }));
    let both =
        Caller { agent: Some("b".into()), lease: Some(LeaseId { task: id("a"), fence: Fence::new(1) }) };
    assert!(matches!(wrong(both), Refusal::NotHolder { .. }));
    assert!(matches!(wrong(Caller::default()), Refusal::HolderRequired { .. }));
    lab.publish(at(1), r#"{"queues":{"tasks":{"requireHolder":false}}}"#);
    assert_eq!(lab.must(at(2), "a", done(Caller::default())).status, Status::Done);
    lab.publish(at(2), "{}");
    lab.ok(&Claim { agent: None, ..claim(at(3), 1) });
    assert!(matches!(
        lab.step(at(4), "anonymous", done(held("anonymous", 9))),
        Err(Refusal::StaleLease { .. })
    ));
    assert_eq!(lab.must(at(4), "anonymous", done(Caller::agent("b"))).status, Status::Done);
    lab.check();
}

/// P2: where `requireLease` is set, only the lease itself will do; a person may still park.
pub fn a_queue_may_require_the_lease<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[in_queue("r", "runs")]);
    let task = lab.take(at(0), "r");
    for caller in [Caller::default(), Caller::agent("a")] {
        for command in
            all_verbs(&caller).into_iter().filter(|command| !matches!(command, Command::Park { .. }))
        {
            let refused = lab.step(at(1), "r", command);
            assert_eq!(refused, Err(Refusal::LeaseRequired { id: id("r"), queue: "runs".into() }));
        }
    }
    assert_eq!(lab.task("r"), task);
    let parked = lab.must(at(1), "r", Command::Park { caller: Caller::default(), reason: "look".into() });
    assert_eq!((parked.status, parked.parked_reason.as_deref()), (Status::Parked, Some("look")));
    lab.check();
}

/// P2: once settled, the same lease settles nothing more.
pub fn an_ended_lease_settles_nothing<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a")]);
    let task = lab.take(at(0), "a");
    lab.must(at(1), "a", done(holder(&task)));
    let before = lab.picture(at(1)).normal();
    for command in all_verbs(&holder(&task)).into_iter().take(7) {
        let refused = lab.step(at(2), "a", command);
        assert_eq!(refused, Err(Refusal::NotActive { id: id("a"), status: Status::Done }));
    }
    assert_eq!(lab.step(at(2), "x", done(holder(&task))), Err(Refusal::TaskNotFound { id: id("x") }));
    assert_eq!(lab.picture(at(1)).normal(), before);
    lab.check();
}
