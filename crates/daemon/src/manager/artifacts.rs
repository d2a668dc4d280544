//! Whether the artifacts that loops wait for are there. Files are looked at on a thread for blocking work.

use std::collections::BTreeMap;
use std::sync::Arc;

use rota_core::{Task, TaskId};
use rota_store::Store;
use rota_store::intents::iterate::Tasks;

use super::Manager;
use crate::files::off_runtime;
use crate::folders::Place;

impl Manager<'_> {
    /// The places of the parents of some tasks; none while the store is away.
    pub(super) async fn places_of_parents(&mut self, tasks: &[Task]) -> Option<BTreeMap<TaskId, Place>> {
        let mut ids: Vec<TaskId> = tasks.iter().filter_map(|task| task.parent.clone()).collect();
        ids.sort();
        ids.dedup();
        if ids.is_empty() {
            return Some(BTreeMap::new());
        }
        match self.store.perform(&Tasks { call: self.setup.call.clone(), ids }).await {
            Ok(parents) => Some(parents.iter().map(|task| (task.id.clone(), Place::of(task))).collect()),
            Err(error) => {
                self.trouble(error);
                None
            }
        }
    }

    /// Those of some tasks whose artifact is there.
    pub(super) async fn with_artifact(
        &self,
        tasks: Vec<Task>,
        parents: BTreeMap<TaskId, Place>,
    ) -> Vec<TaskId> {
        let folders = Arc::clone(&self.folders);
        let look = move || {
            let parent = |task: &Task| parents.get(task.parent.as_ref()?);
            let there = |task: &Task| folders.has_artifact(task, parent(task));
            Ok(tasks.into_iter().filter(there).map(|task| task.id).collect())
        };
        // A file system that does not answer has nothing for us; the next tick looks again.
        off_runtime(look).await.unwrap_or_else(|_| Vec::new())
    }
}
