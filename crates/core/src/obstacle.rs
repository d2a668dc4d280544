//! Why a task is not runnable, and why a runnable task is not granted now.
//!
//! [`obstacles`] is the only judge: stores keep its verdict as a [`Stage`] beside each task, so that choosing can be
//! served from an index, and `rota why` prints the same list. The two cannot differ, because it is one function.

use serde::{Deserialize, Serialize};

use crate::id::TaskId;
use crate::status::Status;
use crate::task::Task;
use crate::time::UnixMillis;

/// A reason why a task is not runnable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "reason", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Obstacle {
    /// Finished, parked or deleted.
    NotOpen {
        /// Its status.
        status: Status,
    },
    /// The task is paused.
    Paused,
    /// Its queue is paused.
    QueuePaused,
    /// The parent is not done.
    ParentNotDone {
        /// The parent.
        parent: TaskId,
        /// The parent's status.
        status: Status,
    },
    /// The parent does not exist.
    ParentMissing {
        /// The parent.
        parent: TaskId,
    },
    /// Blockers are not done.
    BlockedBy {
        /// The blockers that are not done yet.
        ids: Vec<TaskId>,
    },
    /// The artifact that triggers it does not exist.
    ArtifactMissing {
        /// The path of the artifact.
        path: String,
    },
    /// The parent has started another iteration.
    Stale {
        /// The iteration it came from.
        parent_iteration: u32,
        /// The parent's current iteration.
        current: u32,
    },
    /// It must not start before a time.
    CoolingDown {
        /// That time.
        until: UnixMillis,
    },
    /// An agent holds it.
    Leased {
        /// The holder, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The end of the lease.
        until: UnixMillis,
    },
    /// Its lease expired; it counts until it is reclaimed.
    LeaseExpiredAwaitingReclaim {
        /// When the lease expired.
        since: UnixMillis,
    },
    /// Its folders are on another host.
    OtherHost {
        /// That host.
        host: String,
    },
    /// No command is configured for its kind.
    NoRunner {
        /// The kind.
        kind: String,
    },
}

/// A reason why a runnable task is not granted now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "reason", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Wait {
    /// The queue's ceiling is reached.
    QueueFull {
        /// The ceiling.
        ceiling: u32,
        /// Leases held.
        active: u32,
    },
    /// The kind's ceiling is reached.
    KindFull {
        /// The kind.
        kind: String,
        /// The ceiling.
        ceiling: u32,
        /// Leases held.
        active: u32,
    },
    /// The API is blocked.
    RateLimited {
        /// The upstream.
        upstream: String,
        /// The end of the block; none until it is unblocked by hand.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<UnixMillis>,
    },
    /// The budget for the API is spent.
    BudgetSpent {
        /// The budget's key in the configuration, e.g. `usd_per_day`.
        budget: String,
        /// When the next period of the budget begins.
        until: UnixMillis,
    },
    /// The most loops that may use the API are running.
    UpstreamFull {
        /// The upstream.
        upstream: String,
        /// The ceiling.
        ceiling: u32,
        /// Leases held.
        active: u32,
    },
    /// Too little disk space for new work.
    DiskLow {
        /// Free bytes.
        available: u64,
        /// Required bytes.
        minimum: u64,
    },
    /// All worktrees are in use.
    WorktreesFull {
        /// The ceiling.
        ceiling: u32,
        /// Worktrees on disk that no running loop uses. They do not count.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        kept: Vec<String>,
    },
    /// Other tasks rank higher.
    Outranked {
        /// Its position, from 1.
        position: u64,
        /// The next task.
        by: TaskId,
    },
}

/// An obstacle or a wait.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum Reason {
    /// Not runnable.
    Obstacle(Obstacle),
    /// Runnable, but not granted now.
    Wait(Wait),
}

/// The state of the parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParentFact {
    /// Its status.
    pub status: Status,
    /// Its iteration.
    pub iteration: u32,
}

/// Facts about related tasks on which the obstacles of a task depend.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// The parent, if the task names one and it exists.
    pub parent: Option<ParentFact>,
    /// The number of blockers that are not done.
    pub open_blockers: u32,
    /// Their ids, if they are needed for an explanation.
    pub blocked_by: Vec<TaskId>,
}

/// Facts that depend on the viewer, not on the task.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Viewer {
    /// Whether the queue is paused.
    pub queue_paused: bool,
    /// The host that would run it; none if hosts do not matter.
    pub host: Option<String>,
    /// The kinds that can run here; none if all can.
    pub runners: Option<Vec<String>>,
}

