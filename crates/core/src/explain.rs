//! Explains why a task runs or not: every check with its verdict, from the same functions that decide.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::id::TaskId;
use crate::limits;
use crate::obstacle::{self, Facts, Obstacle, Reason, Viewer, Wait};
use crate::policy::{QueuePolicy, Reclaim};
use crate::rank::{self, Score};
use crate::select::Room;
use crate::status::Status;
use crate::task::Task;
use crate::text::escaped;
use crate::time::UnixMillis;

/// One check and its verdict.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The checked condition.
    pub check: Cow<'static, str>,
    /// Whether the condition is satisfied.
    pub ok: bool,
    /// The finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// When it ends, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<UnixMillis>,
}

/// The complete explanation of a task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The task.
    pub id: TaskId,
    /// Its queue.
    pub queue: String,
    /// Its status.
    pub status: Cow<'static, str>,
    /// Whether the task has no obstacle.
    pub runnable: bool,
    /// Every check.
    pub checks: Vec<Check>,
    /// The obstacles: why it is not runnable.
    pub obstacles: Vec<Obstacle>,
    /// The waits: why it is not granted now.
    pub waits: Vec<Wait>,
    /// Its score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Its position among the runnable tasks, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The tasks ahead of it, at most five.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Vec<TaskId>>,
    /// The changes that would free it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freed_by: Option<String>,
    /// The earliest time it can run, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest: Option<UnixMillis>,
}

/// The context in which a task is explained.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Parent and blockers.
    pub facts: Facts,
    /// Queue, host, runners.
    pub viewer: Viewer,
    /// The ceilings.
    pub room: Room,
    /// How many runnable tasks rank higher, and the first five of them.
    pub ahead: (u64, Vec<TaskId>),
    /// External waits: disk, API, worktrees.
    pub outside: Vec<Wait>,
}

/// Explains a task at `now`.
pub fn explain(task: &Task, policy: &QueuePolicy, around: &Surroundings, now: UnixMillis) -> Explanation {
    let mut obstacles = obstacle::obstacles(task, &around.facts, now);
    obstacles.extend(obstacle::viewer_obstacles(task, &around.viewer));
    obstacles.retain(|found| !claim_takes_it_back(task, found, policy));
    let runnable = obstacles.is_empty();
    let mut waits = Vec::new();
    if runnable {
        waits.extend(around.room.waits(task.kind.as_deref()));
        waits.extend(around.outside.iter().cloned());
        if let (count, [first, ..]) = (around.ahead.0, around.ahead.1.as_slice()) {
            waits.push(Wait::Outranked { position: count + 1, by: first.clone() });
        }
    }
    Explanation {
        id: task.id.clone(),
        queue: task.queue.to_string(),
        status: task.status.word().into(),
        runnable,
        checks: checks(task, &obstacles, &waits, policy),
        score: rank::score(task, policy, now),
        position: runnable.then_some(around.ahead.0 + 1),
        ahead: runnable.then(|| around.ahead.1.clone()),
        freed_by: freed_by(task, &obstacles, &waits),
        earliest: earliest(&obstacles, &waits, now),
        obstacles,
        waits,
    }
}

/// An expired lease is not an obstacle if the next claim would reclaim it and could grant the task.
fn claim_takes_it_back(task: &Task, found: &Obstacle, policy: &QueuePolicy) -> bool {
    matches!(found, Obstacle::LeaseExpiredAwaitingReclaim { .. })
        && policy.reclaim == Reclaim::Auto
        && policy.lost_stays_claimable(task.attempts)
}

