//! The lease state machine, as one table. Who may end a lease, what a verb leads to, what follows a bad end: here,
//! and nowhere else. [`apply`] returns the next state and what happened; the caller writes both.

use crate::backoff;
use crate::json::Json;
use crate::lease::{Caller, LeaseId};
use crate::limits;
use crate::policy::QueuePolicy;
use crate::refusal::{Holder, Refusal};
use crate::status::{Outcome, Status};
use crate::task::Task;
use crate::time::UnixMillis;

/// What can be done to a task's state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "each is described in TABLE")]
pub enum Verb {
    Claim,
    Renew,
    Iterate,
    Done,
    Fail,
    Lose,
    RateLimit,
    Interrupt,
    Release,
    Exhaust,
    Park,
    Pause,
    Resume,
    Reset,
    Reiterate,
    Delete,
    Undelete,
    Cancel,
    Invalidate,
    Orphan,
    Override,
}

/// One row of the table.
pub struct Rule {
    /// What is asked.
    pub verb: Verb,
    /// Where it is allowed.
    pub from: &'static [Status],
    /// Where it can lead.
    pub to: &'static [Status],
    /// How the attempt ends when it was active.
    pub outcome: Option<Outcome>,
    /// What it says in the journal, and after "cannot be".
    pub past: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

use Status::{Active, Deleted, Done, Failed, Invalidated, Open, Parked, Paused};

/// The whole state machine.
#[rustfmt::skip]
pub const TABLE: &[Rule] = &[
    Rule { verb: Verb::Claim, from: &[Open], to: &[Active], outcome: None, past: "granted", meaning: "grants a lease with a new fence" },
    Rule { verb: Verb::Renew, from: &[Active], to: &[Active], outcome: None, past: "renewed", meaning: "the holder extends its lease" },
    Rule { verb: Verb::Iterate, from: &[Active], to: &[Active], outcome: None, past: "iterated", meaning: "the holder begins a loop's next iteration; its lease is extended" },
    Rule { verb: Verb::Done, from: &[Active], to: &[Done], outcome: Some(Outcome::Done), past: "done", meaning: "the holder reports success" },
    Rule { verb: Verb::Fail, from: &[Active], to: &[Open, Parked], outcome: Some(Outcome::Failed), past: "failed", meaning: "the holder reports failure; an attempt is counted, the policy's backoff and limit apply" },
    Rule { verb: Verb::Lose, from: &[Active], to: &[Open, Parked], outcome: Some(Outcome::Lost), past: "lost", meaning: "the lease expired and is reclaimed; as failed" },
    Rule { verb: Verb::RateLimit, from: &[Active], to: &[Open, Parked], outcome: Some(Outcome::RateLimited), past: "rate_limited", meaning: "the API pushed back; no attempt is counted, twenty in a row park" },
    Rule { verb: Verb::Interrupt, from: &[Active], to: &[Open], outcome: Some(Outcome::Interrupted), past: "interrupted", meaning: "the daemon stops; open at once" },
    Rule { verb: Verb::Release, from: &[Active], to: &[Open], outcome: Some(Outcome::Released), past: "released", meaning: "the holder gives it back; open at once" },
    Rule { verb: Verb::Exhaust, from: &[Active], to: &[Failed], outcome: Some(Outcome::Released), past: "exhausted", meaning: "a loop is out of iterations" },
    Rule { verb: Verb::Park, from: &[Open, Active, Paused, Failed], to: &[Parked], outcome: Some(Outcome::NeedsPerson), past: "parked", meaning: "a person must look at it" },
    Rule { verb: Verb::Pause, from: &[Open, Active], to: &[Paused], outcome: Some(Outcome::Released), past: "paused", meaning: "a person holds it back" },
    Rule { verb: Verb::Resume, from: &[Paused], to: &[Open], outcome: None, past: "resumed", meaning: "a person lets it go on" },
    Rule { verb: Verb::Reset, from: &[Parked, Failed, Invalidated], to: &[Open], outcome: None, past: "reset", meaning: "attempts and tries 0, waits and reasons cleared, fence kept" },
    Rule { verb: Verb::Reiterate, from: &[Done, Parked, Failed, Invalidated], to: &[Open], outcome: None, past: "reiterated", meaning: "a loop starts over; as reset, also from done" },
    Rule { verb: Verb::Delete, from: &[Open, Active, Paused, Done, Failed, Parked, Invalidated], to: &[Deleted], outcome: Some(Outcome::Released), past: "deleted", meaning: "soft delete; edges to it are satisfied, its children are orphans" },
    Rule { verb: Verb::Undelete, from: &[Deleted], to: &[Open], outcome: None, past: "undeleted", meaning: "open again" },
    Rule { verb: Verb::Cancel, from: &[Open, Active, Paused, Parked], to: &[Invalidated], outcome: Some(Outcome::Released), past: "cancelled", meaning: "a person gives it up" },
    Rule { verb: Verb::Invalidate, from: &[Open, Active, Paused, Parked], to: &[Invalidated], outcome: Some(Outcome::Released), past: "invalidated", meaning: "its parent moved on" },
    Rule { verb: Verb::Orphan, from: &[Open, Active, Paused, Parked], to: &[Failed], outcome: Some(Outcome::Released), past: "orphaned", meaning: "its parent was deleted" },
    Rule { verb: Verb::Override, from: &[Open, Active], to: &[Done], outcome: Some(Outcome::Released), past: "overridden", meaning: "a person says it is done" },
];

impl Verb {
    /// Its row.
    pub fn rule(self) -> &'static Rule {
        match TABLE.iter().find(|rule| rule.verb == self) {
            Some(rule) => rule,
            None => unreachable!("every verb has a row"),
        }
    }

