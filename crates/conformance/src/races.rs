//! Two or more at the same instant (P2, P3, P7, S3, S4). A barrier lets both go; nothing sleeps.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rota_core::transition::Command;
use rota_core::{Refusal, Status, UnixMillis};

use crate::check::grants_in_commit_order;
use crate::lab::{after, at, claim, claim_by_id, done, held, holder, id, new};
use crate::{Lab, Subject, check_everything};
use rota_store::Error;
use rota_store::EventFilter;
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::claim::Claim;
use rota_store::intents::edges::Block;
use rota_store::intents::read::{Journal, Show};

/// Rounds of a race; the long command asks for more.
fn rounds<S: Subject>(subject: &S) -> usize {
    let asked = std::env::var("ROTA_RACE_ROUNDS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or_else(|| subject.rounds())
}

/// Lets both go at once, and waits for both.
fn race<A: Send, B: Send>(left: impl FnOnce() -> A + Send, right: impl FnOnce() -> B + Send) -> (A, B) {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let left = scope.spawn(|| {
            barrier.wait();
            left()
        });
        barrier.wait();
        let right = right();
        (left.join().expect("the left side did not panic"), right)
    })
}

/// Two handles of one store, and what is left to check at the end.
fn two<S: Subject>(lab: &Lab<'_, S>) -> (S::Store, S::Store) {
    (lab.subject.another(&lab.store), lab.subject.another(&lab.store))
}

fn finish<S: Subject>(lab: &Lab<'_, S>) {
    for now in [at(0), UnixMillis::MAX] {
        check_everything(&lab.picture(now));
    }
    if lab.subject.is_serial() {
        let legal = grants_in_commit_order(&lab.picture(at(0)), None);
        assert_eq!(legal, Ok(()));
    }
}

/// S3, P2: the holder renews at the instant its lease is taken back, by a reclaim or by a claim: exactly one wins, and
/// the holder learns which.
pub fn renew_against_reclaim<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a")]);
    let (left, right) = two(&lab);
    for round in 0..i64::try_from(rounds(subject)).unwrap() {
        let start = at(round * 10);
        let task = lab.ok(&Claim { ttl_ms: Some(1_000), ..claim(start, 1) }).remove(0).task;
        let now = start.plus_ms(1_000);
        let renewing = Lab { subject, store: subject.another(&left) };
        let taking = Lab { subject, store: subject.another(&right) };
        let renew = Command::Renew { caller: holder(&task), ttl_ms: Some(5_000) };
        let (renewed, taken) = race(
            || renewing.step(now, "a", renew),
            || match round % 2 {
                0 => taking.reclaim(now, "tasks").len(),
                _ => taking.ok(&Claim { agent: Some("b".into()), ..claim(now, 1) }).len(),
            },
        );
        let stored = lab.task("a");
        match renewed {
            Ok(_) => assert_eq!((taken, stored.status, stored.fence), (0, Status::Active, task.fence)),
            Err(Refusal::LeaseLost { .. }) => {
                assert_eq!((taken, stored.status, round % 2), (1, Status::Open, 0))
            }
            Err(Refusal::StaleLease { holder, .. }) => {
                assert_eq!((taken, holder.lease, round % 2), (1, stored.lease().unwrap(), 1));
            }
            Err(other) => panic!("{other:?}"),
        }
        if stored.status == Status::Active {
            lab.must(now, "a", Command::Release { caller: holder(&stored) });
        }
    }
    finish(&lab);
}

/// S4, P7: both last blockers are settled at once; the child is woken, every time.
pub fn both_last_blockers_at_once<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let rounds = rounds(subject);
    let family = |round: usize| {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        [new(&a), new(&b), after(&format!("child{round}"), &[&a, &b])]
    };
    lab.add(at(0), &(0..rounds).flat_map(family).collect::<Vec<_>>());
    assert_eq!(lab.ok(&claim(at(0), 9_999)).len(), 2 * rounds);
    let (left, right) = two(&lab);
    let (left, right) = (Lab { subject, store: left }, Lab { subject, store: right });
    for round in 0..rounds {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let settled = race(
            || left.step(at(1), &a, done(held(&a, 1))).is_ok(),
            || {
                right
                    .step(at(1), &b, if round % 2 == 0 { done(held(&b, 1)) } else { Command::Delete })
                    .is_ok()
            },
        );
        assert_eq!(settled, (true, true));
    }
    assert_eq!(lab.ok(&claim(at(2), 9_999)).len(), rounds, "no child is stranded");
    finish(&lab);
}