fn checks(task: &Task, obstacles: &[Obstacle], waits: &[Wait], policy: &QueuePolicy) -> Vec<Check> {
    const ORDER: [&str; 11] = [
        "status", "queue", "parent", "artifact", "blockers", "cooldown", "host", "runner", "ceiling",
        "outside", "order",
    ];
    let failed: Vec<(&str, Reason)> = obstacles
        .iter()
        .map(|found| (check_of(found), Reason::Obstacle(found.clone())))
        .chain(waits.iter().map(|wait| (check_of_wait(wait), Reason::Wait(wait.clone()))))
        .collect();
    let mut list = Vec::new();
    for check in ORDER {
        let mut found = failed.iter().filter(|(name, _)| *name == check).peekable();
        if found.peek().is_none() {
            list.extend(
                passed(check, task, policy)
                    .filter(|_| obstacles.is_empty() || !ONCE_RUNNABLE.contains(&check)),
            );
        }
        list.extend(found.map(|(_, reason)| Check {
            check: check.into(),
            ok: false,
            detail: Some(of_task_in_words(task, reason, policy)),
            ends_at: ends_at(reason),
        }));
    }
    list
}

/// Evaluated only if there is no obstacle.
const ONCE_RUNNABLE: [&str; 2] = ["ceiling", "order"];

/// A check that passed, if it applies to this task.
fn passed(check: &'static str, task: &Task, policy: &QueuePolicy) -> Option<Check> {
    let applies = match check {
        "parent" => task.parent.is_some(),
        "artifact" => task.triggered_by.is_some(),
        "host" => task.host.is_some(),
        "runner" | "outside" => false,
        "ceiling" => Room::is_bounded_by(policy),
        _ => true,
    };
    let detail = (check == "status").then(|| task.status.word().to_owned());
    applies.then_some(Check { check: check.into(), ok: true, detail, ends_at: None })
}

fn check_of(found: &Obstacle) -> &'static str {
    match found {
        Obstacle::NotOpen { .. }
        | Obstacle::Paused
        | Obstacle::Leased { .. }
        | Obstacle::LeaseExpiredAwaitingReclaim { .. } => "status",
        Obstacle::QueuePaused => "queue",
        Obstacle::ParentNotDone { .. } | Obstacle::ParentMissing { .. } | Obstacle::Stale { .. } => "parent",
        Obstacle::ArtifactMissing { .. } => "artifact",
        Obstacle::BlockedBy { .. } => "blockers",
        Obstacle::CoolingDown { .. } => "cooldown",
        Obstacle::OtherHost { .. } => "host",
        Obstacle::NoRunner { .. } => "runner",
    }
}

fn check_of_wait(wait: &Wait) -> &'static str {
    match wait {
        Wait::QueueFull { .. } | Wait::KindFull { .. } | Wait::UpstreamFull { .. } => "ceiling",
        Wait::RateLimited { .. }
        | Wait::BudgetSpent { .. }
        | Wait::DiskLow { .. }
        | Wait::WorktreesFull { .. } => "outside",
        Wait::Outranked { .. } => "order",
    }
}

fn ends_at(reason: &Reason) -> Option<UnixMillis> {
    match reason {
        Reason::Obstacle(Obstacle::CoolingDown { until } | Obstacle::Leased { until, .. }) => Some(*until),
        Reason::Wait(Wait::RateLimited { until, .. }) => *until,
        Reason::Wait(Wait::BudgetSpent { until, .. }) => Some(*until),
        _ => None,
    }
}

/// Says why a task is parked, or that it cools down after fast failures.
fn of_task_in_words(task: &Task, reason: &Reason, policy: &QueuePolicy) -> String {
    let failed_fast = policy.fast_failures.is_some_and(|rule| task.fast_failures >= rule.after);
    match (reason, &task.parked_reason) {
        (Reason::Obstacle(Obstacle::NotOpen { status: Status::Parked }), Some(why)) => {
            format!("it is parked: {}", escaped(why))
        }
        (Reason::Obstacle(Obstacle::CoolingDown { .. }), _) if failed_fast && task.limited_in_row == 0 => {
            let (secs, times) = (limits::FAST_RUN_MS / 1_000, task.fast_failures);
            format!("{}: it failed within {secs} s {times} times in a row", reason_in_words(reason))
        }
        _ => reason_in_words(reason),
    }
}

