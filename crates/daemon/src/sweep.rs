//! Removes the folders of loops that were pruned from the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use rota_core::TaskId;
use rota_store::intents::Call;
use rota_store::intents::iterate::Tasks;
use rota_store::{AnyStore, Outcome, Store};

use crate::files::off_runtime;
use crate::folders::{Folders, Place};
use crate::worktree::Worktrees;

/// How many tasks are looked up at once.
const BATCH: usize = 500;

/// What was removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Loops whose folders are gone.
    pub loops: usize,
    /// What stays, and why.
    pub kept: Vec<String>,
}

/// Removes the folders of loops of a scope that the store does not have any more. A worktree with uncommitted work is
/// saved to its branch first; one that cannot be saved stays.
pub async fn sweep(store: &AnyStore, call: &Call, folders: Arc<Folders>) -> Outcome<Swept> {
    let (look, scope) = (Arc::clone(&folders), call.scope.clone());
    // A file system that does not answer keeps its folders.
    let recorded = off_runtime(move || Ok(look.recorded(&scope))).await.unwrap_or_else(|_| Vec::new());
    let mut alive: BTreeSet<Place> = BTreeSet::new();
    let ids: Vec<TaskId> = recorded.iter().map(|(id, _)| id.clone()).collect();
    for ids in ids.chunks(BATCH) {
        let tasks = store.perform(&Tasks { call: call.clone(), ids: ids.to_vec() }).await?;
        alive.extend(tasks.iter().map(Place::of));
    }
    let gone = recorded
        .into_iter()
        .flat_map(|(id, places)| places.into_iter().map(move |place| (id.clone(), place)));
    let gone: Vec<(TaskId, Place)> = gone.filter(|(_, place)| !alive.contains(place)).collect();
    let mut swept = Swept::default();
    if gone.is_empty() {
        return Ok(swept);
    }
    let worktrees = Worktrees::find(Arc::clone(&folders)).await;
    for (id, place) in gone {
        match remove(&worktrees, Arc::clone(&folders), place).await {
            Ok(()) => swept.loops += 1,
            Err(error) => swept.kept.push(format!("{id}: {error}")),
        }
    }
    Ok(swept)
}

async fn remove(worktrees: &Worktrees, folders: Arc<Folders>, place: Place) -> std::io::Result<()> {
    if let Some(held) = worktrees.hold(&place).filter(|_| worktrees.refusal().is_none()) {
        worktrees.remove(held).await?;
    }
    off_runtime(move || folders.remove_loop(&place)).await
}
