//! Refusals: expected errors, a closed set, each with a message, a stable code and an exit code.

use crate::id::{BadName, TaskId};
use crate::lease::LeaseId;
use crate::obstacle::{Obstacle, Reason};
use crate::status::Status;
use crate::time::UnixMillis;
use crate::transition::Verb;

/// The current holder of a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The current lease.
    pub lease: LeaseId,
    /// Its agent, if it named itself.
    pub agent: Option<String>,
    /// The end of the lease.
    pub until: UnixMillis,
}

/// A verb was declined, and nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// No such task in the scope.
    #[error("task '{id}' not found")]
    TaskNotFound {
        /// The id.
        id: TaskId,
    },
    /// The same, asked for as a loop.
    #[error("task '{id}' not found")]
    LoopNotFound {
        /// The id.
        id: TaskId,
    },
    /// No such issue in the local tracker.
    #[error("issue #{number} not found")]
    IssueNotFound {
        /// Its number.
        number: u64,
    },
    /// No such blocker.
    #[error("blocker task '{id}' not found")]
    BlockerNotFound {
        /// The id.
        id: TaskId,
    },
    /// A new task names a blocker that does not exist.
    #[error("unknown dependency '{dep}' of task '{id}'")]
    UnknownDependency {
        /// The new task.
        id: TaskId,
        /// The unknown blocker.
        dep: TaskId,
    },
    /// A blocker is given twice.
    #[error("dependency '{dep}' of task '{id}' is given twice")]
    DuplicateDependency {
        /// The task.
        id: TaskId,
        /// The repeated blocker.
        dep: TaskId,
    },
    /// No such edge.
    #[error("dependency not found")]
    EdgeNotFound,
    /// No such agent.
    #[error("agent '{id}' not found")]
    AgentNotFound {
        /// The id.
        id: String,
    },
    /// No such entry, or none with such a lease or in such a state, as `rota queue` and `rota sched` report it.
    #[error("{problem}")]
    EntryNotFound {
        /// The message, with the name of what was not found.
        problem: String,
    },
    /// No such queue.
    #[error("unknown queue '{name}' (known: {})", known.join(", "))]
    UnknownQueue {
        /// The given name.
        name: String,
        /// The known queues.
        known: Vec<String>,
    },
    /// The id is in use.
    #[error("task '{id}' already exists")]
    DuplicateId {
        /// The id.
        id: TaskId,
    },
    /// The parent of a new task does not exist, or is deleted.
    #[error("parent task '{id}' not found")]
    ParentNotFound {
        /// The parent.
        id: TaskId,
    },
    /// The hierarchy would be too deep.
    #[error("task '{id}' would be {depth} levels deep, at most {limit} are allowed", limit = crate::limits::DEPTH)]
    TooDeep {
        /// The task.
        id: TaskId,
        /// Its level.
        depth: u32,
    },
    /// The edge would close a cycle.
    #[error("{} would be a cycle", cycle(path))]
    WouldCycle {
        /// The cycle; first and last are the same.
        path: Vec<TaskId>,
    },
    /// Settling or renewing a task without a holder.
    #[error("task '{id}' is not active (status: {status})")]
    NotActive {
        /// The task.
        id: TaskId,
        /// Its status.
        status: Status,
    },
    /// The caller's lease expired and was reclaimed, and the task was not granted again.
    #[error("task '{id}' is not active (status: {status})")]
    LeaseLost {
        /// The task.
        id: TaskId,
        /// Its status.
        status: Status,
        /// The lease that was reclaimed.
        lease: LeaseId,
        /// When it expired.
        expired_at: UnixMillis,
    },
    /// The caller names neither a lease nor an agent, and the lease is held by a named agent.
    #[error(
        "task '{id}' is held by '{}': name the holder (--agent) or its lease (--lease-id)",
        crate::text::escaped(agent)
    )]
    HolderRequired {
        /// The task.
        id: TaskId,
        /// Its holder.
        agent: String,
    },
    /// An operator's override by a caller that works under a lease.
    #[error("--force is a person's override: it cannot be used under a lease")]
    ForceUnderLease,
    /// A writing verb was given a time later than the store's clock.
    #[error("--now {now} is later than the store's clock ({clock})")]
    NowAhead {
        /// The given time.
        now: UnixMillis,
        /// The store's clock.
        clock: UnixMillis,
    },
    /// An agent would add more tasks than allowed, with its lease token or by `children.jsonl`.
    #[error("task '{id}' would have {count} {what}: its agent may add at most {limit}")]
    AgentLimit {
        /// The agent's task.
        id: TaskId,
        /// `children` or `created tasks`.
        what: &'static str,
        /// The resulting number.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The queue's policy does not allow agents to create tasks.
    #[error("agents may not create tasks in queue '{queue}' (agentsMayCreate is false)")]
    AgentsMayNotCreate {
        /// The queue.
        queue: String,
    },
    /// The caller is not the holder.
    #[error("agent '{agent}' is not the assignee of task '{id}'")]
    NotHolder {
        /// The task.
        id: TaskId,
        /// The agent that the caller names.
        agent: String,
        /// The holder.
        holder: Holder,
    },
    /// The caller's lease is not the current one.
    #[error("lease '{lease}' is not the current lease of task '{id}'")]
    StaleLease {
        /// The task.
        id: TaskId,
        /// The lease that the caller names.
        lease: LeaseId,
        /// The holder.
        holder: Holder,
    },
    /// The queue requires the lease id.
    #[error("queue '{queue}' requires the lease of task '{id}' to be named (--lease-id)")]
    LeaseRequired {
        /// The task.
        id: TaskId,
        /// Its queue.
        queue: String,
    },
    /// The state machine has no such transition.
    #[error("task '{id}' cannot be {} (status: {status}); only {} tasks can", verb.participle(), verb.from_words())]
    WrongStatus {
        /// The task.
        id: TaskId,
        /// Its status.
        status: Status,
        /// The requested verb.
        verb: Verb,
    },
    /// Reopening a task whose parent was deleted or has started another iteration.
    #[error("task '{id}' cannot be reopened: {}", crate::explain::obstacle_in_words(why))]
    CannotReopen {
        /// The task.
        id: TaskId,
        /// The state of its parent.
        why: Obstacle,
    },
    /// Moving a tree while a task of it is active.
    #[error("the tree of '{id}' cannot be moved while '{running}' is running")]
    TreeRunning {
        /// The named task.
        id: TaskId,
        /// The first active task of the tree.
        running: TaskId,
    },
    /// Done tasks are immutable.
    #[error("task '{id}' is done and cannot be updated")]
    DoneIsImmutable {
        /// The task.
        id: TaskId,
    },
    /// A claim found nothing to grant.
    #[error("No eligible tasks")]
    NothingEligible,
    /// A claim by id cannot be granted.
    #[error("Task not eligible")]
    NotEligible {
        /// The task.
        id: TaskId,
        /// The reasons.
        reasons: Vec<Reason>,
    },
    /// An invalid name.
    #[error(transparent)]
    BadName(#[from] BadName),
    /// An invalid value.
    #[error("{problem}")]
    BadValue {
        /// Names the field, the value and what is allowed.
        problem: String,
    },
    /// An invalid line of a plan.
    #[error("line {line}: {problem}")]
    BadLine {
        /// Its number, from 1.
        line: usize,
        /// Names the field and the value.
        problem: String,
    },
    /// An invalid policy document.
    #[error(transparent)]
    BadPolicy(#[from] crate::shape::KeyError),
    /// A document that omits published values, which would silently revert to their defaults.
    #[error(
        "the document would set published values back to their defaults: {}",
        crate::text::escaped(reverts)
    )]
    PolicyReverts {
        /// Each path with the current and the resulting value.
        reverts: String,
    },
    /// Another policy was published in the meantime.
    #[error(
        "the policy was based on {based_on}, but {current} is current: look at `rota policy diff` and apply again"
    )]
    PolicyMoved {
        /// The version that the document was based on.
        based_on: String,
        /// The current version in the store.
        current: String,
    },
}

