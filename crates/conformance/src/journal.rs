//! The journal: in the same transaction as every change, and the tables are its fold (P1).

use async_trait::async_trait;
use rota_core::event::EventKind;
use rota_core::transition::{Command, Verb};
use rota_core::{Refusal, UnixMillis};

use crate::lab::{SCOPE, after, at, claim, claim_by_id, done, fail, held, holder, id, new};
use crate::{Lab, Subject};
use rota_store::intents::Call;
use rota_store::intents::add::Add;
use rota_store::intents::policy::PauseQueue;
use rota_store::intents::read::{Journal, Peek, PlanStatus, Runners, Why};
use rota_store::{Access, Intent, Store};
use rota_store::{AnyTx, EventFilter};
use rota_store::{Error, Outcome};

fn words<S: Subject>(lab: &Lab<'_, S>) -> Vec<&'static str> {
    lab.picture(at(0)).events.iter().map(|event| event.kind.word()).collect()
}

/// Every change of a task, a queue and the policy is one event; reads, refusals and empty choices are none.
pub fn every_change_is_an_event_and_refusals_are_none<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let me = |now| Call { actor: Some("me".into()), ..lab.call(at(now)) };
    lab.ok(&Add { call: me(0), tasks: vec![new("a"), after("b", &["a"])] });
    assert_eq!(words(&lab), ["created", "created", "blocked"]);
    lab.publish(at(1), r#"{"queues":{"tasks":{"maxConcurrent":1}}}"#);
    lab.ok(&PauseQueue { call: me(1), queue: "tasks".into(), paused: true });
    lab.ok(&PauseQueue { call: me(1), queue: "tasks".into(), paused: false });
    let task = lab.take(at(2), "a");
    lab.must(at(2), "a", Command::Renew { caller: holder(&task), ttl_ms: None });
    let wanted = ["policy_published", "queue_paused", "queue_resumed", "granted", "renewed"];
    assert_eq!(words(&lab)[3..], wanted);
    let before = lab.picture(at(3)).normal();
    lab.claim(at(3), 9);
    lab.refused(&claim_by_id(at(3), "b"));
    lab.step(at(3), "a", done(held("a", 9))).unwrap_err();
    lab.ok(&Why { call: me(3), id: id("b"), host: None, runners: Runners::default() });
    lab.ok(&PlanStatus { call: me(3), queue: "tasks".into(), wanted: Default::default() });
    let peek = Peek { call: me(3), queue: "tasks".into(), limit: 5, wanted: Default::default(), host: None };
    lab.ok(&peek);
    lab.reclaim(at(3), "tasks");
    assert_eq!(lab.picture(at(3)).normal(), before);
    lab.must(at(4), "a", done(holder(&task)));
    assert_eq!(words(&lab)[8..], ["done", "readied"]);
    let picture = lab.picture(at(4));
    let first = &picture.events[0];
    assert_eq!((first.actor.as_deref(), first.at, first.number), (Some("me"), at(0), 1));
    let grant = picture.events.iter().find(|event| event.kind == EventKind::Step(Verb::Claim)).unwrap();
    assert_eq!((grant.at, grant.lease()), (at(2), task.lease()));
    lab.check();
}

/// Per task the numbers go up by one; folding them gives the row, also after many and odd changes.
pub fn numbers_have_no_gaps_and_the_journal_folds<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(
        at(0),
        r#"{"queues":{"tasks":{"maxAttempts":3,"backoff":{"baseMs":1,"factor":2,"capMs":9}}}}"#,
    );
    lab.add(at(0), &[new("a"), new("b"), after("c", &["a", "b"])]);
    for round in 0..3 {
        let task = lab.take(at(round), "a");
        lab.must(at(round), "a", fail(holder(&task)));
        lab.check();
    }
    lab.must(at(4), "a", Command::Reset);
    lab.must(at(5), "b", Command::Delete);
    lab.must(at(1), "b", Command::Undelete);
    lab.must(UnixMillis::MIN, "b", Command::Pause);
    lab.must(UnixMillis::MAX, "b", Command::Resume);
    lab.unblock(at(6), "c", "b");
    lab.finish(at(7), "a");
    lab.check();
    let picture = lab.picture(at(8));
    let own = picture.events.iter().filter(|event| event.task == Some(id("a")));
    let numbers: Vec<u64> = own.map(|event| event.number).collect();
    assert_eq!(numbers, (1..).take(numbers.len()).collect::<Vec<_>>());
    assert_eq!(numbers.len() as u64, picture.task("a").events);
}

