//! What the modules share: short names, a task with every field set, one command per verb.

use proptest::test_runner::Config;
use rota_core::backoff::Backoff;
use rota_core::transition::{Applied, Command, FAILED_REASON, RateLimit, Verb, apply};
use rota_core::{Caller, Fence, Json, LeaseId, QueuePolicy, Refusal, Status, Task, TaskId, UnixMillis};

/// The `now` of most tests.
pub const NOW: UnixMillis = UnixMillis::new(1_000);

/// So many cases, or as many as the long command asks for.
pub fn config(cases: u32) -> Config {
    let wanted = std::env::var("ROTA_PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    Config { cases: wanted.unwrap_or(cases), ..Config::default() }
}

pub fn id(text: &str) -> TaskId {
    TaskId::new(text).unwrap()
}

pub fn at(millis: i64) -> UnixMillis {
    UnixMillis::new(millis)
}

pub fn lease(fence: u64) -> LeaseId {
    LeaseId { task: id("t"), fence: Fence::new(fence) }
}

/// A task of queue `tasks` in this state with every field that a verb could touch set to something, as it would be
/// had it come there by the state machine: leases only on active tasks, ends only on finished ones.
pub fn task_in(status: Status) -> Task {
    let held = matches!(status, Status::Active | Status::Done);
    let parked = !matches!(status, Status::Open | Status::Active | Status::Paused);
    Task {
        status,
        iteration: 5,
        tries: 4,
        attempts: 1,
        limited_in_row: 2,
        fence: Fence::new(7),
        assignee: held.then(|| "a".to_owned()),
        lease_expires_at: (status == Status::Active).then_some(at(2_000)),
        next_eligible_at: Some(at(500)),
        open_since: at(100),
        result: Some(Json::parse(r#"{"old":1}"#).unwrap()),
        fail_reason: Some("old failure".into()),
        parked_reason: parked.then(|| "old park".to_owned()),
        updated_at: at(900),
        started_at: Some(at(800)),
        finished_at: status.is_finished().then_some(at(850)),
        ..Task::new("default", id("t"), "tasks", "T", at(0))
    }
}

/// One command per verb.
pub fn command(verb: Verb, caller: Caller) -> Command {
    let result = Json::parse(r#"{"commit":"c"}"#).ok();
    match verb {
        Verb::Claim => Command::Claim { agent: Some("b".into()), ttl_ms: Some(60_000) },
        Verb::Renew => Command::Renew { caller, ttl_ms: Some(60_000) },
        Verb::Iterate => Command::Iterate { caller, reason: "exit code 1".into() },
        Verb::Yield => Command::Yield { caller, reason: "exit code 1".into() },
        Verb::Done => Command::Done { caller, result },
        Verb::Fail => Command::Fail { caller, reason: Some("boom".into()), default_reason: FAILED_REASON },
        Verb::Lose => Command::Lose,
        Verb::RateLimit => Command::RateLimit { caller, limit: RateLimit::default() },
        Verb::Interrupt => Command::Interrupt { caller },
        Verb::Release => Command::Release { caller },
        Verb::Exhaust => Command::Exhaust { caller, reason: "out of iterations".into() },
        Verb::Park => Command::Park { caller, reason: "look at it".into() },
        Verb::Pause => Command::Pause,
        Verb::Resume => Command::Resume,
        Verb::Reset => Command::Reset,
        Verb::Reiterate => Command::Reiterate,
        Verb::Delete => Command::Delete,
        Verb::Undelete => Command::Undelete,
        Verb::Cancel => Command::Cancel,
        Verb::Invalidate => Command::Invalidate { reason: "parent moved on".into() },
        Verb::Orphan => Command::Orphan { parent: "p".into() },
        Verb::Override => Command::Override { result },
    }
}

/// Applies the verb's command as the holder would, under the rules of queue `tasks`.
pub fn apply_as_holder(task: &Task, verb: Verb) -> Result<Applied, Refusal> {
    let caller = Caller { agent: None, lease: task.lease() };
    apply(task, &command(verb, caller), &QueuePolicy::built_in("tasks"), NOW)
}

/// Rules with backoff 1 s doubling to 60 s and this limit.
pub fn limited(max_attempts: Option<u32>) -> QueuePolicy {
    let backoff = Some(Backoff { base_ms: 1_000, factor_thousandths: 2_000, cap_ms: 60_000 });
    QueuePolicy { max_attempts, backoff, ..QueuePolicy::built_in("tasks") }
}