fn cycle(path: &[TaskId]) -> String {
    path.iter().map(TaskId::as_str).collect::<Vec<_>>().join(" -> ")
}

impl Refusal {
    /// A stable code for scripts and the error pages.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TaskNotFound { .. } | Self::LoopNotFound { .. } => "task_not_found",
            Self::IssueNotFound { .. } => "issue_not_found",
            Self::BlockerNotFound { .. } => "blocker_not_found",
            Self::UnknownDependency { .. } => "unknown_dependency",
            Self::DuplicateDependency { .. } => "duplicate_dependency",
            Self::EdgeNotFound => "edge_not_found",
            Self::AgentNotFound { .. } => "agent_not_found",
            Self::EntryNotFound { .. } => "entry_not_found",
            Self::UnknownQueue { .. } => "unknown_queue",
            Self::DuplicateId { .. } => "duplicate_id",
            Self::ParentNotFound { .. } => "parent_not_found",
            Self::TooDeep { .. } => "too_deep",
            Self::WouldCycle { .. } => "would_cycle",
            Self::NotActive { .. } => "not_active",
            Self::LeaseLost { .. } => "lease_lost",
            Self::HolderRequired { .. } => "holder_required",
            Self::ForceUnderLease => "force_under_lease",
            Self::NowAhead { .. } => "now_ahead",
            Self::AgentLimit { .. } => "agent_limit",
            Self::AgentsMayNotCreate { .. } => "agents_may_not_create",
            Self::NotHolder { .. } => "not_holder",
            Self::StaleLease { .. } => "stale_lease",
            Self::LeaseRequired { .. } => "lease_required",
            Self::WrongStatus { .. } => "wrong_status",
            Self::CannotReopen { .. } => "cannot_reopen",
            Self::TreeRunning { .. } => "tree_running",
            Self::DoneIsImmutable { .. } => "done_is_immutable",
            Self::NothingEligible => "nothing_eligible",
            Self::NotEligible { .. } => "not_eligible",
            Self::BadName(_) => "bad_name",
            Self::BadValue { .. } => "bad_value",
            Self::BadLine { .. } => "bad_line",
            Self::BadPolicy(_) => "bad_policy",
            Self::PolicyMoved { .. } => "policy_moved",
            Self::PolicyReverts { .. } => "policy_reverts",
        }
    }

    /// Whether it is an answer rather than an error: there is nothing to do, or not yet.
    pub const fn is_answer(&self) -> bool {
        matches!(self, Self::NothingEligible | Self::NotEligible { .. })
    }

    /// 2 for "not found, nothing eligible", else 1.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::TaskNotFound { .. }
            | Self::LoopNotFound { .. }
            | Self::IssueNotFound { .. }
            | Self::BlockerNotFound { .. }
            | Self::EdgeNotFound
            | Self::AgentNotFound { .. }
            | Self::NothingEligible
            | Self::NotEligible { .. } => 2,
            _ => 1,
        }
    }

    /// Further lines: the current holder, the obstacles, what to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotHolder { holder, .. } | Self::StaleLease { holder, .. } => {
                let agent = holder.agent.as_deref().map_or_else(
                    || "an agent without a name".to_owned(),
                    |agent| format!("'{}'", crate::text::escaped(agent)),
                );
                let until = holder.until.to_seconds_text();
                Some(format!("it is held by {agent} under {} until {until}", holder.lease))
            }
            Self::NotEligible { reasons, .. } if reasons.is_empty() => {
                Some("its category or spec is none of those asked for".to_owned())
            }
            Self::NotEligible { reasons, .. } => {
                Some(reasons.iter().map(crate::explain::reason_in_words).collect::<Vec<_>>().join("; "))
            }
            Self::TaskNotFound { .. } => Some("see what there is: rota task list --all".to_owned()),
            Self::LoopNotFound { .. } => Some("see what there is: rota loop list".to_owned()),
            Self::IssueNotFound { .. } => Some("see what there is: rota issue list --all".to_owned()),
            Self::NotActive { id, status: Status::Open } => {
                Some(format!("claim it first: rota task claim {id}"))
            }
            Self::PolicyReverts { .. } => {
                Some("keep them with --merge, or set them back with --replace".to_owned())
            }
            Self::LeaseLost { id, lease, expired_at, .. } => Some(format!(
                "{lease} expired at {} and was reclaimed; nobody has claimed '{id}' since",
                expired_at.to_seconds_text()
            )),
            Self::NowAhead { .. } => Some(
                "a later time needs ROTA_ALLOW_NOW=1 in the environment of this process, or of the server it asks"
                    .to_owned(),
            ),
            Self::TreeRunning { running, .. } => Some(format!("pause it first: rota loop pause {running}")),
            Self::DuplicateId { id } => Some(format!("see it: rota task show {id}")),
            _ => None,
        }
    }
}