    /// What it says in the journal.
    pub fn past(self) -> &'static str {
        self.rule().past
    }

    /// What comes after "cannot be".
    pub fn participle(self) -> &'static str {
        match self {
            Self::Claim => "claimed",
            Self::Done | Self::Override => "marked done",
            other => other.past(),
        }
    }

    /// Where it is allowed, in words.
    pub fn from_words(self) -> String {
        let words: Vec<&str> = self.rule().from.iter().map(|status| status.word()).collect();
        match words.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => words.concat(),
        }
    }
}

/// A verb with what it needs. A lease without a length of its own lasts as long as the policy says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the verbs")]
pub enum Command {
    Claim {
        agent: Option<String>,
        ttl_ms: Option<i64>,
    },
    /// A claim that also begins a loop's iteration, and binds the loop to the host that has its folders.
    Begin {
        agent: Option<String>,
        host: Option<String>,
    },
    Iterate {
        caller: Caller,
    },
    Renew {
        caller: Caller,
        ttl_ms: Option<i64>,
    },
    Done {
        caller: Caller,
        result: Option<Json>,
    },
    Fail {
        caller: Caller,
        reason: Option<String>,
        default_reason: &'static str,
    },
    Lose,
    RateLimit {
        caller: Caller,
        blocked_until: Option<UnixMillis>,
    },
    Interrupt {
        caller: Caller,
    },
    Release {
        caller: Caller,
    },
    Exhaust {
        caller: Caller,
        reason: String,
    },
    Park {
        caller: Caller,
        reason: String,
    },
    Pause,
    Resume,
    Reset,
    Reiterate,
    Delete,
    Undelete,
    Cancel,
    Invalidate {
        reason: String,
    },
    Orphan {
        parent: String,
    },
    Override {
        result: Option<Json>,
    },
}

