//! `rota loop` and `rota debug`.

use super::verbs;
use crate::loops::{self, ChangedTree, LoopConfig, LoopPayload, LoopTree, Loops, Scheduler, ShownLoop};

verbs! {
    /// Add a loop
    AddLoop {
        kind: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        triggered_by: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<String>,
    } => LoopPayload, "loop add" Post "/loops" WithHint, |cx, it| {
        let input = loops::AddLoop {
            kind: it.kind,
            id: it.id,
            title: it.title,
            parent: it.parent,
            triggered_by: it.triggered_by,
            priority: it.priority,
            prompt: it.prompt,
        };
        loops::add(cx, input).await
    };

    /// List loops
    ListLoops {
        /// Comma-separated states, in the words of loops; without it all but deleted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<String>,
        /// Comma-separated kinds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
    } => Loops, "loop list" Get "/loops" WithHint, |cx, it| {
        let statuses = it.status.as_deref().map(loops::statuses).transpose()?;
        let kinds = it.kind.as_deref().map(|kinds| {
            kinds.split(',').map(str::trim).filter(|kind| !kind.is_empty()).map(str::to_owned).collect()
        });
        loops::list(cx, loops::ListLoops { statuses, kinds }).await
    };

    /// Show the tree below a loop, or every tree
    ShowTree {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    } => LoopTree, "loop tree" Get "/trees" WithHint, |cx, it| loops::named(loops::tree(cx, it.id.as_deref()).await);

    /// Show a loop, its children and its iterations
    ShowLoop { id: String } => ShownLoop, "loop show" Get "/loops/{id}" WithHint,
        |cx, it| loops::named(loops::show(cx, &it.id).await);

    /// Start a finished or parked loop over
    ReiterateLoop {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    } => ChangedTree, "loop reiterate" Post "/loops/{id}/reiterate" WithHint,
        |cx, it| loops::named(loops::reiterate(cx, &it.id, it.reason).await);

    /// Give up a tree
    CancelLoop { id: String } => ChangedTree, "loop cancel" Post "/loops/{id}/cancel" WithHint,
        |cx, it| loops::named(loops::cancel(cx, &it.id).await);

    /// Hold a loop back; a lease on it ends
    PauseLoop { id: String } => LoopPayload, "loop pause" Post "/loops/{id}/pause" WithHint,
        |cx, it| loops::named(loops::pause(cx, &it.id).await);

    /// Let a paused loop go on
    ResumeLoop { id: String } => LoopPayload, "loop resume" Post "/loops/{id}/resume" WithHint,
        |cx, it| loops::named(loops::resume(cx, &it.id).await);

    /// Hand the whole tree of a loop to a host, else to the caller's
    MoveLoop {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    } => ChangedTree, "loop move" Post "/loops/{id}/move" WithHint,
        |cx, it| loops::named(loops::move_tree(cx, &it.id, it.to).await);

    /// Show each setting of a loop and where it comes from
    ConfigureLoop { id: String } => LoopConfig, "loop config" Get "/loops/{id}/config" WithHint,
        |cx, it| loops::named(loops::config(cx, &it.id).await);

    /// Show the pending loops, highest score first
    ShowScheduler {} => Scheduler, "debug scheduler" Get "/pending-loops" WithHint,
        |cx, _it| loops::scheduler(cx).await;
}
