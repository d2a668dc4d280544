//! `peek`: the top of the queue, and everything under way. Reads only.

use rota_core::glob::Globs;
use rota_store::Store;
use rota_store::intents::claim::Wanted;
use rota_store::intents::read::{Peek as PeekIntent, TaskView};

use crate::context::Context;
use crate::payload::TaskList;
use crate::{Result, TaskPayload};

/// What to look at.
#[derive(Clone, Debug)]
pub struct Peek {
    /// Which queue.
    pub queue: String,
    /// How many claimable ones.
    pub limit: usize,
    /// Globs on the spec.
    pub specs: Option<String>,
}

/// The top claimable tasks as `open`, then all active ones.
pub async fn peek(cx: &Context, input: Peek) -> Result<TaskList> {
    let wanted = Wanted { category: None, specs: input.specs.as_deref().map(Globs::parse) };
    let intent =
        PeekIntent { call: cx.call(), queue: input.queue, limit: input.limit, wanted, host: cx.host.clone() };
    let seen = cx.store.perform(&intent).await?;
    let tasks =
        seen.claimable.into_iter().chain(seen.active).map(|view: TaskView| TaskPayload::of_view(view));
    Ok(TaskList::new(tasks.collect()))
}
