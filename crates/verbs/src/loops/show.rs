//! `rota loop show`

use async_trait::async_trait;
use rota_core::event::{Event, EventKind};
use rota_core::{Front, Outcome, Task, TaskId, UnixMillis, transition};
use rota_store::intents::gateway::Used;
use rota_store::intents::loops;
use rota_store::intents::read::Journal;
use rota_store::{AnyTx, EventFilter, Intent, Outcome as Ran, Store, UsageFilter, UsageRow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LoopPayload, named};
use crate::context::Context;
use crate::gate::{UsageSum, sum_of};
use crate::input::Id;
use crate::lease_token::{On, Right};
use crate::verb::{Access, Route, Verb, read_flattened};
use crate::{Result, Word};

/// A loop in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ShownLoop {
    /// The loop.
    #[serde(flatten)]
    pub task: LoopPayload,
    /// Its children, in the order they were added.
    pub children: Vec<ChildPayload>,
    /// Every run of its body, told from the journal.
    pub iterations: Vec<Iteration>,
    /// What it used of models through the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageSum>,
}

read_flattened!(ShownLoop {
    ..task,
    children: Vec<ChildPayload>,
    iterations: Vec<Iteration>,
    usage: Option<UsageSum>,
});

/// A child as its parent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChildPayload {
    /// The loop.
    pub id: TaskId,
    /// Its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Where it stands.
    pub status: Word,
    /// Its title.
    pub title: String,
}

/// One run of a loop's body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Iteration {
    /// Its number.
    pub iteration: u32,
    /// Under which lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<String>,
    /// When it began.
    pub started_at: UnixMillis,
    /// When it ended; none while it is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<UnixMillis>,
    /// How the lease ended with it; none for one that the next followed at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Why it did not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True while its validation runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub validating: bool,
}

struct InFull {
    show: loops::ShowLoop,
    journal: Journal,
    used: Used,
}

#[async_trait]
impl Intent for InFull {
    type Output = ((rota_store::intents::read::TaskView, Vec<Task>), Vec<Event>, Vec<UsageRow>);

    fn access(&self) -> rota_store::Access {
        rota_store::Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Ran<Self::Output> {
        Ok((self.show.run(tx).await?, self.journal.run(tx).await?, self.used.run(tx).await?.1))
    }
}

/// Show one loop with its children and iterations
///
/// Example: rota loop show plan-1
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowLoop {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for ShowLoop {
    type Payload = ShownLoop;
    const ROUTE: Route = Route::get("loop show", "/loops/{id}");
    const ACCESS: Access = Access::LeaseToken(Right::on(On::Own));

    async fn run(self, cx: &Context) -> Result<ShownLoop> {
        let id = self.id.into_inner();
        let filter = EventFilter { task: Some(id.clone()), ..EventFilter::default() };
        let journal = Journal { call: cx.call(), filter };
        let (scope, task) = (Some(cx.scope.clone()), Some(id.to_string()));
        let used = Used { call: cx.call(), filter: UsageFilter { scope, task, day: None } };
        let in_full = InFull { show: loops::ShowLoop { call: cx.call(), id }, journal, used };
        let ((view, children), events, usage) = named(cx.store.perform(&in_full).await)?;
        let mut iterations = iterations(&events);
        if let Some(last) = iterations.last_mut().filter(|last| last.ended_at.is_none()) {
            last.validating = cx.settings.is_validating(&view.task);
        }
        let child = |task: Task| ChildPayload {
            status: task.status.word_for(Front::Loop, false).into(),
            id: task.id,
            kind: task.kind,
            title: task.title.to_string(),
        };
        Ok(ShownLoop {
            task: LoopPayload::of_view(view),
            children: children.into_iter().map(child).collect(),
            iterations,
            usage: sum_of(&usage),
        })
    }
}

/// A grant or an `iterated` that changed the number begins one; the next one or the end of the lease ends it.
fn iterations(events: &[Event]) -> Vec<Iteration> {
    let mut list: Vec<Iteration> = Vec::new();
    for event in events {
        let number = event.data.changes.get("iteration");
        let number = number.and_then(|number| serde_json::from_str::<u32>(number.as_str()).ok());
        let begins =
            matches!(event.kind, EventKind::Step(transition::Verb::Claim | transition::Verb::Iterate));
        let last = list.last_mut().filter(|last| last.ended_at.is_none());
        match number.filter(|_| begins) {
            Some(iteration) => {
                if let Some(last) = last {
                    last.ended_at = Some(event.at);
                    last.reason.clone_from(&event.data.reason);
                }
                let lease_id = event.lease().map(|lease| lease.to_string());
                let started_at = event.at;
                list.push(Iteration {
                    iteration,
                    lease_id,
                    started_at,
                    ended_at: None,
                    outcome: None,
                    reason: None,
                    validating: false,
                });
            }
            None => {
                if let (Some(last), Some(outcome)) = (last, event.data.outcome) {
                    (last.ended_at, last.outcome) = (Some(event.at), Some(outcome));
                    last.reason.clone_from(&event.data.reason);
                }
            }
        }
    }
    list
}
