//! The lease state machine, as one table: who may end a lease, where a verb leads, and what follows a failure.
//! [`apply`] returns the next task and the event; the caller writes both.

use crate::backoff::{self, Backoff};
use crate::json::Json;
use crate::lease::{Caller, LeaseId};
use crate::limits;
use crate::policy::QueuePolicy;
use crate::refusal::{Holder, Refusal};
use crate::status::{Outcome, Status};
use crate::task::Task;
use crate::time::UnixMillis;

/// The verbs of the state machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "each is described in TABLE")]
pub enum Verb {
    Claim,
    Renew,
    Iterate,
    Yield,
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
    /// The verb.
    pub verb: Verb,
    /// The states from which it is allowed.
    pub from: &'static [Status],
    /// The states it can lead to.
    pub to: &'static [Status],
    /// How the attempt ends if the task was active.
    pub outcome: Option<Outcome>,
    /// Its word in the journal, and after "cannot be".
    pub past: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
}

use Status::{Active, Deleted, Done, Failed, Invalidated, Open, Parked, Paused};

/// The whole state machine.
#[rustfmt::skip]
pub const TABLE: &[Rule] = &[
    Rule { verb: Verb::Claim, from: &[Open], to: &[Active], outcome: None, past: "granted", meaning: "grants a lease with a new fence" },
    Rule { verb: Verb::Renew, from: &[Active], to: &[Active], outcome: None, past: "renewed", meaning: "the holder extends its lease" },
    Rule { verb: Verb::Iterate, from: &[Active], to: &[Active], outcome: None, past: "iterated", meaning: "an iteration did not pass and the holder begins the next; its lease is extended" },
    Rule { verb: Verb::Yield, from: &[Active], to: &[Open], outcome: Some(Outcome::Released), past: "yielded", meaning: "an iteration did not pass and the loop gives its lease back; open at once, or after a cool-down" },
    Rule { verb: Verb::Done, from: &[Active], to: &[Done], outcome: Some(Outcome::Done), past: "done", meaning: "the holder reports success" },
    Rule { verb: Verb::Fail, from: &[Active], to: &[Open, Parked], outcome: Some(Outcome::Failed), past: "failed", meaning: "the holder reports failure; an attempt is counted, the policy's backoff and limit apply" },
    Rule { verb: Verb::Lose, from: &[Active], to: &[Open, Parked], outcome: Some(Outcome::Lost), past: "lost", meaning: "the lease expired and is reclaimed; as failed" },
    Rule { verb: Verb::RateLimit, from: &[Active], to: &[Open, Parked], outcome: Some(Outcome::RateLimited), past: "rate_limited", meaning: "the API pushed back; no attempt is counted; twenty in a row park if other calls succeed meanwhile" },
    Rule { verb: Verb::Interrupt, from: &[Active], to: &[Open], outcome: Some(Outcome::Interrupted), past: "interrupted", meaning: "the daemon stops, or the budget for the model is spent; open at once" },
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

    /// Its word in the journal.
    pub fn past(self) -> &'static str {
        self.rule().past
    }

    /// Its word after "cannot be".
    pub fn participle(self) -> &'static str {
        match self {
            Self::Claim => "claimed",
            Self::Done | Self::Override => "marked done",
            other => other.past(),
        }
    }

    /// The states from which it is allowed, in words.
    pub fn from_words(self) -> String {
        let words: Vec<&str> = self.rule().from.iter().map(|status| status.word()).collect();
        match words.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => words.concat(),
        }
    }
}