/// Every obstacle of the task itself, in the order of explanation. If empty, the task can be granted.
pub fn obstacles(task: &Task, facts: &Facts, now: UnixMillis) -> Vec<Obstacle> {
    let mut found = Vec::new();
    match task.status {
        Status::Open => {}
        Status::Paused => found.push(Obstacle::Paused),
        Status::Active => {
            let until = task.lease_expires_at.unwrap_or(UnixMillis::MAX);
            found.push(if until <= now {
                Obstacle::LeaseExpiredAwaitingReclaim { since: until }
            } else {
                Obstacle::Leased { by: task.assignee.clone(), until }
            });
        }
        status => found.push(Obstacle::NotOpen { status }),
    }
    found.extend(parent_obstacle(task, facts));
    if facts.open_blockers > 0 {
        found.push(Obstacle::BlockedBy { ids: facts.blocked_by.clone() });
    }
    if let Some(until) = task.next_eligible_at.filter(|until| *until > now) {
        found.push(Obstacle::CoolingDown { until });
    }
    found
}

fn parent_obstacle(task: &Task, facts: &Facts) -> Option<Obstacle> {
    if let Some(parent) = &task.parent {
        let Some(fact) = facts.parent else {
            return Some(Obstacle::ParentMissing { parent: parent.clone() });
        };
        if fact.status != Status::Done {
            return Some(Obstacle::ParentNotDone { parent: parent.clone(), status: fact.status });
        }
        if let Some(parent_iteration) = task.parent_iteration.filter(|from| *from != fact.iteration) {
            return Some(Obstacle::Stale { parent_iteration, current: fact.iteration });
        }
    }
    let path = task.triggered_by.as_ref().filter(|_| !task.artifact_present)?;
    Some(Obstacle::ArtifactMissing { path: path.clone() })
}

/// Why an unfinished task can never run again: its parent is deleted, or has started another iteration. No task stays
/// in this condition: the transaction that causes it ends the children.
pub fn outlived(task: &Task, facts: &Facts) -> Option<Obstacle> {
    let (parent, fact) = (task.parent.as_ref()?, facts.parent?);
    if fact.status == Status::Deleted {
        return Some(Obstacle::ParentNotDone { parent: parent.clone(), status: fact.status });
    }
    let parent_iteration = task.parent_iteration.filter(|from| *from != fact.iteration)?;
    Some(Obstacle::Stale { parent_iteration, current: fact.iteration })
}

/// Obstacles that depend on the viewer.
pub fn viewer_obstacles(task: &Task, viewer: &Viewer) -> Vec<Obstacle> {
    let mut found = Vec::new();
    if viewer.queue_paused {
        found.push(Obstacle::QueuePaused);
    }
    if let (Some(here), Some(host)) = (&viewer.host, &task.host)
        && here != host
    {
        found.push(Obstacle::OtherHost { host: host.clone() });
    }
    if let (Some(runners), Some(kind)) = (&viewer.runners, &task.kind)
        && !runners.contains(kind)
    {
        found.push(Obstacle::NoRunner { kind: kind.clone() });
    }
    found
}

/// The time from which on only time was in the way; none while there is another obstacle.
pub fn ready_since(task: &Task, facts: &Facts) -> Option<UnixMillis> {
    // At the end of time every cool-down is over.
    let stage = Stage::of(task, facts, UnixMillis::MAX);
    (stage != Stage::Obstructed).then(|| task.ready_at())
}

/// The verdict of [`obstacles`] in the form that stores index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// There is an obstacle other than time.
    Obstructed = 0,
    /// Only time is in the way.
    Cooling = 1,
    /// There is no obstacle.
    Ready = 2,
}

impl Stage {
    /// Judges a task.
    pub fn of(task: &Task, facts: &Facts, now: UnixMillis) -> Self {
        if task.status != Status::Open {
            // The number alone is an obstacle; the ids are not needed.
            return Self::Obstructed;
        }
        match obstacles(task, facts, now).as_slice() {
            [] => Self::Ready,
            [Obstacle::CoolingDown { .. }] => Self::Cooling,
            _ => Self::Obstructed,
        }
    }

    /// The stored number.
    pub const fn number(self) -> i64 {
        self as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task::new("default", TaskId::from_stored("t".into()), "loops", "T", UnixMillis::new(0))
    }

