//! `rota loop`: verbs on loops and their trees, and `rota debug scheduler`.

mod add;
mod cancel;
mod config;
mod list;
mod move_tree;
mod pause;
mod reiterate;
mod scheduler;
mod show;
mod tree;

pub use add::AddLoop;
pub use cancel::CancelLoop;
pub use config::{ConfigureLoop, LoopConfig, Setting, Settings};
pub use list::{ListLoops, Loops};
pub use move_tree::MoveLoop;
pub use pause::{PauseLoop, ResumeLoop};
pub use reiterate::ReiterateLoop;
pub use scheduler::{PendingLoop, Scheduler, ShowScheduler};
pub use show::{ChildPayload, Iteration, ShowLoop, ShownLoop};
pub use tree::{LoopTree, ShowTree, TreeLine};

use rota_core::{Front, Refusal, Task, TaskId, UnixMillis};
use rota_store::intents::loops::TreeChange;
use rota_store::intents::read::TaskView;
use schemars::JsonSchema;
use serde::Serialize;

use crate::verb::read_flattened;
use crate::{Error, Result, TaskPayload};

pub(crate) use rota_store::intents::read::LOOPS;

/// A loop as every interface shows it: a task in the words of loops, and what only loops have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the task")]
pub struct LoopPayload {
    #[serde(flatten)]
    pub task: TaskPayload,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triggered_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_iteration: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

read_flattened!(LoopPayload {
    ..task,
    triggered_by: Option<String>,
    parent_iteration: Option<u32>,
    host: Option<String>,
});

impl LoopPayload {
    fn new(task: Task, deps: Vec<TaskId>, ready_at: Option<UnixMillis>) -> Self {
        Self {
            triggered_by: task.triggered_by.clone(),
            parent_iteration: task.parent_iteration,
            host: task.host.clone(),
            task: TaskPayload::new(task, deps, ready_at, Front::Loop),
        }
    }

    fn of_task(task: Task) -> Self {
        Self::new(task, Vec::new(), None)
    }

    fn of_view(view: TaskView) -> Self {
        Self::new(view.task, view.deps, view.ready_at)
    }
}

/// A loop that was changed together with others of its tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangedTree {
    /// The loop that was named.
    #[serde(flatten)]
    pub task: LoopPayload,
    /// The others.
    pub below: Vec<TaskId>,
}

read_flattened!(ChangedTree { ..task, below: Vec<TaskId> });

impl ChangedTree {
    fn of(change: TreeChange) -> Self {
        Self { task: LoopPayload::of_task(change.task), below: change.below }
    }
}

/// A loop that is not there is told as one.
fn named<T>(done: Result<T>) -> Result<T> {
    done.map_err(|error| match error {
        Error::Refused(Refusal::TaskNotFound { id }) => Refusal::LoopNotFound { id }.into(),
        other => other,
    })
}
