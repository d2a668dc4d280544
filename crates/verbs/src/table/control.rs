//! `rota queue`, `rota sched`, `rota policy`: refusals in one line.

use rota_core::Json;

use super::{is_false, runs_queue, verbs};
use crate::policy::{self, Applied, Checked, Diff, History, PolicyPayload, PolicySchema};
use crate::queue::{self, DrainedEntries, Entries, Entry, ExportedEntries, ImportedEntries, QueueState};
use crate::sched::{self, Completed, Leases, Plan, Reclaimed, Released, Renewed, Reset, SchedPolicy};

verbs! {
    /// Add an entry
    AddEntry {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        #[serde(default = "runs_queue")]
        queue: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        app: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow: Option<String>,
        repo: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    } => Entry, "queue add" Post "/entries" OneLine, |cx, it| {
        let input = queue::AddEntry {
            id: it.id,
            queue: it.queue,
            run_id: it.run_id,
            app: it.app,
            workflow: it.workflow,
            repo: it.repo,
            priority: it.priority,
            note: it.note,
        };
        queue::add(cx, input).await
    };

    /// List the entries of a queue
    ListEntries {
        #[serde(default = "runs_queue")]
        queue: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repo: Option<String>,
    } => Entries, "queue list" Get "/entries" OneLine,
        |cx, it| queue::list(cx, queue::ListEntries { queue: it.queue, status: it.status, repo: it.repo }).await;

    /// Show one entry
    ShowEntry { id: String } => Entry, "queue show" Get "/entries/{id}" OneLine,
        |cx, it| queue::show(cx, &it.id).await;

    /// Mark entries without an obstacle as drained
    DrainEntries {
        #[serde(default = "runs_queue")]
        queue: String,
        #[serde(default = "one")]
        limit: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repo: Option<String>,
    } => DrainedEntries, "queue drain" Post "/queues/{queue}/drain" OneLine,
        |cx, it| queue::drain(cx, queue::DrainQueue { queue: it.queue, limit: it.limit, repo: it.repo }).await;

    /// Load the text of a queue.json
    ImportEntries {
        /// The file's name, as it is told again.
        file: String,
        text: String,
        #[serde(default = "runs_queue")]
        queue: String,
        #[serde(default, skip_serializing_if = "is_false")]
        dry_run: bool,
    } => ImportedEntries, "queue import" Post "/queues/{queue}/import" OneLine,
        |cx, it| queue::import_text(cx, it.file.as_ref(), &it.text, &it.queue, it.dry_run).await;

    /// List every entry, deleted ones too
    ExportEntries {
        #[serde(default = "runs_queue")]
        queue: String,
    } => ExportedEntries, "queue export" Get "/queues/{queue}/export" OneLine,
        |cx, it| queue::export(cx, it.queue).await;

    /// Grant nothing from a queue until it is resumed
    PauseQueue { queue: String } => QueueState, "queue pause" Post "/queues/{queue}/pause" OneLine,
        |cx, it| queue::pause(cx, it.queue).await;

    /// Let a paused queue go on
    ResumeQueue { queue: String } => QueueState, "queue resume" Post "/queues/{queue}/resume" OneLine,
        |cx, it| queue::resume(cx, it.queue).await;

    /// Show which leases would be granted, and why not the others
    PlanLeases {
        #[serde(default = "runs_queue")]
        queue: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    } => Plan, "sched plan" Get "/queues/{queue}/plan" OneLine,
        |cx, it| sched::plan(cx, &it.queue, it.limit).await;

    /// Grant leases up to the ceiling
    GrantLeases {
        #[serde(default = "runs_queue")]
        queue: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    } => Leases, "sched lease" Post "/queues/{queue}/leases" OneLine,
        |cx, it| sched::lease(cx, &it.queue, it.limit).await;

    /// Extend a lease
    RenewLease { lease: String } => Renewed, "sched renew" Post "/leases/{lease}/renew" OneLine,
        |cx, it| sched::renew(cx, &it.lease).await;

    /// Say that the run under a lease succeeded
    CompleteLease { lease: String } => Completed, "sched complete" Post "/leases/{lease}/complete" OneLine,
        |cx, it| sched::complete(cx, &it.lease).await;

    /// Give a lease back, or count a failed attempt
    ReleaseLease {
        lease: String,
        #[serde(default, skip_serializing_if = "is_false")]
        failed: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    } => Released, "sched release" Post "/leases/{lease}/release" OneLine,
        |cx, it| sched::release(cx, &it.lease, it.failed, it.reason).await;

    /// Take back every expired lease of a queue
    ReclaimLeases {
        #[serde(default = "runs_queue")]
        queue: String,
    } => Reclaimed, "sched reclaim" Post "/queues/{queue}/reclaim" OneLine,
        |cx, it| sched::reclaim(cx, &it.queue).await;

    /// Open a parked entry with its attempts forgotten
    ResetEntry { id: String } => Reset, "sched reset" Post "/entries/{id}/reset" OneLine,
        |cx, it| sched::reset(cx, &it.id).await;

    /// Show the rules of a queue
    ShowRules {
        #[serde(default = "runs_queue")]
        queue: String,
    } => SchedPolicy, "sched policy show" Get "/rules" OneLine,
        |cx, it| sched::policy_show(cx, &it.queue).await;

    /// Change rules of a queue and publish them
    SetRules {
        #[serde(default = "runs_queue")]
        queue: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_concurrent: Option<Json>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_attempts: Option<Json>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease_ttl_ms: Option<Json>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backoff_base_ms: Option<Json>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backoff_factor: Option<Json>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backoff_cap_ms: Option<Json>,
    } => SchedPolicy, "sched policy set" Patch "/rules" OneLine, |cx, it| {
        let given = [
            it.max_concurrent,
            it.max_attempts,
            it.lease_ttl_ms,
            it.backoff_base_ms,
            it.backoff_factor,
            it.backoff_cap_ms,
        ];
        let texts = given.map(|json| json.map(as_typed));
        let (shown, _) = sched::policy_set(cx, &it.queue, sched::flat(sched::RULES.into_iter().zip(texts))?).await?;
        Ok(shown)
    };

    /// Show the policy in force
    ShowPolicy {} => PolicyPayload, "policy show" Get "/policy" WithHint,
        |cx, _it| policy::show(cx).await;

    /// Publish a policy
    ApplyPolicy {
        /// The text of the document.
        document: String,
        /// What becomes of published rules that the document does not name.
        #[serde(default)]
        unnamed: policy::Unnamed,
    } => Applied, "policy apply" Post "/policies" WithHint,
        |cx, it| Ok(policy::apply(cx, &it.document, it.unnamed).await?.0);

    /// Compare a document with the policy in force
    DiffPolicy {
        /// The text of the document.
        document: String,
    } => Diff, "policy diff" Post "/policies/diff" WithHint, |cx, it| policy::diff(cx, &it.document).await;

    /// Check a document
    CheckPolicy {
        /// The text of the document.
        document: String,
    } => Checked, "policy check" Post "/policies/check" WithHint, |_cx, it| policy::check(&it.document);

    /// List every published version
    ListPolicies {} => History, "policy history" Get "/policies" WithHint,
        |cx, _it| policy::history(cx).await;

    /// Show the JSON Schema of a policy
    DescribePolicy {} => PolicySchema, "policy schema" Get "/policies/schema" WithHint,
        |_cx, _it| Ok(policy::schema());
}

fn one() -> usize {
    1
}

/// A value as it would be typed: a text without its quotes.
fn as_typed(json: Json) -> String {
    serde_json::from_str(json.as_str()).unwrap_or_else(|_| json.as_str().to_owned())
}
