//! Lease tokens and `now`: what the store decides for agents that are not trusted.

use rota_core::{LeaseId, Refusal, Status, Task, TaskId, UnixMillis, limits};

use crate::lab::{after, at, claim_by_id, done, holder, id, in_queue, new};
use crate::{Lab, Subject};
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::claim::ClaimById;
use rota_store::intents::iterate::Complete;
use rota_store::intents::lease_token::{CreateLinked, CurrentLease, Kinship, LeaseLookup};
use rota_store::intents::loops::AddLoop;
use rota_store::intents::read::Show;

/// CONTRACTS 1: an intent that writes takes no `now` that the store's clock has not reached; one that reads does.
pub fn a_future_now_is_only_for_reading<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a")]);
    let future = UnixMillis::new(4_000_000_000_000);
    let call = |allow_future| Call { allow_future, ..lab.call(future) };
    let claim = |allow_future| ClaimById { call: call(allow_future), ..claim_by_id(future, "a") };
    let before = lab.task("a");
    let refused = lab.refused(&claim(false));
    assert!(
        matches!(refused, Refusal::NowAhead { now, clock } if now == future && clock < now),
        "{refused:?}"
    );
    assert!(matches!(
        lab.refused(&Add { call: call(false), tasks: vec![new("b")] }),
        Refusal::NowAhead { .. }
    ));
    assert_eq!(lab.task("a"), before);
    assert_eq!(lab.ok(&Show { call: call(false), id: id("a") }).0.task, before);
    assert_eq!(lab.ok(&claim(true)).task.status, Status::Active);
    let past = Call { allow_future: false, ..lab.call(at(-1_000_000)) };
    assert_eq!(lab.ok(&Add { call: past, tasks: vec![new("c")] }).len(), 1);
    lab.check();
}

fn lease(task: &Task) -> LeaseId {
    task.lease().unwrap()
}

/// A token's lease is looked up with how another task is related to its own: strangers and tasks that do not exist look
/// the same.
pub fn a_token_knows_its_kin<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let below = |name: &str, parent: &str| NewTask { parent: Some(id(parent)), ..new(name) };
    lab.add(at(0), &[new("root"), new("blocker"), after("stranger", &["blocker"])]);
    lab.add(at(0), &[below("above", "root"), below("uncle", "root")]);
    lab.finish(at(1), "root");
    lab.finish(at(1), "above");
    lab.add(at(1), &[NewTask { parent: Some(id("above")), ..after("own", &["blocker"]) }]);
    lab.finish(at(1), "blocker");
    let own = lab.take(at(2), "own");
    lab.add(at(2), &[below("child", "own"), below("sibling", "above")]);
    lab.add(at(2), &[below("grandchild", "child")]);
    let look = |now, named: Option<TaskId>| LeaseLookup { call: lab.call(now), lease: lease(&own), named };
    for (name, kinship) in [
        ("own", Some(Kinship::Own)),
        ("above", Some(Kinship::Ancestor)),
        ("root", Some(Kinship::Ancestor)),
        ("blocker", Some(Kinship::Blocker)),
        ("child", Some(Kinship::Child)),
        ("grandchild", None),
        ("sibling", None),
        ("uncle", None),
        ("stranger", None),
        ("nobody", None),
    ] {
        let current = lab.ok(&look(at(3), Some(id(name))));
        assert_eq!(current.map(|current| current.kinship), Some(kinship), "{name}");
    }
    let expired = |now| lab.ok(&look(now, None)).map(|CurrentLease { is_expired, .. }| is_expired);
    assert_eq!((expired(at(601)), expired(at(602))), (Some(false), Some(true)));
    lab.must(at(700), "own", done(holder(&own)));
    assert_eq!(lab.ok(&look(at(700), None)), None, "settled");
    lab.check();
}

/// An agent's tasks are linked to its own and counted there, up to a limit, where the policy lets it.
pub fn agents_create_linked_tasks<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"mine":{"agentsMayCreate":false}}}"#);
    lab.add(at(0), &[new("own")]);
    let own = lab.take(at(0), "own");
    let create = |task: NewTask| CreateLinked { call: lab.call(at(1)), task, lease: lease(&own) };
    let refused = lab.refused(&create(in_queue("x", "mine")));
    assert_eq!(refused, Refusal::AgentsMayNotCreate { queue: "mine".into() });
    assert!(matches!(lab.refused(&create(new("own"))), Refusal::DuplicateId { .. }));
    for number in 0..limits::TOKEN_TASKS {
        let filed = lab.ok(&create(new(&format!("filed-{number}"))));
        assert_eq!(filed.discovered_from, Some(id("own")));
    }
    assert_eq!(lab.task("own").filed as usize, limits::TOKEN_TASKS);
    assert!(matches!(lab.refused(&create(new("more"))), Refusal::AgentLimit { what: "created tasks", .. }));
    let late = lab.task("own");
    lab.must(at(2), "own", done(holder(&late)));
    assert!(matches!(lab.refused(&create(new("late"))), Refusal::NotActive { .. }));
    lab.check();
}

/// An agent adds a bounded number of children below its own loop, by its token and by completing it together.
pub fn agents_add_a_bounded_number_of_children<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[in_queue("p", "loops")]);
    let parent = lab.take(at(0), "p");
    let child = |number: usize| NewTask { parent: Some(id("p")), ..in_queue(&format!("c{number}"), "loops") };
    let first: Vec<NewTask> = (1..limits::AGENT_CHILDREN).map(child).collect();
    lab.add(at(1), &first);
    let add = |number, by_token| AddLoop {
        call: lab.call(at(2)),
        task: child(number),
        lease: Some(lease(&parent)),
        by_token,
    };
    let complete = |numbers: &[usize]| Complete {
        call: lab.call(at(3)),
        lease: lease(&parent),
        result: None,
        upstream: None,
        children: numbers.iter().map(|number| child(*number)).collect(),
        artifacts: None,
        then: None,
    };
    let refused = lab.refused(&complete(&[limits::AGENT_CHILDREN, limits::AGENT_CHILDREN + 1]));
    assert!(matches!(refused, Refusal::AgentLimit { count: 1_001, limit: 1_000, .. }), "{refused:?}");
    assert_eq!(lab.task("p").status, Status::Active);
    lab.ok(&add(limits::AGENT_CHILDREN, true));
    let refused = lab.refused(&add(limits::AGENT_CHILDREN + 1, true));
    assert!(matches!(refused, Refusal::AgentLimit { what: "children", .. }), "{refused:?}");
    assert!(matches!(lab.refused(&complete(&[limits::AGENT_CHILDREN + 1])), Refusal::AgentLimit { .. }));
    lab.ok(&add(limits::AGENT_CHILDREN + 1, false));
    // Without new children it is done.
    lab.ok(&complete(&[]));
}