/// A task is shown as one moment has it: it is ready exactly if the blocker beside it does not count.
pub fn showing_while_a_blocker_comes_and_goes<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), after("b", &["a"])]);
    let writing = Lab { subject, store: subject.another(&lab.store) };
    let is_over = AtomicBool::new(false);
    let write = || {
        for _ in 0..rounds(subject) {
            writing.must(at(1), "a", Command::Delete);
            writing.must(at(1), "a", Command::Undelete);
        }
        is_over.store(true, Ordering::Release);
    };
    let look = || {
        let mut seen = 0;
        while !is_over.load(Ordering::Acquire) || seen == 0 {
            let (view, blockers) = lab.ok(&Show { call: lab.call(at(1)), id: id("b") });
            let [blocker] = blockers.as_slice() else { panic!("{blockers:?}") };
            assert_eq!(view.ready_at.is_some(), blocker.status.satisfies_edge(), "{blocker:?}");
            assert_eq!(view.deps, [id("a")]);
            seen += 1;
        }
    };
    race(write, look);
    finish(&lab);
}

/// S4, P7: two halves of a circle are written at once; exactly one is refused, with the path.
pub fn two_halves_of_a_circle<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let rounds = rounds(subject);
    let names = |round: usize| (format!("a{round}"), format!("b{round}"));
    lab.add(
        at(0),
        &(0..rounds).flat_map(|round| [new(&names(round).0), new(&names(round).1)]).collect::<Vec<_>>(),
    );
    let (left, right) = two(&lab);
    let (left, right) = (Lab { subject, store: left }, Lab { subject, store: right });
    for round in 0..rounds {
        let (a, b) = names(round);
        let block = |task: &str, by: &str| Block { call: lab.call(at(1)), task: id(task), by: id(by) };
        let (one, other) = (block(&a, &b), block(&b, &a));
        let (one, other) = race(|| left.run(&one), || right.run(&other));
        let refused = match (one, other) {
            (Ok(()), Err(Error::Refused(refused))) | (Err(Error::Refused(refused)), Ok(())) => refused,
            both => panic!("{both:?}"),
        };
        assert!(matches!(refused, Refusal::WouldCycle { path } if path.len() == 3));
    }
    assert_eq!(lab.picture(at(1)).edges.len(), rounds);
    finish(&lab);
}

/// S4, P7: a blocker is added while the task is claimed: it was granted before it was blocked, or not at all.
pub fn blocking_while_claiming<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let rounds = rounds(subject);
    let names = |round: usize| (format!("a{round}"), format!("b{round}"));
    lab.add(
        at(0),
        &(0..rounds).flat_map(|round| [new(&names(round).0), new(&names(round).1)]).collect::<Vec<_>>(),
    );
    let (left, right) = two(&lab);
    let (left, right) = (Lab { subject, store: left }, Lab { subject, store: right });
    for round in 0..rounds {
        let (a, b) = names(round);
        let ((), claimed) = race(|| left.block(at(1), &a, &b), || right.run(&claim_by_id(at(1), &a)));
        let granted = match claimed {
            Ok(_) => true,
            Err(Error::Refused(Refusal::NotEligible { .. })) => false,
            Err(other) => panic!("{other:?}"),
        };
        let filter = EventFilter { task: Some(id(&a)), ..EventFilter::default() };
        let events = lab.ok(&Journal { call: lab.call(at(1)), filter });
        let own: Vec<&str> = events.iter().map(|event| event.kind.word()).collect();
        assert_eq!(
            own,
            if granted { vec!["created", "granted", "blocked"] } else { vec!["created", "blocked"] }
        );
    }
    let blocked = lab.picture(at(1)).rows.values().filter(|row| row.task.status == Status::Open).count();
    let granted = lab.ok(&claim(at(2), 9_999));
    assert!(granted.iter().all(|grant| grant.task.id.as_str().starts_with('b')));
    for grant in granted {
        lab.must(at(2), grant.task.id.as_str(), done(holder(&grant.task)));
    }
    assert_eq!(lab.ok(&claim(at(3), 9_999)).len(), blocked - rounds, "no child is stranded");
    finish(&lab);
}