impl Command {
    /// Its verb.
    pub const fn verb(&self) -> Verb {
        match self {
            Self::Claim { .. } | Self::Begin { .. } => Verb::Claim,
            Self::Iterate { .. } => Verb::Iterate,
            Self::Renew { .. } => Verb::Renew,
            Self::Done { .. } => Verb::Done,
            Self::Fail { .. } => Verb::Fail,
            Self::Lose => Verb::Lose,
            Self::RateLimit { .. } => Verb::RateLimit,
            Self::Interrupt { .. } => Verb::Interrupt,
            Self::Release { .. } => Verb::Release,
            Self::Exhaust { .. } => Verb::Exhaust,
            Self::Park { .. } => Verb::Park,
            Self::Pause => Verb::Pause,
            Self::Resume => Verb::Resume,
            Self::Reset => Verb::Reset,
            Self::Reiterate => Verb::Reiterate,
            Self::Delete => Verb::Delete,
            Self::Undelete => Verb::Undelete,
            Self::Cancel => Verb::Cancel,
            Self::Invalidate { .. } => Verb::Invalidate,
            Self::Orphan { .. } => Verb::Orphan,
            Self::Override { .. } => Verb::Override,
        }
    }

    /// The caller, where the verb has one.
    pub const fn caller(&self) -> Option<&Caller> {
        match self {
            Self::Renew { caller, .. }
            | Self::Iterate { caller }
            | Self::Done { caller, .. }
            | Self::Fail { caller, .. }
            | Self::RateLimit { caller, .. }
            | Self::Interrupt { caller }
            | Self::Release { caller }
            | Self::Exhaust { caller, .. }
            | Self::Park { caller, .. } => Some(caller),
            _ => None,
        }
    }
}

/// What a lost attempt says for itself.
pub const LOST_REASON: &str = "lease expired (host did not complete)";
/// What `fail` says for itself when nobody gave a reason.
pub const FAILED_REASON: &str = "released as failed";

/// The next state, and what happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The task after it.
    pub task: Task,
    /// What was done.
    pub verb: Verb,
    /// How the attempt ended, if one did.
    pub outcome: Option<Outcome>,
    /// The lease this belongs to: the new one, or the one that ended.
    pub lease: Option<LeaseId>,
}

/// Applies a command to a task, or says why not. Changes nothing itself.
pub fn apply(
    task: &Task,
    command: &Command,
    policy: &QueuePolicy,
    now: UnixMillis,
) -> Result<Applied, Refusal> {
    let verb = command.verb();
    let rule = verb.rule();
    if !rule.from.contains(&task.status) {
        return Err(wrong_status(task, verb));
    }
    if let Some(caller) = command.caller().filter(|_| task.status == Active) {
        check_holder(task, caller, policy, verb)?;
    }
    let held = task.lease();
    let mut next = task.clone();
    next.updated_at = now;
    change(&mut next, command, policy, now);
    debug_assert!(rule.to.contains(&next.status), "{verb:?} led to {:?}", next.status);
    let outcome = rule.outcome.filter(|_| held.is_some());
    let lease = next.lease().or(held);
    Ok(Applied { task: next, verb, outcome, lease })
}

fn wrong_status(task: &Task, verb: Verb) -> Refusal {
    let (id, status) = (task.id.clone(), task.status);
    if verb.rule().from == [Active] {
        Refusal::NotActive { id, status }
    } else {
        Refusal::WrongStatus { id, status, verb }
    }
}

/// Whether the caller may speak for the lease. Naming somebody else is always refused; naming nobody is for queues
/// that allow it, for leases taken anonymously there, and for a person who parks.
fn check_holder(task: &Task, caller: &Caller, policy: &QueuePolicy, verb: Verb) -> Result<(), Refusal> {
    let id = || task.id.clone();
    let current = LeaseId { task: id(), fence: task.fence };
    let until = task.lease_expires_at.unwrap_or(UnixMillis::MAX);
    let holder = || Holder { lease: current.clone(), agent: task.assignee.clone(), until };
    if let Some(lease) = caller.lease.as_ref().filter(|lease| **lease != current) {
        return Err(Refusal::StaleLease { id: id(), lease: lease.clone(), holder: holder() });
    }
    if let (Some(agent), Some(assignee)) = (&caller.agent, &task.assignee)
        && agent != assignee
    {
        return Err(Refusal::NotHolder { id: id(), agent: agent.clone(), holder: holder() });
    }
    if policy.require_lease && caller.lease.is_none() && verb != Verb::Park {
        return Err(Refusal::LeaseRequired { id: id(), queue: task.queue.to_string() });
    }
    Ok(())
}

