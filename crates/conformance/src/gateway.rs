//! What the gateway keeps: usage, tokens, blocks that several gates write.

use rota_core::obstacle::Wait;
use rota_core::policy::GateLevel;
use rota_core::{Status, UnixMillis};

use crate::lab::{at, claim, done, held, id, new, of_kind};
use crate::{Lab, Subject};
use rota_store::intents::add::{NewPriority, NewTask};
use rota_store::intents::blocks::{KeepBlock, NoteBudget, Unblock, UpstreamWaits};
use rota_store::intents::gateway::{
    FindGateToken, LevelOfLease, MakeGateToken, NoteUsage, ParkSpent, Used, day_of,
};
use rota_store::{UsageFilter, UsageRow};

/// What is used is added up per task, day, upstream and model.
pub fn usage_adds_up<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let row = |task: &str, model: &str| UsageRow {
        scope: lab.call(at(0)).scope,
        task: task.into(),
        upstream: "anthropic".into(),
        model: model.into(),
        requests: 1,
        input_tokens: 10,
        output_tokens: 20,
        cache_read_tokens: 3,
        wait_ms: 7,
        spend_nanos: 1_000_000_007,
        ..UsageRow::default()
    };
    let tomorrow = at(86_400);
    let note = |now, rows| lab.ok(&NoteUsage { call: lab.call(now), rows });
    note(at(0), vec![row("a", "opus"), row("a", "opus"), row("a", "haiku"), row("", "")]);
    note(tomorrow, vec![row("a", "opus")]);
    let used = |filter: UsageFilter| lab.another().ok(&Used { call: lab.call(at(0)), filter }).1;
    let of_a = used(UsageFilter { task: Some("a".into()), ..UsageFilter::default() });
    let shown: Vec<_> = of_a.iter().map(|row| (row.model.as_str(), row.day, row.requests)).collect();
    let (today, next) = (day_of(at(0)), day_of(tomorrow));
    assert_eq!(shown, [("haiku", today, 1), ("opus", today, 2), ("opus", next, 1)]);
    let twice = &of_a[1];
    assert_eq!((twice.input_tokens, twice.output_tokens, twice.cache_read_tokens), (20, 40, 6));
    assert_eq!((twice.wait_ms, twice.spend_nanos), (14, 2_000_000_014));
    assert_eq!(used(UsageFilter { day: Some(next), ..UsageFilter::default() }).len(), 1);
    assert_eq!(used(UsageFilter { scope: Some("other".into()), ..UsageFilter::default() }), []);
    assert_eq!(used(UsageFilter::default()).len(), 4);
}

/// A lease says how urgent its calls are while it lasts: by the task, its ancestors, its kind.
pub fn leases_have_a_level<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let unset = |task: NewTask| NewTask { priority: NewPriority::Unset, ..task };
    let below = |name: &str, parent: &str| {
        unset(NewTask { parent: Some(id(parent)), ..of_kind(name, "loops", "phase") })
    };
    let urgent = NewTask { priority: NewPriority::Given(0), ..of_kind("urgent", "loops", "plan") };
    lab.add(
        at(0),
        &[urgent, unset(of_kind("plan", "loops", "plan")), unset(of_kind("spec", "loops", "spec"))],
    );
    lab.add(at(0), &[NewTask { priority: NewPriority::Given(9), ..new("slow") }]);
    let level = |task: &str, fence: u64| {
        let call = lab.call(at(9));
        let ask = LevelOfLease { call, task: id(task), fence: rota_core::Fence::new(fence) };
        lab.ok(&ask).map(|held| held.level)
    };
    assert_eq!(level("urgent", 1), None, "not held");
    lab.claimed(&rota_store::intents::claim::Claim { queue: "loops".into(), ..claim(at(1), 9) });
    lab.take(at(1), "slow");
    for (task, expected) in [
        ("urgent", GateLevel::Critical),
        ("plan", GateLevel::High),
        ("spec", GateLevel::Normal),
        ("slow", GateLevel::Low),
    ] {
        assert_eq!(level(task, 1), Some(expected), "{task}");
        assert_eq!(level(task, 2), None, "{task}: another grant");
    }
    lab.must(at(2), "urgent", done(held("urgent", 1)));
    assert_eq!(level("urgent", 1), None, "ended");
    assert_eq!(level("nobody", 1), None);
    lab.add(at(3), &[below("child", "urgent")]);
    lab.claimed(&rota_store::intents::claim::Claim { queue: "loops".into(), ..claim(at(4), 9) });
    assert_eq!(level("child", 1), Some(GateLevel::Critical), "the parent's");
}

/// The level of a lease is known with the time it has left, and not once that is over, reclaimed or not.
pub fn an_expired_lease_has_no_level<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a")]);
    lab.take(at(0), "a");
    let held = |now| {
        let call = lab.call(at(now));
        lab.ok(&LevelOfLease { call, task: id("a"), fence: rota_core::Fence::new(1) })
    };
    let left = held(0).map(|held| held.left_ms);
    let secs = i64::try_from(left.unwrap_or_default() / 1_000).unwrap_or_default();
    assert!(secs > 1, "{left:?}");
    assert_eq!(held(secs - 1).map(|held| held.left_ms), Some(1_000));
    assert_eq!(held(secs), None);
}

