//! `loop config`: the settings of a loop, and where each comes from.

use rota_core::{Policy, TaskId};
use rota_store::Store;
use rota_store::intents::policy::CurrentPolicy;
use rota_store::intents::read::Show;
use serde::Serialize;

use crate::Result;
use crate::context::{Context, task_id};

/// The settings of a loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoopConfig<T> {
    /// The loop.
    pub id: TaskId,
    /// Its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Each with its source.
    pub settings: Vec<T>,
}

/// The settings of a loop, as whoever knows the configuration makes them out of its kind and the policy in force.
pub async fn config<S: Store, T>(
    cx: &Context<S>,
    id: &str,
    settings: impl FnOnce(&str, &Policy) -> Vec<T>,
) -> Result<LoopConfig<T>> {
    let (view, _) = cx.store.perform(&Show { call: cx.call(), id: task_id(id)? }).await?;
    let (published, _) = cx.store.perform(&CurrentPolicy { call: cx.call() }).await?;
    let kind = view.task.kind;
    let settings = settings(kind.as_deref().unwrap_or_default(), &published.policy);
    Ok(LoopConfig { id: view.task.id, kind, settings })
}