fn change(task: &mut Task, command: &Command, policy: &QueuePolicy, now: UnixMillis) {
    if ends_without_verdict(command) && task.status == Active {
        task.tries = task.tries.saturating_sub(1);
    }
    match command {
        Command::Claim { agent, ttl_ms } => {
            grant(task, agent, ttl_ms.unwrap_or_else(|| policy.lease_ttl()), now)
        }
        Command::Begin { agent, host } => {
            grant(task, agent, policy.lease_ttl(), now);
            task.host = task.host.take().or_else(|| host.clone());
            begin_iteration(task);
        }
        Command::Iterate { .. } => {
            task.lease_expires_at = Some(now.plus_ms(policy.lease_ttl()));
            begin_iteration(task);
        }
        Command::Renew { ttl_ms, .. } => {
            task.lease_expires_at = Some(now.plus_ms(ttl_ms.unwrap_or_else(|| policy.lease_ttl())));
        }
        Command::Done { result, .. } | Command::Override { result } => finish_well(task, result, now),
        Command::Fail { reason, default_reason, .. } => {
            task.fail_reason = reason.clone();
            let reason = reason.as_deref().unwrap_or(default_reason);
            end_badly(task, policy, policy.counts.failed, reason, now);
        }
        Command::Lose => {
            task.fail_reason = Some(LOST_REASON.to_owned());
            end_badly(task, policy, policy.counts.lost, LOST_REASON, now);
        }
        Command::RateLimit { blocked_until, .. } => end_rate_limited(task, *blocked_until, now),
        Command::Interrupt { .. } | Command::Release { .. } => open(task, now),
        Command::Resume | Command::Undelete => {
            // A wait that was set for it goes on: pausing is no way around a backoff.
            let due = task.next_eligible_at;
            open(task, now);
            task.next_eligible_at = due;
        }
        Command::Exhaust { reason, .. } => {
            task.fail_reason = Some(reason.clone());
            finish(task, Failed, now);
        }
        Command::Park { reason, .. } => park(task, reason.clone()),
        Command::Pause => {
            end_lease(task);
            task.status = Paused;
        }
        Command::Reset | Command::Reiterate => start_over(task, now),
        Command::Delete => finish(task, Deleted, now),
        Command::Cancel => finish(task, Invalidated, now),
        Command::Invalidate { reason } => {
            task.fail_reason = Some(reason.clone());
            finish(task, Invalidated, now);
        }
        Command::Orphan { parent } => {
            task.fail_reason = Some(format!("'{parent}', above it, was deleted"));
            finish(task, Failed, now);
        }
    }
    if !matches!(
        command,
        Command::RateLimit { .. }
            | Command::Claim { .. }
            | Command::Begin { .. }
            | Command::Renew { .. }
            | Command::Interrupt { .. }
    ) {
        task.limited_in_row = 0;
    }
}

fn grant(task: &mut Task, agent: &Option<String>, ttl_ms: i64, now: UnixMillis) {
    task.status = Active;
    task.fence = task.fence.next();
    task.assignee = agent.clone();
    task.lease_expires_at = Some(now.plus_ms(ttl_ms));
    task.started_at = Some(now);
}

fn begin_iteration(task: &mut Task) {
    task.iteration = task.iteration.saturating_add(1);
    task.tries = task.tries.saturating_add(1);
}

/// Whether an iteration that is under way ends without having passed or failed, and so was no try.
fn ends_without_verdict(command: &Command) -> bool {
    matches!(
        command,
        Command::Lose
            | Command::RateLimit { .. }
            | Command::Interrupt { .. }
            | Command::Release { .. }
            | Command::Park { .. }
            | Command::Pause
    )
}