    fn id(text: &str) -> TaskId {
        TaskId::from_stored(text.into())
    }

    #[test]
    fn each_obstacle_alone() {
        let now = UnixMillis::new(1_000);
        let with = |change: &dyn Fn(&mut Task)| {
            let mut task = task();
            change(&mut task);
            task
        };
        let parent = |status| Facts { parent: Some(ParentFact { status, iteration: 2 }), ..Facts::default() };
        let cases: Vec<(Task, Facts, Vec<Obstacle>)> = vec![
            (task(), Facts::default(), vec![]),
            (
                with(&|t| t.status = Status::Done),
                Facts::default(),
                vec![Obstacle::NotOpen { status: Status::Done }],
            ),
            (with(&|t| t.status = Status::Paused), Facts::default(), vec![Obstacle::Paused]),
            (
                with(&|t| {
                    t.status = Status::Active;
                    t.lease_expires_at = Some(UnixMillis::new(1_001));
                    t.assignee = Some("a".into());
                }),
                Facts::default(),
                vec![Obstacle::Leased { by: Some("a".into()), until: UnixMillis::new(1_001) }],
            ),
            (
                with(&|t| {
                    t.status = Status::Active;
                    t.lease_expires_at = Some(now);
                }),
                Facts::default(),
                vec![Obstacle::LeaseExpiredAwaitingReclaim { since: now }],
            ),
            (
                with(&|t| t.parent = Some(id("p"))),
                Facts::default(),
                vec![Obstacle::ParentMissing { parent: id("p") }],
            ),
            (
                with(&|t| t.parent = Some(id("p"))),
                parent(Status::Active),
                vec![Obstacle::ParentNotDone { parent: id("p"), status: Status::Active }],
            ),
            (with(&|t| t.parent = Some(id("p"))), parent(Status::Done), vec![]),
            (
                with(&|t| {
                    t.parent = Some(id("p"));
                    t.parent_iteration = Some(1);
                }),
                parent(Status::Done),
                vec![Obstacle::Stale { parent_iteration: 1, current: 2 }],
            ),
            (
                with(&|t| t.triggered_by = Some("spec.md".into())),
                Facts::default(),
                vec![Obstacle::ArtifactMissing { path: "spec.md".into() }],
            ),
            (
                with(&|t| {
                    t.triggered_by = Some("spec.md".into());
                    t.artifact_present = true;
                }),
                Facts::default(),
                vec![],
            ),
            (
                task(),
                Facts { open_blockers: 1, blocked_by: vec![id("b")], ..Facts::default() },
                vec![Obstacle::BlockedBy { ids: vec![id("b")] }],
            ),
            (
                with(&|t| t.next_eligible_at = Some(UnixMillis::new(1_001))),
                Facts::default(),
                vec![Obstacle::CoolingDown { until: UnixMillis::new(1_001) }],
            ),
            (with(&|t| t.next_eligible_at = Some(now)), Facts::default(), vec![]),
        ];
        for (task, facts, wanted) in cases {
            assert_eq!(obstacles(&task, &facts, now), wanted, "{task:?} {facts:?}");
        }
    }

    #[test]
    fn stages() {
        let now = UnixMillis::new(1_000);
        let mut cooling = task();
        cooling.next_eligible_at = Some(UnixMillis::new(2_000));
        let blocked = Facts { open_blockers: 1, ..Facts::default() };
        assert_eq!(Stage::of(&task(), &Facts::default(), now), Stage::Ready);
        assert_eq!(Stage::of(&cooling, &Facts::default(), now), Stage::Cooling);
        assert_eq!(Stage::of(&cooling, &blocked, now), Stage::Obstructed);
        assert_eq!(Stage::of(&cooling, &Facts::default(), UnixMillis::new(2_000)), Stage::Ready);
    }

    #[test]
    fn the_viewer_matters_too() {
        let mut task = task();
        task.host = Some("a".into());
        task.kind = Some("ralph".into());
        let viewer =
            Viewer { queue_paused: true, host: Some("b".into()), runners: Some(vec!["plan".into()]) };
        assert_eq!(
            viewer_obstacles(&task, &viewer),
            [
                Obstacle::QueuePaused,
                Obstacle::OtherHost { host: "a".into() },
                Obstacle::NoRunner { kind: "ralph".into() }
            ]
        );
        assert!(viewer_obstacles(&task, &Viewer { host: Some("a".into()), ..Viewer::default() }).is_empty());
    }
}