/// Figures that no store could keep stay at the largest one, and so do their sums.
pub fn usage_stays_within_bounds<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let most = u64::try_from(i64::MAX).unwrap_or_default();
    let row = |figure| UsageRow {
        scope: "default".into(),
        task: "a".into(),
        upstream: "anthropic".into(),
        model: "m".into(),
        requests: 1,
        input_tokens: figure,
        spend_nanos: figure,
        ..UsageRow::default()
    };
    for figure in [u64::MAX, most, 7] {
        lab.ok(&NoteUsage { call: lab.call(at(0)), rows: vec![row(figure)] });
        let (_, rows) = lab.ok(&Used { call: lab.call(at(0)), filter: UsageFilter::default() });
        assert_eq!((rows[0].input_tokens, rows[0].spend_nanos), (most, most), "after {figure}");
    }
}

/// A task that has spent its budget is parked with the reason, whoever holds it; one that has ended is not touched.
pub fn a_spent_task_is_parked<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), new("b"), new("c")]);
    lab.take(at(1), "a");
    lab.take(at(1), "c");
    lab.must(at(2), "c", done(held("c", 1)));
    let park = |task: &str| {
        lab.ok(&ParkSpent { call: lab.call(at(3)), task: id(task), reason: "the money is spent".into() })
    };
    assert_eq!((park("a"), park("b"), park("c"), park("nobody")), (true, true, false, false));
    for (task, status) in [("a", Status::Parked), ("b", Status::Parked), ("c", Status::Done)] {
        let row = lab.task(task);
        let reason = (status == Status::Parked).then_some("the money is spent");
        assert_eq!((row.status, row.parked_reason.as_deref()), (status, reason), "{task}");
    }
}

/// A spent budget is a wait of its own beside the block, until it begins anew or is raised.
pub fn a_spent_budget_is_a_wait<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let upstreams = vec!["anthropic".to_owned(), "openai".to_owned()];
    let note = |now, spent: Option<i64>| {
        let spent = spent.map(|until| ("usd_per_day".to_owned(), at(until)));
        lab.ok(&NoteBudget { call: lab.call(at(now)), upstreams: vec!["anthropic".into()], spent });
    };
    let waits = |now| lab.ok(&UpstreamWaits { call: lab.call(at(now)), upstreams: upstreams.clone() });
    note(0, None);
    assert_eq!(waits(0), []);
    note(1, Some(50));
    let spent = Wait::BudgetSpent { budget: "usd_per_day".into(), until: at(50) };
    assert_eq!(waits(2), [("anthropic".to_owned(), spent.clone())]);
    let call = lab.call(at(3));
    let reason = "rate limited".to_owned();
    lab.ok(&KeepBlock { call, upstream: "anthropic".into(), until: Some(at(9)), hits: 1, reason });
    let limited = Wait::RateLimited { upstream: "anthropic".into(), until: Some(at(9)) };
    let both = [("anthropic".to_owned(), limited), ("anthropic".to_owned(), spent)];
    assert_eq!(waits(4), both);
    lab.ok(&Unblock { call: lab.call(at(5)), upstream: "anthropic".into() });
    assert_eq!(waits(6), both[1..], "unblocking earns no money");
    assert_eq!(waits(50), [], "it begins anew");
    note(7, None);
    assert_eq!(waits(8), [], "it was raised");
}

/// A token is found by its hash until its time is over.
pub fn gate_tokens_are_found_until_they_expire<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[NewTask { priority: NewPriority::Given(1), ..new("a") }]);
    let make = |hash: &str, task: Option<&str>, level, ttl_ms| MakeGateToken {
        call: lab.call(at(0)),
        hash: hash.into(),
        task: task.map(id),
        level,
        ttl_ms,
    };
    lab.ok(&make("h1", Some("a"), None, Some(5_000)));
    lab.ok(&make("h2", None, Some(GateLevel::Low), None));
    lab.ok(&make("h3", None, None, None));
    lab.refused(&make("h4", Some("nobody"), None, None));
    let find = |hash: &str, now: UnixMillis| {
        let found = lab.another().ok(&FindGateToken { call: lab.call(now), hash: hash.into() });
        found.map(|(token, level)| (token.task, level))
    };
    assert_eq!(find("h1", at(4)), Some((Some("a".into()), GateLevel::High)));
    assert_eq!(find("h1", at(5)), None, "its time is over");
    assert_eq!(find("h2", at(9_999)), Some((None, GateLevel::Low)));
    assert_eq!(find("h3", at(9_999)), Some((None, GateLevel::Normal)));
    assert_eq!(find("h4", at(1)), None, "refused, so not kept");
}

/// Of two gates the longer block counts; one that forgets its own ends no other; a person ends any.
pub fn the_longer_block_counts<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let keep = |now, until: Option<i64>, hits| {
        let call = lab.call(at(now));
        let reason = "rate limited".to_owned();
        let row = KeepBlock { call, upstream: "anthropic".into(), until: until.map(at), hits, reason };
        let row = lab.ok(&row);
        (row.blocked_until, row.hits)
    };
    assert_eq!(keep(0, Some(30), 1), (Some(at(30)), 1));
    assert_eq!(keep(1, Some(20), 2), (Some(at(30)), 2), "a shorter one changes only the count");
    assert_eq!(keep(2, Some(2), 0), (Some(at(30)), 2), "forgetting ends no block that stands");
    assert_eq!(keep(31, Some(31), 0), (Some(at(31)), 0));
    assert_eq!(keep(32, None, 1), (None, 1));
    assert_eq!(keep(33, Some(99), 1), (None, 1), "until somebody unblocks it");
    let row = lab.ok(&Unblock { call: lab.call(at(34)), upstream: "anthropic".into() });
    assert_eq!((row.blocked_until, row.hits), (Some(at(34)), 0));
    assert_eq!(keep(35, Some(40), 1), (Some(at(40)), 1));
}