/// One short sentence for a reason.
pub fn reason_in_words(reason: &Reason) -> String {
    match reason {
        Reason::Obstacle(found) => obstacle_in_words(found),
        Reason::Wait(wait) => wait_in_words(wait),
    }
}

fn names(ids: &[TaskId]) -> String {
    const SHOWN: usize = 5;
    let list = ids.iter().take(SHOWN).map(|id| format!("'{id}'")).collect::<Vec<_>>().join(", ");
    if ids.len() > SHOWN { format!("{list} and {} more", ids.len() - SHOWN) } else { list }
}

/// One short sentence for an obstacle.
pub(crate) fn obstacle_in_words(found: &Obstacle) -> String {
    match found {
        Obstacle::NotOpen { status } => format!("it is {status}"),
        Obstacle::Paused => "it is paused".to_owned(),
        Obstacle::QueuePaused => "its queue is paused".to_owned(),
        Obstacle::ParentNotDone { parent, status } => format!("its parent '{parent}' is {status}, not done"),
        Obstacle::ParentMissing { parent } => format!("its parent '{parent}' does not exist"),
        Obstacle::BlockedBy { ids } if ids.is_empty() => "it is blocked".to_owned(),
        Obstacle::BlockedBy { ids } => format!("it is blocked by {}", names(ids)),
        Obstacle::ArtifactMissing { path } => format!("its artifact '{}' is not there", escaped(path)),
        Obstacle::Stale { parent_iteration, current } => {
            format!("it came from iteration {parent_iteration} of its parent, which is now at {current}")
        }
        Obstacle::CoolingDown { until } => format!("it cools down until {}", until.to_seconds_text()),
        Obstacle::Leased { by: Some(agent), until } => {
            format!("it is leased by '{}' until {}", escaped(agent), until.to_seconds_text())
        }
        Obstacle::Leased { by: None, until } => format!("it is leased until {}", until.to_seconds_text()),
        Obstacle::LeaseExpiredAwaitingReclaim { since } => {
            format!("its lease expired at {} and was not reclaimed yet", since.to_seconds_text())
        }
        Obstacle::OtherHost { host } => format!("its folders are on host '{}'", escaped(host)),
        Obstacle::NoRunner { kind } => format!("nothing is configured to run kind '{}'", escaped(kind)),
    }
}

/// A word or two for an obstacle, for a column.
pub fn obstacle_in_short(found: &Obstacle) -> &'static str {
    match found {
        Obstacle::NotOpen { .. } => "not pending",
        Obstacle::Paused => "paused",
        Obstacle::QueuePaused => "queue paused",
        Obstacle::ParentNotDone { .. } => "parent incomplete",
        Obstacle::ParentMissing { .. } => "parent missing",
        Obstacle::BlockedBy { .. } => "blocked",
        Obstacle::ArtifactMissing { .. } => "artifact missing",
        Obstacle::Stale { .. } => "stale",
        Obstacle::CoolingDown { .. } => "cooling down",
        Obstacle::Leased { .. } => "running",
        Obstacle::LeaseExpiredAwaitingReclaim { .. } => "lease expired",
        Obstacle::OtherHost { .. } => "other host",
        Obstacle::NoRunner { .. } => "no runner",
    }
}

fn wait_in_words(wait: &Wait) -> String {
    match wait {
        Wait::QueueFull { ceiling, active } => {
            format!("its queue is full ({active} of {ceiling} leases held)")
        }
        Wait::KindFull { kind, ceiling, active } => {
            format!("kind '{}' is full ({active} of {ceiling} leases held)", escaped(kind))
        }
        Wait::RateLimited { upstream, until: Some(until) } => {
            format!("'{}' is rate limited until {until}", escaped(upstream))
        }
        Wait::RateLimited { upstream, until: None } => {
            format!("'{}' is blocked until somebody unblocks it", escaped(upstream))
        }
        Wait::BudgetSpent { budget, until } => {
            format!("the budget '{}' is spent until {until}", escaped(budget))
        }
        Wait::UpstreamFull { upstream, ceiling, active } => {
            format!("'{}' is used by {active} of {ceiling} loops", escaped(upstream))
        }
        Wait::DiskLow { available, minimum } => {
            format!("disk space is low ({available} bytes free, {minimum} wanted)")
        }
        Wait::WorktreesFull { ceiling, kept } if kept.is_empty() => {
            format!("all {ceiling} worktrees are in use")
        }
        Wait::WorktreesFull { ceiling, kept } => {
            let kept: Vec<_> = kept.iter().map(|name| escaped(name)).collect();
            format!("all {ceiling} worktrees are in use; kept besides: {}", kept.join(", "))
        }
        Wait::Outranked { position, by } => format!("it is number {position} in line, '{by}' is next"),
    }
}

