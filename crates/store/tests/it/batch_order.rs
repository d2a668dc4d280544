//! A batch against the serial order of its calls, where the calls meet: blockers and their dependents, expired leases,
//! ceilings, queues that do not exist yet.

use proptest::prelude::*;
use rota_conformance::lab::{after, at, held, id, in_queue, new, of_kind};
use rota_conformance::{Snapshot, check_everything};
use rota_core::glob::Globs;
use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, Policy, UnixMillis};
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::batch::{Batch, BatchCall};
use rota_store::intents::claim::{Claim, ClaimById, Wanted};
use rota_store::intents::edges::Block;
use rota_store::intents::policy::PublishPolicy;
use rota_store::intents::settle::{Settle, Step, StepAndView};
use rota_store::memory::MemoryStore;
use rota_store::sqlite::SqliteStore;
use rota_store::{Intent, Store};
use rota_testbed::Server;

use crate::batches::shown;
use crate::pg::{open, run};
use crate::subjects::quick_folder;

/// What a store holds before the batch.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a few values per test")]
enum Before {
    Add(NewTask),
    /// Held under a live lease, with fence 1 the first time.
    Held(&'static str),
    /// Held under a lease that expired long ago.
    Expired(&'static str),
    Block(&'static str, &'static str),
    Policy(&'static str),
}

fn call() -> Call {
    Call::in_scope("default")
}

fn take(call: Call, name: &str) -> ClaimById {
    let (agent, wanted) = (Some("w".to_owned()), Wanted::default());
    ClaimById { call, id: id(name), agent, ttl_ms: None, wanted, host: None }
}

async fn prepare(store: &impl Store, before: &[Before]) {
    async fn ok<I: Intent>(store: &impl Store, intent: I) {
        store.perform(&intent).await.map(drop).unwrap_or_else(|error| panic!("{error}"));
    }
    for step in before {
        match step.clone() {
            Before::Add(task) => ok(store, Add { call: call().at(at(0)), tasks: vec![task] }).await,
            Before::Held(name) => ok(store, take(call(), name)).await,
            Before::Expired(name) => ok(store, take(call().at(at(1)), name)).await,
            Before::Block(task, by) => ok(store, Block { call: call(), task: id(task), by: id(by) }).await,
            Before::Policy(document) => {
                let policy = Policy::parse(document).unwrap();
                ok(store, PublishPolicy { call: call().at(at(0)), policy, based_on: None }).await;
            }
        }
    }
}

/// Carries out the calls as one batch, and one by one on the reference; then both must agree in every answer, and the
/// store with the rules.
async fn equals_its_calls(store: &impl Store, before: &[Before], calls: &[BatchCall]) {
    let reference = MemoryStore::new();
    prepare(store, before).await;
    prepare(&reference, before).await;
    let heard = store.perform(&Batch { calls }).await.unwrap();
    for (call, heard) in calls.iter().zip(heard) {
        let alone = reference.perform(&Batch { calls: std::slice::from_ref(call) }).await.unwrap();
        assert_eq!(shown(&heard), shown(&alone[0]), "{call:?}");
    }
    for now in [UnixMillis::MIN, UnixMillis::MAX] {
        let picture = Snapshot { scope: "default".to_owned(), now };
        check_everything(&store.perform(&picture).await.unwrap());
    }
}

fn check(before: &[Before], calls: &[BatchCall]) {
    run(async {
        equals_its_calls(&MemoryStore::new(), before, calls).await;
        let folder = quick_folder();
        let sqlite = SqliteStore::open(&folder.path().join("rota.db")).unwrap();
        equals_its_calls(&sqlite, before, calls).await;
        equals_its_calls(&open(&Server::shared().fresh_url()).await, before, calls).await;
    });
}

fn claim_of(queue: &str, limit: usize) -> Claim {
    let (agent, wanted) = (Some("w".to_owned()), Wanted::default());
    Claim { call: call(), queue: queue.to_owned(), limit, agent, ttl_ms: None, wanted, host: None }
}

fn claim(queue: &str, limit: usize) -> BatchCall {
    BatchCall::Claim(claim_of(queue, limit))
}

fn add(task: NewTask) -> BatchCall {
    BatchCall::Add(Add { call: call(), tasks: vec![task] })
}

fn command(word: &str, caller: Caller) -> Command {
    match word {
        "done" => Command::Done { caller, result: None },
        "renew" => Command::Renew { caller, ttl_ms: None },
        "end" => Command::Renew { caller, ttl_ms: Some(0) },
        "release" => Command::Release { caller },
        "fail" => Command::Fail { caller, reason: None, default_reason: FAILED_REASON },
        "pause" => Command::Pause,
        "resume" => Command::Resume,
        _ => Command::Park { caller, reason: "a reason".to_owned() },
    }
}

/// A step by the holder of the first lease.
fn step(word: &str, name: &str) -> Step {
    Step { id: id(name), command: command(word, held(name, 1)) }
}

fn one(word: &str, name: &str) -> BatchCall {
    BatchCall::Step(StepAndView { call: call(), step: step(word, name), then: None })
}

fn then(word: &str, name: &str, queue: &str) -> BatchCall {
    let then = Some(claim_of(queue, 1));
    BatchCall::Step(StepAndView { call: call(), step: step(word, name), then })
}

fn many(steps: &[(&str, &str)]) -> BatchCall {
    let steps = steps.iter().map(|(word, name)| step(word, name)).collect();
    BatchCall::Settle(Settle { call: call(), steps, then: None })
}

/// A held task that waits for two others, which are held too.
fn a_holder_with_blockers() -> Vec<Before> {
    let add = ["a", "b", "own"].map(|name| Before::Add(new(name)));
    let held = ["a", "b", "own"].map(Before::Held);
    let blocks = [Before::Block("own", "a"), Before::Block("own", "b")];
    add.into_iter().chain(held).chain(blocks).collect()
}

/// A blocker that is done counts for its dependent, whatever the dependent does in the same batch.
#[test]
fn a_blocker_and_its_dependent() {
    for word in ["renew", "park", "release", "fail", "pause"] {
        let before = a_holder_with_blockers();
        check(&before, &[one("done", "a"), one(word, "own")]);
        check(&before, &[one("done", "a"), one(word, "own"), one("done", "b"), claim("tasks", 1)]);
        check(&before, &[many(&[("done", "a"), (word, "own")])]);
        check(&before, &[many(&[("done", "a"), (word, "own"), ("done", "b")]), claim("tasks", 1)]);
        check(&before, &[one(word, "own"), one("done", "a"), one("done", "b"), claim("tasks", 1)]);
    }
}

/// A queue that one call of the batch makes exists for the next.
#[test]
fn a_queue_that_is_new() {
    check(&[], &[add(in_queue("x", "fresh")), claim("fresh", 1)]);
    check(&[], &[claim("fresh", 1), add(in_queue("x", "fresh")), claim("fresh", 1)]);
    check(&[], &[add(in_queue("x", "fresh")), add(in_queue("y", "fresh")), claim("fresh", 2)]);
}

#[test]
fn expired_leases() {
    let before =
        || vec![Before::Add(new("x")), Before::Add(new("y")), Before::Expired("x"), Before::Expired("y")];
    for calls in [
        vec![claim("tasks", 1), one("done", "x"), one("done", "y")],
        vec![one("done", "x"), claim("tasks", 2)],
        vec![one("renew", "x"), claim("tasks", 2), one("done", "x")],
        vec![many(&[("done", "x"), ("renew", "y")]), claim("tasks", 1)],
        vec![then("release", "x", "tasks"), one("done", "y")],
    ] {
        check(&before(), &calls);
    }
    // A reclaimed task that waits for others keeps count of them.
    let blocked = ["a", "own"].map(|name| Before::Add(new(name)));
    let held = [Before::Held("a"), Before::Expired("own"), Before::Block("own", "a")];
    let blocked: Vec<Before> = blocked.into_iter().chain(held).collect();
    check(&blocked, &[one("done", "a"), claim("tasks", 1)]);
    check(&blocked, &[claim("tasks", 1), one("done", "a"), claim("tasks", 1)]);
    // A lease that a call of the batch ends at once is reclaimed by the next claim.
    let held = [Before::Add(new("x")), Before::Held("x")];
    check(&held, &[claim("tasks", 1), one("end", "x"), claim("tasks", 1)]);
}

#[test]
fn ceilings() {
    const ONE: &str = r#"{"queues":{"tasks":{"maxConcurrent":1}}}"#;
    const KINDS: &str = r#"{"queues":{"tasks":{"perKind":{"k":1}}}}"#;
    let tasks = || ["a", "b", "c"].map(|name| Before::Add(of_kind(name, "tasks", "k"))).into_iter();
    for policy in [ONE, KINDS] {
        let free: Vec<Before> = [Before::Policy(policy)].into_iter().chain(tasks()).collect();
        check(&free, &[claim("tasks", 2), one("done", "a"), claim("tasks", 2), claim("tasks", 1)]);
        check(&free, &[claim("tasks", 1), then("release", "a", "tasks"), claim("tasks", 1)]);
        let taken: Vec<Before> = free.iter().cloned().chain([Before::Held("b")]).collect();
        check(&taken, &[claim("tasks", 1), one("park", "b"), claim("tasks", 1)]);
        check(&taken, &[then("done", "b", "tasks"), then("done", "a", "tasks"), claim("tasks", 1)]);
    }
}

#[test]
fn what_is_ready_next() {
    let tasks: Vec<Before> = ["a", "b", "c"].map(|name| Before::Add(new(name))).into();
    let waiting: Vec<Before> =
        [Before::Add(new("a")), Before::Held("a"), Before::Add(after("late", &["a"]))].into();
    check(&waiting, &[claim("tasks", 1), then("done", "a", "tasks"), claim("tasks", 1)]);
    check(&tasks, &[claim("tasks", 2), one("release", "a"), claim("tasks", 2)]);
    check(&tasks, &[one("pause", "a"), claim("tasks", 1), one("resume", "a"), claim("tasks", 2)]);
    check(&tasks, &[one("park", "b"), claim("tasks", 3)]);
    check(&tasks, &[add(new("d")), claim("tasks", 4), add(new("d")), one("done", "d")]);
    check(&tasks, &[add(new("d")), one("pause", "d"), claim("tasks", 4)]);
}

/// The first claim of a batch is read ahead; the others may want another queue, category or spec.
#[test]
fn claims_that_differ() {
    let of = |name: &str, category: &str, spec: &str| NewTask {
        category: Some(category.to_owned()),
        spec_ref: Some(spec.to_owned()),
        ..new(name)
    };
    let tasks = [of("a", "x", "s1"), of("b", "y", "s2"), of("c", "x", "s2"), of("d", "y", "s1")];
    let tasks: Vec<Before> = tasks.into_iter().map(Before::Add).collect();
    let wanted = |category: Option<&str>, specs: Option<&str>| {
        let wanted = Wanted { category: category.map(str::to_owned), specs: specs.map(Globs::parse) };
        BatchCall::Claim(Claim { wanted, ..claim_of("tasks", 1) })
    };
    let (x, y, s1, s2) = (
        wanted(Some("x"), None),
        wanted(Some("y"), None),
        wanted(None, Some("s1")),
        wanted(None, Some("s2")),
    );
    let any = claim("tasks", 1);
    for calls in [
        [any.clone(), y.clone(), s2.clone(), any.clone()],
        [y.clone(), any.clone(), x.clone(), s1.clone()],
        [s2.clone(), any.clone(), s1.clone(), x.clone()],
        [x, s2, y, any],
    ] {
        check(&tasks, &calls);
    }
    const BOTH: &str = r#"{"queues":{"tasks":{"maxConcurrent":1},"runs":{"maxConcurrent":1}}}"#;
    let two = [Before::Policy(BOTH), Before::Add(new("a")), Before::Add(in_queue("r", "runs"))];
    let held: Vec<Before> = two.iter().cloned().chain([Before::Held("a")]).collect();
    check(&held, &[claim("tasks", 1), claim("runs", 1), claim("runs", 1)]);
    let expired: Vec<Before> = two.into_iter().chain([Before::Expired("a"), Before::Expired("r")]).collect();
    check(&expired, &[claim("tasks", 1), claim("runs", 1), claim("tasks", 1)]);
}

const NAMES: [&str; 7] = ["a", "b", "c", "own", "late", "new", "more"];
const WORDS: [&str; 8] = ["done", "renew", "end", "release", "fail", "park", "pause", "resume"];

fn any_step() -> impl Strategy<Value = Step> {
    (0..NAMES.len(), 1..3_u64, 0..WORDS.len()).prop_map(|(name, fence, word)| Step {
        id: id(NAMES[name]),
        command: command(WORDS[word], held(NAMES[name], fence)),
    })
}

fn any_call() -> impl Strategy<Value = BatchCall> {
    let queue = || prop_oneof![4 => Just("tasks"), 1 => Just("fresh")];
    let next = || prop::option::of(queue()).prop_map(|queue| queue.map(|queue| claim_of(queue, 1)));
    prop_oneof![
        2 => (1..4_usize, queue()).prop_map(|(limit, queue)| claim(queue, limit)),
        4 => (any_step(), next()).prop_map(|(step, then)| BatchCall::Step(StepAndView { call: call(), step, then })),
        2 => (prop::collection::vec(any_step(), 2..5), next())
            .prop_map(|(steps, then)| BatchCall::Settle(Settle { call: call(), steps, then })),
        1 => (5..NAMES.len(), queue()).prop_map(|(name, queue)| add(in_queue(NAMES[name], queue))),
    ]
}

fn any_before() -> impl Strategy<Value = Vec<Before>> {
    let policy = prop_oneof![
        2 => Just(r"{}"),
        1 => Just(r#"{"queues":{"tasks":{"maxConcurrent":2}}}"#),
        1 => Just(r#"{"queues":{"tasks":{"maxAttempts":1}}}"#),
    ];
    (policy, prop::collection::vec(0..3_u8, 4), prop::sample::subsequence(vec![0, 1, 2, 3], 0..=4)).prop_map(
        |(policy, held, edges)| {
            let names = ["a", "b", "c", "own"];
            let mut before = vec![Before::Policy(policy)];
            before.extend(names.map(|name| Before::Add(new(name))));
            before.push(Before::Add(after("late", &["own", "c"])));
            // Whatever a ceiling leaves out stays open.
            let mut room = if policy.contains("maxConcurrent") { 2 } else { 4 };
            for (name, held) in names.into_iter().zip(held) {
                if held > 0 && room > 0 {
                    room -= 1;
                    before.push(if held == 1 { Before::Held(name) } else { Before::Expired(name) });
                }
            }
            let all = [("own", "a"), ("own", "b"), ("b", "c"), ("c", "a")];
            before.extend(edges.into_iter().map(|edge| Before::Block(all[edge].0, all[edge].1)));
            before
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_batch_equals_its_calls(before in any_before(), calls in prop::collection::vec(any_call(), 1..8)) {
        check(&before, &calls);
    }
}
