//! `rota queue add`

use std::hash::{BuildHasher, RandomState};

use async_trait::async_trait;
use rota_core::{Json, TaskId, limits};
use rota_store::Store;
use rota_store::intents::add::{Add, NewPriority, NewTask};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Entry, EntryFields, runs};
use crate::Result;
use crate::context::{Context, bad_value, checked_text, task_id};
use crate::input::{App, EntryPriority, IdOrNone, QueueName, RunId, Workflow};
use crate::verb::{ErrorStyle, Route, Tool, Verb};

/// Any text that both stores can keep.
const WITHOUT_NUL: &str = r"^[^\u0000]*$";

/// Add an entry
///
/// Example: rota queue add --app review --repo . --priority 10
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddEntry {
    /// Its id [default: made up]
    #[arg(long, value_name = "ID")]
    pub id: Option<IdOrNone>,
    /// The app to run
    #[arg(long, value_name = "A")]
    pub app: Option<App>,
    /// The workflow to run
    #[arg(long, value_name = "W")]
    pub workflow: Option<Workflow>,
    /// The run it belongs to
    #[arg(long = "runId", value_name = "R")]
    pub run_id: Option<RunId>,
    /// The repository [default: the current folder]
    #[arg(long, value_name = "P")]
    #[schemars(length(max = limits::TITLE_BYTES), regex(pattern = WITHOUT_NUL))]
    pub repo: Option<String>,
    /// Priority, lower first [default: the queue's, 100 in runs]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<EntryPriority>,
    /// A note
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    #[schemars(length(max = limits::TITLE_BYTES), regex(pattern = WITHOUT_NUL))]
    pub note: Option<String>,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "runs")]
    #[serde(default = "runs")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for AddEntry {
    type Payload = Entry;
    const ROUTE: Route = Route::post("queue add", "/entries");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> = Some(Tool::extra(
        "Add an entry",
        "Add an entry to a queue of runs; the answer has its id. It starts when rota_sched_lease grants it.",
    ));

    async fn run(self, cx: &Context) -> Result<Entry> {
        let repo = self.repo.or_else(|| cx.folder.clone()).ok_or_else(|| bad_value("missing repo".into()))?;
        let fields = EntryFields {
            run_id: self.run_id.and_then(RunId::into_inner),
            app_id: self.app.and_then(App::into_inner),
            workflow_id: self.workflow.and_then(Workflow::into_inner),
            repo,
            note: self.note.filter(|note| !note.is_empty()),
        };
        checked_text("note", fields.note.as_deref().unwrap_or_default(), limits::TITLE_BYTES)?;
        checked_text("repo", &fields.repo, limits::TITLE_BYTES)?;
        let id = self.id.and_then(IdOrNone::into_inner).map_or_else(made_up, Ok)?;
        let named = [&fields.app_id, &fields.workflow_id, &fields.run_id].into_iter().flatten().next();
        let title = fields.note.clone().or_else(|| named.cloned()).unwrap_or_else(|| id.to_string());
        let new = NewTask {
            kind: fields.app_id.clone(),
            priority: self
                .priority
                .map_or(NewPriority::QueueDefault, |given| NewPriority::Given(given.get())),
            payload: Some(Json::of(&fields)),
            ..NewTask::new(id, &self.queue.into_inner(), &title)
        };
        let added = cx.store.perform(&Add { call: cx.call(), tasks: vec![new] }).await?;
        match added.into_iter().next() {
            Some(task) => Ok(Entry::of(task)),
            None => unreachable!("one entry was added"),
        }
    }
}

fn made_up() -> Result<TaskId> {
    task_id(&format!("run-{:016x}", RandomState::new().hash_one(std::process::id())))
}