/// A verb with its arguments. A lease without an explicit length lasts as long as the policy says.
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
    /// An iteration did not pass, for this reason; the next one begins under the same lease.
    Iterate {
        caller: Caller,
        reason: String,
    },
    /// An iteration did not pass, for this reason; the loop releases its lease.
    Yield {
        caller: Caller,
        reason: String,
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
        limit: RateLimit,
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
            Self::Yield { .. } => Verb::Yield,
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

    /// The caller, if the verb has one.
    pub const fn caller(&self) -> Option<&Caller> {
        match self {
            Self::Renew { caller, .. }
            | Self::Iterate { caller, .. }
            | Self::Yield { caller, .. }
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

/// Facts about the rate limit that ended an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RateLimit {
    /// The end of the upstream's block.
    pub blocked_until: Option<UnixMillis>,
    /// The wait after the n-th consecutive limit; none for the built-in one.
    pub backoff: Option<Backoff>,
    /// Whether other calls to the upstream have succeeded since this task was last limited. Only then do consecutive
    /// limits need a person; otherwise the upstream is the cause, and the task just waits.
    pub others_succeed: bool,
}

/// The reason of a lost attempt.
pub const LOST_REASON: &str = "lease expired (host did not complete)";
/// The reason of `fail` if none was given.
pub const FAILED_REASON: &str = "released as failed";

/// The next state, and what happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The task after it.
    pub task: Task,
    /// The verb.
    pub verb: Verb,
    /// How the attempt ended, if one did.
    pub outcome: Option<Outcome>,
    /// The lease this belongs to: the new one, or the one that ended.
    pub lease: Option<LeaseId>,
}

/// Applies a command to a task, or refuses it. Changes nothing itself.
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
        // An operator may park a held task, just as it may pause or delete one.
        if verb == Verb::Park {
            refuse_other_holder(task, caller)?;
        } else {
            check_holder(task, caller, policy)?;
        }
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

/// Checks that the caller may end or extend the lease of an active task. Naming another agent or lease is always
/// refused. A caller that names neither is accepted for an anonymous lease, and for any lease if the queue has
/// `requireHolder: false`.
pub fn check_holder(task: &Task, caller: &Caller, policy: &QueuePolicy) -> Result<(), Refusal> {
    refuse_other_holder(task, caller)?;
    if policy.require_lease && caller.lease.is_none() {
        return Err(Refusal::LeaseRequired { id: task.id.clone(), queue: task.queue.to_string() });
    }
    match &task.assignee {
        Some(agent) if policy.require_holder && *caller == Caller::default() => {
            Err(Refusal::HolderRequired { id: task.id.clone(), agent: agent.clone() })
        }
        _ => Ok(()),
    }
}

/// Refuses a caller that names another lease than the current one, or another agent than its holder.
fn refuse_other_holder(task: &Task, caller: &Caller) -> Result<(), Refusal> {
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
    Ok(())
}

fn change(task: &mut Task, command: &Command, policy: &QueuePolicy, now: UnixMillis) {
    if ends_without_verdict(command) && task.status == Active {
        task.tries = task.tries.saturating_sub(1);
    }
    if matches!(command, Command::Iterate { .. } | Command::Yield { .. } | Command::Exhaust { .. }) {
        count_fast_failure(task, policy, now);
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
            extend(task, now.plus_ms(policy.lease_ttl()));
            task.started_at = Some(now);
            begin_iteration(task);
        }
        Command::Yield { .. } => give_back(task, policy, now),
        Command::Renew { ttl_ms: Some(ttl_ms), .. } => task.lease_expires_at = Some(now.plus_ms(*ttl_ms)),
        Command::Renew { ttl_ms: None, .. } => extend(task, now.plus_ms(policy.lease_ttl())),
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
        Command::RateLimit { limit, .. } => end_rate_limited(task, limit, now),
        Command::Interrupt { .. } | Command::Release { .. } => open(task, now),
        Command::Resume | Command::Undelete => {
            // A wait that is set continues: pausing must not be a way around a backoff.
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
    if ends_limited_row(command) {
        task.limited_in_row = 0;
    }
}

/// Whether the next rate limit starts a new count.
fn ends_limited_row(command: &Command) -> bool {
    !matches!(
        command,
        Command::RateLimit { .. }
            | Command::Claim { .. }
            | Command::Begin { .. }
            | Command::Renew { .. }
            | Command::Interrupt { .. }
    )
}

/// Open immediately, or after a cool-down if the loop failed fast too often.
fn give_back(task: &mut Task, policy: &QueuePolicy, now: UnixMillis) {
    open(task, now);
    let cool_down = policy.fast_failures.and_then(|rule| rule.cool_down_ms(task.fast_failures));
    task.next_eligible_at = cool_down.map(|wait_ms| now.plus_ms(wait_ms));
}

fn grant(task: &mut Task, agent: &Option<String>, ttl_ms: i64, now: UnixMillis) {
    task.status = Active;
    task.fence = task.fence.next();
    task.assignee = agent.clone();
    task.lease_expires_at = Some(now.plus_ms(ttl_ms));
    task.started_at = Some(now);
}

/// Moves the end of a lease to a later time, never to an earlier one, which the holder relies on.
fn extend(task: &mut Task, until: UnixMillis) {
    task.lease_expires_at = task.lease_expires_at.max(Some(until));
}

fn begin_iteration(task: &mut Task) {
    task.iteration = task.iteration.saturating_add(1);
    task.tries = task.tries.saturating_add(1);
}

/// Counts an iteration that did not pass if it was fast; a slower one resets the count.
fn count_fast_failure(task: &mut Task, policy: &QueuePolicy, now: UnixMillis) {
    let took_ms = task.started_at.map_or(i64::MAX, |started| now.age_ms_of(started));
    let is_fast = policy.fast_failures.is_some() && took_ms < limits::FAST_RUN_MS;
    task.fast_failures = if is_fast { task.fast_failures.saturating_add(1) } else { 0 };
}

/// Whether the current iteration ends without having passed or failed, and so does not count as a try.
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
    // A clock that was set back does not make a task runnable before it was created.
    task.open_since = now.max(task.created_at);
}

fn start_over(task: &mut Task, now: UnixMillis) {
    open(task, now);
    (task.attempts, task.tries, task.fast_failures) = (0, 0, 0);
    (task.fail_reason, task.result) = (None, None);
}

fn finish(task: &mut Task, status: Status, now: UnixMillis) {
    end_lease(task);
    task.status = status;
    task.finished_at = Some(now);
}

/// The assignee stays: the agent that did the work is part of the result.
fn finish_well(task: &mut Task, result: &Option<Json>, now: UnixMillis) {
    let assignee = task.assignee.take();
    finish(task, Done, now);
    task.assignee = assignee;
    task.fast_failures = 0;
    // In the journal `null` means removed, so a result of `null` is no result.
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

fn end_rate_limited(task: &mut Task, limit: &RateLimit, now: UnixMillis) {
    task.limited_in_row = task.limited_in_row.saturating_add(1);
    let in_row = task.limited_in_row;
    if in_row >= limits::RATE_LIMITED_IN_ROW && limit.others_succeed {
        return park(task, format!("rate limited {in_row} times in a row while other calls succeeded"));
    }
    open(task, now);
    let backoff = limit.backoff.unwrap_or(backoff::AFTER_RATE_LIMIT);
    let earliest = now.plus_ms(backoff.after(in_row));
    task.next_eligible_at = Some(limit.blocked_until.map_or(earliest, |until| until.max(earliest)));
}

/// The documentation's diagram, generated from [`TABLE`]: one arrow per pair of states, with its verbs.
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

/// The documentation's table, generated from [`TABLE`].
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