/// S4, P7: a blocker is deleted and comes back while its dependent is claimed; it never runs beside an open blocker that
/// was there first, and none is stranded.
pub fn deleting_and_undeleting_while_claiming<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let rounds = rounds(subject);
    let names = |round: usize| (format!("a{round}"), format!("b{round}"));
    let pair = |round: usize| {
        let (a, b) = names(round);
        [after(&a, &[&b]), new(&b)]
    };
    lab.add(at(0), &(0..rounds).flat_map(pair).collect::<Vec<_>>());
    let (left, right) = two(&lab);
    let (left, right) = (Lab { subject, store: left }, Lab { subject, store: right });
    let mut waiting = 0;
    for round in 0..rounds {
        let (a, b) = names(round);
        let ((), granted) = race(
            || {
                left.must(at(1), &b, Command::Delete);
                left.must(at(1), &b, Command::Undelete);
            },
            || (0..3).any(|_| right.run(&claim_by_id(at(1), &a)).is_ok()),
        );
        waiting += usize::from(!granted);
    }
    let blockers = lab.ok(&claim(at(2), 9_999));
    assert_eq!(blockers.len(), rounds);
    for grant in blockers {
        lab.must(at(2), grant.task.id.as_str(), done(holder(&grant.task)));
    }
    assert_eq!(lab.ok(&claim(at(3), 9_999)).len(), waiting, "no child is stranded");
    finish(&lab);
}

/// S4: a parent is deleted while a child is reopened, claimed and another is added: nobody is left behind.
pub fn deleting_a_parent_while_children_come<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let rounds = rounds(subject).min(100);
    let child = |name: &str, parent: &str| NewTask { parent: Some(id(parent)), ..new(name) };
    let (left, right) = two(&lab);
    let (left, right) = (Lab { subject, store: left }, Lab { subject, store: right });
    for round in 0..rounds {
        let (parent, old, late) = (format!("p{round}"), format!("c{round}"), format!("d{round}"));
        lab.add(at(0), &[new(&parent)]);
        lab.add(at(0), &[child(&old, &parent)]);
        lab.finish(at(0), &parent);
        lab.must(at(0), &old, Command::Cancel);
        race(
            || left.must(at(1), &parent, Command::Delete),
            || {
                let reopened = right.step(at(1), &old, Command::Reset).is_ok();
                let added =
                    right.run(&Add { call: right.call(at(1)), tasks: vec![child(&late, &parent)] }).is_ok();
                let claimed = right.run(&claim_by_id(at(1), &old)).is_ok();
                (reopened, added, claimed)
            },
        );
        let is_left =
            |row: &rota_store::Row| !row.task.status.is_finished() && row.task.parent == Some(id(&parent));
        assert!(!lab.picture(at(1)).rows.values().any(is_left), "round {round}");
    }
    finish(&lab);
}

/// S1 in the small, P3: eight claimers on a ceiling of three; it is never exceeded, and all work is done once.
pub fn claimers_share_a_ceiling<S: Subject>(subject: &S) {
    const TASKS: usize = 200;
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"tasks":{"maxConcurrent":3}}}"#);
    lab.add(at(0), &(0..TASKS).map(|number| new(&format!("t{number}"))).collect::<Vec<_>>());
    let finished = AtomicUsize::new(0);
    let watching = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let own = lab.another();
                let finished = &finished;
                scope.spawn(move || {
                    while finished.load(Ordering::SeqCst) < TASKS {
                        for grant in own.ok(&claim(at(1), 2)) {
                            own.must(at(1), grant.task.id.as_str(), done(holder(&grant.task)));
                            finished.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        let (own, watching) = (lab.another(), &watching);
        let watcher = scope.spawn(move || {
            while watching.load(Ordering::SeqCst) {
                let picture = own.picture(at(1));
                let active = picture.queues[0].active.values().sum::<u32>();
                assert!(active <= 3, "{active} are active");
            }
        });
        for worker in workers {
            worker.join().expect("a claimer did not panic");
        }
        watching.store(false, Ordering::SeqCst);
        watcher.join().expect("the watcher saw no more than three");
    });
    let picture = lab.picture(at(1));
    assert!(picture.rows.values().all(|row| row.task.status == Status::Done && row.task.fence.get() == 1));
    if subject.is_serial() {
        assert_eq!(grants_in_commit_order(&picture, Some(3)), Ok(()));
    }
    lab.check();
}