fn end_lease(task: &mut Task) {
    task.assignee = None;
    task.lease_expires_at = None;
}

fn open(task: &mut Task, now: UnixMillis) {
    end_lease(task);
    task.status = Open;
    task.next_eligible_at = None;
    task.finished_at = None;
    task.parked_reason = None;
    // A clock that was set back does not make a task runnable before it was there.
    task.open_since = now.max(task.created_at);
}

fn start_over(task: &mut Task, now: UnixMillis) {
    open(task, now);
    (task.attempts, task.tries) = (0, 0);
    (task.fail_reason, task.result) = (None, None);
}

fn finish(task: &mut Task, status: Status, now: UnixMillis) {
    end_lease(task);
    task.status = status;
    task.finished_at = Some(now);
}

/// The assignee stays: who did it is part of the result.
fn finish_well(task: &mut Task, result: &Option<Json>, now: UnixMillis) {
    let assignee = task.assignee.take();
    finish(task, Done, now);
    task.assignee = assignee;
    // In the journal `null` means gone, so a result of `null` is none.
    task.result = result.clone().filter(|result| result.as_str() != "null");
}

fn park(task: &mut Task, reason: String) {
    end_lease(task);
    task.status = Parked;
    task.parked_reason = Some(reason);
    task.next_eligible_at = None;
    task.finished_at = None;
}

fn end_badly(task: &mut Task, policy: &QueuePolicy, counted: bool, reason: &str, now: UnixMillis) {
    if !counted {
        return open(task, now);
    }
    task.attempts = task.attempts.saturating_add(1);
    match policy.max_attempts {
        Some(limit) if task.attempts >= limit => {
            park(task, format!("{reason} (attempt {}/{limit})", task.attempts));
        }
        _ => {
            open(task, now);
            let wait_ms = policy.backoff.map_or(0, |backoff| backoff.after(task.attempts));
            task.next_eligible_at = (wait_ms > 0).then(|| now.plus_ms(wait_ms));
        }
    }
}

fn end_rate_limited(task: &mut Task, blocked_until: Option<UnixMillis>, now: UnixMillis) {
    task.limited_in_row = task.limited_in_row.saturating_add(1);
    let in_row = task.limited_in_row;
    if in_row >= limits::RATE_LIMITED_IN_ROW {
        return park(task, format!("rate limited {in_row} times in a row"));
    }
    open(task, now);
    let earliest = now.plus_ms(backoff::after_rate_limit(in_row));
    task.next_eligible_at = Some(blocked_until.map_or(earliest, |until| until.max(earliest)));
}

/// The documentation's diagram, made from [`TABLE`]: one arrow per pair of states, with its verbs.
pub fn diagram_as_mermaid() -> String {
    let mut diagram = String::from("stateDiagram-v2\n    [*] --> open: created\n");
    for from in Status::ALL {
        for to in Status::ALL {
            let leads = |rule: &&Rule| rule.from.contains(&from) && rule.to.contains(&to);
            let verbs: Vec<&str> = TABLE.iter().filter(leads).map(|rule| rule.past).collect();
            if !verbs.is_empty() {
                diagram.push_str(&format!("    {from} --> {to}: {}\n", verbs.join(", ")));
            }
        }
    }
    diagram
}

/// The documentation's table, made from [`TABLE`].
pub fn table_as_markdown() -> String {
    let mut page =
        String::from("| verb | from | to | ends an attempt as | meaning |\n|---|---|---|---|---|\n");
    for rule in TABLE {
        let words = |list: &[Status]| list.iter().map(|status| status.word()).collect::<Vec<_>>().join(", ");
        let outcome = rule.outcome.map_or("–", Outcome::word);
        let (from, to) = (words(rule.from), words(rule.to));
        page.push_str(&format!("| {} | {from} | {to} | {outcome} | {} |\n", rule.past, rule.meaning));
    }
    page
}
