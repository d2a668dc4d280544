//! `rota task update`

use async_trait::async_trait;
use rota_core::Refusal;
use rota_store::intents::edit::Edit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, bad_value};
use crate::input::{Id, Priority, Steps, TaskStatus, Title, description};
use crate::step::perform_and_show;
use crate::verb::{Route, Verb};
use crate::{Result, TaskPayload};

/// Change fields of a task that is not done
///
/// Example: rota task update fix-login --priority 0
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
    /// New title
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub title: Option<Title>,
    /// New priority
    #[arg(short = 'p', long, value_name = "N", allow_hyphen_values = true)]
    pub priority: Option<Priority>,
    /// New description
    #[arg(short = 'd', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub description: Option<String>,
    /// New steps, a JSON array of texts
    #[arg(short = 's', long, value_name = "JSON_ARRAY", allow_hyphen_values = true)]
    pub steps: Option<Steps>,
    /// New state: open, paused, done or deleted; while the task is held, only with its lease, its holder's name or --force
    #[arg(long, value_name = "STATUS")]
    pub status: Option<TaskStatus>,
    /// Change the state of a held task as a person's override, which is journalled; refused under a lease
    #[arg(long)]
    #[serde(default)]
    pub force: bool,
}

impl UpdateTask {
    /// Changes nothing yet.
    pub fn of(id: Id) -> Self {
        let (title, priority, description, steps, status) = (None, None, None, None, None);
        Self { id, title, priority, description, steps, status, force: false }
    }

    /// Whether no field is given.
    pub fn is_empty(&self) -> bool {
        Self { force: false, ..self.clone() } == Self::of(self.id.clone())
    }
}

#[async_trait]
impl Verb for UpdateTask {
    type Payload = TaskPayload;
    const ROUTE: Route = Route::patch("task update", "/tasks/{id}");
    const NAMES_LEASE: bool = true;

    /// The state of a held task is changed by its holder, or by a person's override, which is refused to a caller that
    /// works under a lease.
    async fn run(self, cx: &Context) -> Result<TaskPayload> {
        if self.is_empty() {
            return Err(bad_value("no fields to update".into()).into());
        }
        let new_description = match self.description {
            Some(text) => Some(description(Some(text))?.unwrap_or_default()),
            None => None,
        };
        let under_lease = cx.token.is_some() || cx.lease.is_some() || cx.ambient_lease.is_some();
        if self.force && under_lease {
            return Err(Refusal::ForceUnderLease.into());
        }
        if self.force && self.status.is_none() {
            return Err(bad_value("--force goes with --status".into()).into());
        }
        let id = self.id.into_inner();
        let intent = Edit {
            call: cx.call(),
            id: id.clone(),
            title: self.title.map(Title::into_inner),
            priority: self.priority.map(Priority::get),
            description: new_description,
            steps: self.steps.map(Steps::into_inner),
            status: self.status.map(TaskStatus::into_inner),
            caller: cx.caller(&id)?,
            force: self.force,
        };
        perform_and_show(cx, id, intent).await
    }
}
