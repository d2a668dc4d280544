//! S6, P1: a process that ends at a named point leaves all of its intent or nothing, journal included.

use std::os::unix::process::ExitStatusExt;

use rota_conformance::lab::{after, at, claim, done, held, id, new};
use rota_conformance::{Lab, Subject};
use rota_core::transition::Command;
use rota_core::{Policy, plan_sync};
use rota_store::intents::Call;
use rota_store::intents::add::Add;
use rota_store::intents::edges::Block;
use rota_store::intents::plan_sync::PlanSync;
use rota_store::intents::policy::{PauseQueue, PublishPolicy};
use rota_store::intents::settle::{Settle, Step};
use rota_store::sqlite::SqliteStore;
use rota_store::{Outcome, Store};
use rota_testbed::block_on;

use crate::children::{Child, Stage, command};
use crate::subjects::{Memory, Sqlite};

const INTENTS: [&str; 7] = ["add", "claim", "settle", "block", "plan", "publish", "pause"];

fn set_up<S: Subject>(lab: &Lab<'_, S>) {
    lab.add(at(0), &[new("a"), new("b"), after("c", &["a", "b"]), after("d", &["c"])]);
    lab.take(at(0), "a");
    lab.take(at(0), "b");
    lab.must(at(0), "b", done(held("b", 1)));
}

fn perform<S: Store>(store: &S, intent: &str) -> Outcome<()> {
    let call = Call::in_scope("default").at(at(1));
    match intent {
        "add" => {
            block_on(store.perform(&Add { call, tasks: vec![new("x"), after("y", &["x", "a"])] })).map(drop)
        }
        "claim" => block_on(store.perform(&claim(at(9_999), 5))).map(drop),
        "settle" => {
            let step = Step { id: id("a"), command: done(held("a", 1)) };
            let delete = Step { id: id("b"), command: Command::Delete };
            block_on(store.perform(&Settle { call, steps: vec![step, delete], then: Some(claim(at(1), 5)) }))
                .map(drop)
        }
        "block" => block_on(store.perform(&Block { call, task: id("d"), by: id("a") })),
        "plan" => {
            let text = b"{\"id\":\"p\",\"t\":\"P\",\"deps\":[\"q\"]}\n{\"id\":\"q\",\"t\":\"Q\"}\n{\"id\":\"c\",\"t\":\"C\"}";
            let lines = plan_sync::read(text).unwrap().lines;
            let plan = PlanSync { call, queue: "tasks".into(), lines, specs: None, dry_run: false };
            block_on(store.perform(&plan)).map(drop)
        }
        "publish" => {
            let policy = Policy::parse(r#"{"queues":{"tasks":{"score":{}}}}"#).unwrap();
            block_on(store.perform(&PublishPolicy { call, policy, based_on: None })).map(drop)
        }
        "pause" => {
            block_on(store.perform(&PauseQueue { call, queue: "issues".into(), paused: true })).map(drop)
        }
        other => panic!("there is no intent '{other}'"),
    }
}

/// The role `crasher`: carries out one intent, and does not come back where a crash point is set.
pub fn perform_and_crash(stage: &Stage) {
    let store = SqliteStore::open(&stage.store).unwrap();
    perform(&store, &stage.extra).unwrap();
    stage.say("done");
}

/// S6, P1: before it begins, after it wrote, after it committed: nothing, nothing, all; and the next one goes on.
#[test]
fn a_crash_leaves_all_or_nothing() {
    for intent in INTENTS {
        let reference = Lab::new(&Memory);
        set_up(&reference);
        let before = reference.picture(at(2)).normal();
        perform(&reference.store, intent).unwrap();
        let after = reference.picture(at(2)).normal();
        assert_ne!(before, after, "{intent} changes something");
        for (point, wanted) in [("before_begin", &before), ("after_write", &before), ("after_commit", &after)]
        {
            let subject = Sqlite::default();
            let lab = Lab::new(&subject);
            set_up(&lab);
            let mut command = command("crasher", lab.store.path(), intent);
            command.env("ROTA_CRASH_POINT", point);
            let mut child = Child::spawn(command);
            assert_eq!(child.hear(), None, "{intent} at {point}: it does not come back");
            let (status, words) = child.end();
            assert_eq!(status.signal(), Some(6), "{intent} at {point}: {words}");
            // Through a new handle, as the next process would see it.
            let next = lab.another();
            assert_eq!(next.picture(at(2)).normal(), *wanted, "{intent} at {point}");
            next.check();
            if point != "after_commit" {
                perform(&next.store, intent).unwrap();
                assert_eq!(next.picture(at(2)).normal(), after, "{intent} after {point}");
            }
        }
    }
}

/// The points are where they are said to be: without one set, or with another's name, nothing happens.
#[test]
fn an_unknown_point_crashes_nobody() {
    let subject = Sqlite::default();
    let lab = Lab::new(&subject);
    set_up(&lab);
    let mut command = command("crasher", lab.store.path(), "claim");
    command.env("ROTA_CRASH_POINT", "nowhere");
    let mut child = Child::spawn(command);
    assert_eq!(child.must_hear(), "done");
    assert!(child.end().0.success());
}
