//! Whether the artifacts that loops wait for are there. A tick asks for the next tasks that wait; their files are looked at
//! on a thread for blocking work, and the tasks whose artifact is there go with the next request.

use std::sync::Arc;

use rota_core::Task;
use rota_store::intents::claim::ArtifactCheck;
use rota_store::intents::sync_leases::Awaiting;

use super::Manager;
use crate::files::off_runtime;
use crate::folders::Place;

/// How many tasks are looked at for their artifact in one tick.
const ARTIFACTS: usize = 200;

impl Manager<'_> {
    /// Looks for an artifact, given the task and its parent.
    pub(super) fn artifact_check(&self) -> ArtifactCheck {
        let folders = Arc::clone(&self.folders);
        ArtifactCheck::by(move |task, parent| folders.has_artifact(task, parent.map(Place::of).as_ref()))
    }

    /// The next few tasks that wait for an artifact.
    pub(super) fn next_awaiting(&self) -> Awaiting {
        Awaiting { after_seq: self.artifacts_after, limit: ARTIFACTS }
    }

    /// Looks for the artifacts of some tasks, each with its parent. A tick follows if any is there.
    pub(super) async fn look_for_artifacts(&mut self, awaiting: Vec<(Task, Option<Task>)>) {
        self.artifacts_after = match awaiting.last() {
            Some((last, _)) if awaiting.len() == ARTIFACTS => last.seq,
            _ => 0,
        };
        let host = self.setup.host.clone();
        let folders = Arc::clone(&self.folders);
        let look = move || {
            let is_here = |task: &Task| task.host.as_ref().is_none_or(|at| *at == host);
            let is_there = |(task, parent): &(Task, Option<Task>)| {
                is_here(task) && folders.has_artifact(task, parent.as_ref().map(Place::of).as_ref())
            };
            Ok(awaiting.into_iter().filter(is_there).map(|(task, _)| task.id).collect())
        };
        // A file system that does not answer has nothing for us; a later tick looks again.
        self.triggered = off_runtime(look).await.unwrap_or_else(|_| Vec::new());
        self.must_look |= !self.triggered.is_empty();
    }
}
