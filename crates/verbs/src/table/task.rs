//! `rota task` and `rota why`.

use rota_core::explain::Explanation;
use rota_core::{Json, UnixMillis};

use super::{is_false, tasks_queue, verbs};
use crate::agent::{self, Agent, Agents, Deregistered};
use crate::attempts::{self, Attempts};
use crate::block::{self, Edge};
use crate::claim::{self, Claimed};
use crate::context::bad_value;
use crate::delete::{self, Deleted};
use crate::deps::{self, Deps};
use crate::list;
use crate::payload::TaskList;
use crate::plan_status::{self, PlanStatus};
use crate::plan_sync::{self, PlanSynced};
use crate::settle::{self, Finished, NextOptions};
use crate::show::{self, Shown};
use crate::{TaskPayload, create, input, peek, renew, step, update, why};

verbs! {
    /// Add an open task
    CreateTask {
        id: String,
        title: String,
        #[serde(default = "tasks_queue")]
        queue: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        category: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spec: Option<String>,
        #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
        reference: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        deps: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<UnixMillis>,
    } => TaskPayload, "task create" Post "/tasks" WithHint, |cx, it| {
        let input = create::Create {
            id: it.id,
            title: it.title,
            queue: it.queue,
            priority: it.priority,
            category: it.category,
            description: it.description,
            steps: it.steps,
            spec: it.spec,
            reference: it.reference,
            deps: it.deps,
            after: it.after,
        };
        create::create(cx, input).await
    };

    /// Show the top claimable tasks, then all active ones
    PeekTasks {
        #[serde(default = "tasks_queue")]
        queue: String,
        #[serde(default = "five")]
        limit: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        specs: Option<String>,
    } => TaskList, "task peek" Get "/queues/{queue}/peek" WithHint, |cx, it| {
        peek::peek(cx, peek::Peek { queue: it.queue, limit: it.limit, specs: input::globs(it.specs) }).await
    };

    /// Claim the next task, or one by id
    ClaimTask {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        #[serde(default = "tasks_queue")]
        queue: String,
        /// Seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        category: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        specs: Option<String>,
    } => Claimed, "task claim" Post "/claims" WithHint, |cx, it| {
        let specs = input::globs(it.specs);
        let terms = claim::Terms { queue: it.queue, lease_secs: it.lease, category: it.category, specs };
        let input = claim::Claim { id: it.id, terms };
        Ok(claim::claim(cx, input).await?.ok_or(rota_core::Refusal::NothingEligible)?)
    };

    /// Extend the lease of a task
    RenewTask {
        id: String,
        /// Seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<u64>,
    } => TaskPayload, "task renew" Post "/tasks/{id}/renew" WithHint,
        |cx, it| renew::renew(cx, &it.id, it.lease).await;

    /// Settle a task as done, and claim the next one if asked
    FinishTask {
        id: String,
        /// An object with a `commit` key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Json>,
        /// Claim the next task in the same transaction; `queue`, `category`, `specs` and `lease` are refused without it.
        #[serde(default, skip_serializing_if = "is_false")]
        next: bool,
        /// Seconds that the lease of the next task lasts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        category: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        specs: Option<String>,
        /// The queue to claim from; without it `tasks`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<String>,
    } => Finished, "task done" Post "/tasks/{id}/done" WithHint, |cx, it| {
        let FinishTask { id, result, next, lease: lease_secs, category, specs, queue } = it;
        let options = NextOptions { next, lease_secs, category, specs, queue };
        let next = options.claim_for(cx, cx.agent.clone())?;
        settle::done(cx, &id, result.as_ref().map(Json::as_str), next).await
    };

    /// Settle a task as failed: an attempt is counted
    FailTask {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    } => TaskPayload, "task fail" Post "/tasks/{id}/fail" WithHint,
        |cx, it| settle::fail(cx, &it.id, it.reason).await;

    /// Give a task back; nothing is counted
    ReleaseTask { id: String } => TaskPayload, "task release" Post "/tasks/{id}/release" WithHint,
        |cx, it| settle::release(cx, &it.id).await;

    /// Park a task for a person
    ParkTask { id: String, reason: String } => TaskPayload,
        "task park" Post "/tasks/{id}/park" WithHint, |cx, it| {
        if it.reason.is_empty() {
            return Err(bad_value("missing --reason".into()).into());
        }
        settle::park(cx, &it.id, it.reason).await
    };

    /// Open a parked, failed or invalidated task with its attempts forgotten
    ResetTask { id: String } => TaskPayload, "task reset" Post "/tasks/{id}/reset" WithHint,
        |cx, it| step::reset(cx, &it.id).await;

    /// Hold a task back; a lease on it ends
    PauseTask { id: String } => TaskPayload, "task pause" Post "/tasks/{id}/pause" WithHint,
        |cx, it| step::pause(cx, &it.id).await;

    /// Let a paused task go on
    ResumeTask { id: String } => TaskPayload, "task resume" Post "/tasks/{id}/resume" WithHint,
        |cx, it| step::resume(cx, &it.id).await;

    /// Open a deleted task again
    UndeleteTask { id: String } => TaskPayload, "task undelete" Post "/tasks/{id}/undelete" WithHint,
        |cx, it| step::undelete(cx, &it.id).await;

    /// Make a task wait for another
    BlockTask { id: String, by: String } => Edge, "task block" Put "/tasks/{id}/blockers/{by}" WithHint,
        |cx, it| block::block(cx, &it.id, &it.by).await;

    /// Remove such an edge
    UnblockTask { id: String, by: String } => Edge,
        "task unblock" Delete "/tasks/{id}/blockers/{by}" WithHint,
        |cx, it| block::unblock(cx, &it.id, &it.by).await;

    /// Make the backlog agree with a plan, in one transaction
    SyncPlan {
        /// One JSON object per line.
        plan: String,
        #[serde(default = "tasks_queue")]
        queue: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        specs: Option<String>,
        #[serde(default, skip_serializing_if = "is_false")]
        dry_run: bool,
    } => PlanSynced, "task plan-sync" Post "/plans" WithHint, |cx, it| {
        let specs = input::globs(it.specs);
        let input = plan_sync::PlanSync { input: it.plan.into_bytes(), queue: it.queue, specs, dry_run: it.dry_run };
        plan_sync::plan_sync(cx, input).await
    };

    /// Count tasks by state
    CountTasks {
        #[serde(default = "tasks_queue")]
        queue: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        specs: Option<String>,
    } => PlanStatus, "task plan-status" Get "/queues/{queue}/plan-status" WithHint,
        |cx, it| plan_status::plan_status(cx, it.queue, input::globs(it.specs).as_deref()).await;

    /// List tasks in the order they would run
    ListTasks {
        #[serde(default = "tasks_queue")]
        queue: String,
        /// Comma-separated states; without it all but deleted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<String>,
        /// Deleted ones too.
        #[serde(default, skip_serializing_if = "is_false")]
        all: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        assignee: Option<String>,
    } => TaskList, "task list" Get "/tasks" WithHint, |cx, it| {
        if it.all && it.status.is_some() {
            return Err(bad_value("--all and --status are mutually exclusive".into()).into());
        }
        let statuses = it.status.as_deref().map(list::statuses).transpose()?;
        let assignee = it.assignee.filter(|name| !name.is_empty());
        list::list(cx, list::List { queue: it.queue, statuses, all: it.all, assignee }).await
    };

    /// Show one task in full
    ShowTask {
        id: String,
        /// With the results of its blockers.
        #[serde(default, skip_serializing_if = "is_false")]
        with_deps: bool,
    } => Shown, "task show" Get "/tasks/{id}" WithHint, |cx, it| show::show(cx, &it.id, it.with_deps).await;

    /// Show a task's blockers as a tree
    ShowDeps { id: String } => Deps, "task deps" Get "/tasks/{id}/deps" WithHint,
        |cx, it| deps::deps(cx, &it.id).await;

    /// Show every attempt at a task
    ShowAttempts { id: String } => Attempts, "task attempts" Get "/tasks/{id}/attempts" WithHint,
        |cx, it| attempts::attempts(cx, &it.id).await;

    /// Change fields of a task that is not done
    UpdateTask {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<Vec<String>>,
        /// While the task is held this needs its lease, its holder's name, or `force`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<String>,
        /// A person's override of the lease on the task; refused under a lease.
        #[serde(default, skip_serializing_if = "is_false")]
        force: bool,
    } => TaskPayload, "task update" Patch "/tasks/{id}" WithHint, |cx, it| {
        let input = update::Update {
            id: it.id,
            title: it.title,
            priority: it.priority,
            description: it.description,
            steps: it.steps,
            status: it.status.as_deref().map(list::status).transpose()?,
            force: it.force,
        };
        let update::Update { title, priority, description, steps, status, .. } = &input;
        if title.is_none() && priority.is_none() && description.is_none() && steps.is_none() && status.is_none() {
            return Err(bad_value("no fields to update".into()).into());
        }
        update::update(cx, input).await
    };

    /// Delete one task
    DeleteTask { id: String } => TaskPayload, "task delete" Delete "/tasks/{id}" WithHint,
        |cx, it| delete::delete(cx, &it.id).await;

    /// Delete many tasks
    DeleteTasks {
        #[serde(default = "tasks_queue")]
        queue: String,
        /// Comma-separated states.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<String>,
        /// In every state.
        #[serde(default, skip_serializing_if = "is_false")]
        all: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spec: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        category: Option<String>,
    } => Deleted, "task delete-many" Delete "/tasks" WithHint, |cx, it| {
        if it.all == it.status.is_some() {
            return Err(bad_value("either --all or --status is wanted".into()).into());
        }
        let statuses = it.status.as_deref().map(list::statuses).transpose()?;
        let input = delete::DeleteMany { queue: it.queue, statuses, spec: it.spec, category: it.category };
        delete::delete_many(cx, input).await
    };

    /// Register a process as an agent
    RegisterAgent { pid: u32, host: String } => Agent, "task agent register" Post "/agents" WithHint,
        |cx, it| agent::register(cx, it.pid, &it.host).await;

    /// List running agents
    ListAgents {} => Agents, "task agent list" Get "/agents" WithHint, |cx, _it| agent::list(cx).await;

    /// Say that an agent stopped
    DeregisterAgent { id: String } => Deregistered, "task agent deregister" Delete "/agents/{id}" WithHint,
        |cx, it| agent::deregister(cx, &it.id).await;

    /// Explain why a task runs, or not
    ExplainTask { id: String } => Explanation, "why" Get "/tasks/{id}/why" WithHint,
        |cx, it| why::why(cx, &it.id).await;
}

fn five() -> usize {
    5
}