/// Paging by number reads every event once; a filter by task, a limit and the newest few work together.
pub fn readers_page_through_and_miss_nothing<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    for number in 0..7 {
        lab.add(at(number), &[new(&format!("t{number}"))]);
        lab.finish(at(number), &format!("t{number}"));
    }
    let read = |filter| lab.ok(&Journal { call: lab.call(at(9)), filter });
    let all = read(EventFilter::default());
    assert_eq!(all.len(), 21);
    let mut paged = Vec::new();
    loop {
        let after = paged.last().map_or(0, |event: &rota_core::event::Event| event.seq);
        let page = read(EventFilter { after, limit: Some(4), ..EventFilter::default() });
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    assert_eq!(paged, all);
    let newest = read(EventFilter { limit: Some(2), newest: true, ..EventFilter::default() });
    assert_eq!(newest, all[19..]);
    let own = EventFilter { task: Some(id("t3")), ..EventFilter::default() };
    assert_eq!(read(own.clone()), all[9..12]);
    assert_eq!(read(EventFilter { limit: Some(1), ..own.clone() }), all[9..10]);
    assert_eq!(read(EventFilter { limit: Some(2), newest: true, ..own.clone() }), all[10..12]);
    assert_eq!(read(EventFilter { after: all[9].seq, limit: Some(1), ..own }), all[10..11]);
    assert!(read(EventFilter { limit: Some(0), ..EventFilter::default() }).is_empty());
    let unknown = EventFilter { task: Some(id("x")), ..EventFilter::default() };
    let refused = lab.refused(&Journal { call: lab.call(at(9)), filter: unknown });
    assert_eq!(refused, Refusal::TaskNotFound { id: id("x") });
}

/// Does what its inner intent does, and then gives up.
struct GiveUp<I>(I);

#[async_trait]
impl<I: Intent> Intent for GiveUp<I> {
    type Output = ();

    async fn run(&self, tx: &mut AnyTx) -> Outcome<()> {
        self.0.run(tx).await?;
        Err(Error::Refused(Refusal::EdgeNotFound))
    }
}

/// S6 in the small: a transaction that is dropped leaves neither rows nor events, and numbers go on without harm.
pub fn a_dropped_transaction_leaves_nothing<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), after("b", &["a"])]);
    let before = lab.picture(at(1)).normal();
    lab.refused(&GiveUp(Add { call: lab.call(at(1)), tasks: vec![new("c")] }));
    lab.refused(&GiveUp(claim(at(1), 1)));
    let pause = PauseQueue { call: lab.call(at(1)), queue: "mine".into(), paused: true };
    assert!(lab.run(&GiveUp(pause)).is_err());
    let tx = subject.block_on(lab.store.begin(Access::Write)).unwrap();
    drop(tx);
    assert_eq!(lab.picture(at(1)).normal(), before);
    lab.add(at(1), &[new("c")]);
    lab.check();
}

/// P1: what one handle wrote, the next transaction of another sees.
pub fn what_others_wrote_is_seen<S: Subject>(subject: &S) {
    let one = Lab::new(subject);
    let two = one.another();
    one.add(at(0), &[new("a"), after("b", &["a"])]);
    let task = two.take(at(1), "a");
    assert_eq!(one.task("a"), task);
    one.must(at(2), "a", done(holder(&task)));
    assert_eq!(two.claim(at(3), 9), ["b"]);
    two.publish(at(4), r#"{"queues":{"tasks":{"maxConcurrent":1}}}"#);
    one.add(at(4), &[new("c")]);
    assert_eq!(one.claim(at(4), 9), Vec::<String>::new());
    assert_eq!(one.picture(at(5)).normal(), two.picture(at(5)).normal());
    assert_eq!(one.picture(at(5)).rows.len(), 3);
    assert!(two.picture(at(5)).events.iter().all(|event| event.scope == SCOPE));
    one.check();
}
