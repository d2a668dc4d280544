//! `rota task create`

use async_trait::async_trait;
use rota_store::Store;
use rota_store::intents::add::{Add, NewPriority, NewTask};
use rota_store::intents::lease_token::CreateLinked;
use rota_store::intents::read::TaskView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::input::{
    Category, Id, Ids, Priority, QueueName, Reference, SpecRef, Steps, Time, Title, description,
};
use crate::lease_token::{On, Right};
use crate::queue::tasks;
use crate::step::perform_and_show;
use crate::verb::{Access, Route, Tool, Verb};
use crate::{Result, TaskPayload};

/// Add an open task
///
/// Example: rota task create fix-login "Fix the login" -p 1 --deps setup-db
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTask {
    /// Its id
    #[arg(value_name = "id")]
    pub id: Id,
    /// One line
    #[arg(value_name = "title")]
    pub title: Title,
    /// Priority, lower first [default: the queue's, 2 in tasks]
    #[arg(short = 'p', long, value_name = "N", allow_hyphen_values = true)]
    pub priority: Option<Priority>,
    /// Category
    #[arg(short = 'c', long, value_name = "CAT")]
    pub category: Option<Category>,
    /// Description
    #[arg(short = 'd', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub description: Option<String>,
    /// Steps, a JSON array of texts
    #[arg(short = 's', long, value_name = "JSON_ARRAY", allow_hyphen_values = true)]
    pub steps: Option<Steps>,
    /// The spec it belongs to
    #[arg(short = 'r', long, value_name = "SPEC_REF")]
    pub spec: Option<SpecRef>,
    /// Free reference
    #[arg(long = "ref", value_name = "REF")]
    #[serde(rename = "ref")]
    pub reference: Option<Reference>,
    /// Comma-separated ids of tasks that come first
    #[arg(long, value_name = "a,b")]
    pub deps: Option<Ids>,
    /// Not before this time (RFC 3339)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub after: Option<Time>,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "tasks")]
    #[serde(default = "tasks")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for CreateTask {
    type Payload = TaskPayload;
    const ROUTE: Route = Route::post("task create", "/tasks");
    const ACCESS: Access = Access::LeaseToken(Right {
        bound: "at most 100 tasks, where the queue's policy says `agentsMayCreate`; not in queues `issues` and `loops`; no \
                priority more urgent than its own, also by default",
        ..Right::on(On::NewTask)
    });
    const TOOL: Option<Tool> = Some(
        Tool::core(
            "File a task",
            "Add an open task to the backlog, for work that you discovered and that is not part of your own task. The id \
             must be new; deps are tasks that must be done first.",
        )
        .with_agent(),
    );

    /// A duplicate id or an unknown dependency is refused.
    async fn run(self, cx: &Context) -> Result<TaskPayload> {
        let id = self.id.into_inner();
        let (queue, title) = (self.queue.into_inner(), self.title.into_inner());
        let new = NewTask {
            priority: self
                .priority
                .map_or(NewPriority::QueueDefault, |given| NewPriority::Given(given.get())),
            category: self.category.and_then(Category::into_inner),
            description: description(self.description)?,
            steps: self.steps.unwrap_or_default().into_inner(),
            spec_ref: self.spec.and_then(SpecRef::into_inner),
            reference: self.reference.and_then(Reference::into_inner),
            deps: self.deps.unwrap_or_default().0.into_iter().map(Id::into_inner).collect(),
            not_before: self.after.map(Time::into_inner),
            ..NewTask::new(id.clone(), &queue, &title)
        };
        match &cx.token {
            Some(lease) => {
                let intent = CreateLinked { call: cx.call(), task: new, lease: lease.clone() };
                perform_and_show(cx, id, intent).await
            }
            None if new.deps.is_empty() => {
                let added = cx.store.perform(&Add { call: cx.call(), tasks: vec![new] }).await?.pop();
                let Some(task) = added else { unreachable!("one task was added") };
                Ok(TaskPayload::of_view(TaskView::of_unlinked(task)))
            }
            None => perform_and_show(cx, id, Add { call: cx.call(), tasks: vec![new] }).await,
        }
    }
}