fn freed_by(task: &Task, obstacles: &[Obstacle], waits: &[Wait]) -> Option<String> {
    let id = &task.id;
    let first = obstacles.first().map(|found| match found {
        Obstacle::NotOpen { status: Status::Deleted } => format!("rota task undelete {id}"),
        Obstacle::NotOpen { status: Status::Done } => "nothing: it is done".to_owned(),
        Obstacle::NotOpen { .. } => format!("rota task reset {id}"),
        Obstacle::Paused => format!("rota task resume {id}"),
        Obstacle::QueuePaused => format!("rota queue resume {}", task.queue),
        Obstacle::ParentNotDone { parent, .. } => format!("'{parent}' being done"),
        Obstacle::ParentMissing { parent } => format!("'{parent}' being created and done"),
        Obstacle::BlockedBy { ids } if ids.is_empty() => "its blockers being done or deleted".to_owned(),
        Obstacle::BlockedBy { ids } => format!("{} being done or deleted", names(ids)),
        Obstacle::ArtifactMissing { path } => format!("'{}' being written", escaped(path)),
        Obstacle::Stale { .. } => "its parent's new iteration making it anew".to_owned(),
        Obstacle::CoolingDown { .. } => "time".to_owned(),
        Obstacle::Leased { .. } => "its holder settling it, or the lease running out".to_owned(),
        Obstacle::LeaseExpiredAwaitingReclaim { .. } => format!("rota sched reclaim --queue {}", task.queue),
        Obstacle::OtherHost { host } => format!("the daemon on '{}', or rota loop move {id}", escaped(host)),
        Obstacle::NoRunner { kind } => format!("loops.{}.run in rota.yml", escaped(kind)),
    });
    let wait = || {
        waits.first().map(|wait| match wait {
            Wait::QueueFull { .. } | Wait::KindFull { .. } => {
                "a lease being settled, or a higher ceiling".to_owned()
            }
            Wait::UpstreamFull { .. } => "a loop that uses it ending, or a higher max_api_calls".to_owned(),
            Wait::RateLimited { until: Some(_), .. } => "time, or rota gate unblock".to_owned(),
            Wait::RateLimited { until: None, .. } => "rota gate unblock".to_owned(),
            Wait::BudgetSpent { budget, .. } => {
                format!("time, or a higher gateway.budget.{} in rota.yml", escaped(budget))
            }
            Wait::DiskLow { .. } => "more disk space".to_owned(),
            Wait::WorktreesFull { .. } => "a worktree being freed".to_owned(),
            Wait::Outranked { .. } => "the tasks ahead being claimed".to_owned(),
        })
    };
    first.or_else(wait)
}

/// Known only if time alone decides.
fn earliest(obstacles: &[Obstacle], waits: &[Wait], now: UnixMillis) -> Option<UnixMillis> {
    let mut latest = now;
    for found in obstacles {
        match found {
            Obstacle::CoolingDown { until } => latest = latest.max(*until),
            _ => return None,
        }
    }
    for wait in waits {
        match wait {
            Wait::RateLimited { until: Some(until), .. } | Wait::BudgetSpent { until, .. } => {
                latest = latest.max(*until);
            }
            Wait::Outranked { .. } => {}
            _ => return None,
        }
    }
    Some(latest)
}
