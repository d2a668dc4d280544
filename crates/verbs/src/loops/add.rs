//! `rota loop add`: one more loop, by a person or by the agent of its parent.

use std::hash::{BuildHasher, RandomState};

use async_trait::async_trait;
use rota_core::{LeaseId, TaskId};
use rota_store::Store;
use rota_store::intents::add::{NewPriority, NewTask};
use rota_store::intents::loops;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LOOPS, LoopPayload};
use crate::Result;
use crate::context::{Context, task_id};
use crate::input::{IdOrNone, Kind, LoopPriority, Path, TitleOrNone, description};
use crate::lease_token::{On, Right};
use crate::verb::{Access, Route, Verb};

/// Add a loop
///
/// An agent that adds one below its own loop needs nothing but --parent: its lease (ROTA_LEASE) says which iteration
/// it comes from. Prints the id.
///
/// Example: rota loop add --kind plan --prompt @idea.md
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddLoop {
    /// Its kind: plan, spec, phase, ralph, or another that rota.yml says how to run
    #[arg(long, value_name = "K")]
    pub kind: Kind,
    /// Its id [default: made up]
    #[arg(long, value_name = "ID")]
    pub id: Option<IdOrNone>,
    /// One line [default: the prompt's first]
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub title: Option<TitleOrNone>,
    /// The loop that must be complete first
    #[arg(long, value_name = "ID")]
    pub parent: Option<IdOrNone>,
    /// A file that must be there first, in the parent's folder (without a parent: in the workspace)
    #[arg(long, value_name = "PATH")]
    pub triggered_by: Option<Path>,
    /// critical, high, normal, low or a number, lower first [default: none]
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub priority: Option<LoopPriority>,
    /// What the agent is told, or @FILE that says it (@- for standard input); kept as the description
    #[arg(long, value_name = "TEXT|@FILE", allow_hyphen_values = true)]
    pub prompt: Option<String>,
}

#[async_trait]
impl Verb for AddLoop {
    type Payload = LoopPayload;
    const ROUTE: Route = Route::post("loop add", "/loops");
    const NAMES_LEASE: bool = true;
    const ACCESS: Access = Access::LeaseToken(Right {
        bound: "at most 1,000 children; no priority more urgent than its own",
        ..Right::on(On::NewChild)
    });

    /// Under the parent's lease the loop comes out of the parent's iteration.
    async fn run(self, cx: &Context) -> Result<LoopPayload> {
        let kind = self.kind.into_inner();
        let prompt = description(self.prompt)?;
        let id = self.id.and_then(IdOrNone::into_inner).map_or_else(|| made_up(&kind), Ok)?;
        let title = self.title.and_then(TitleOrNone::into_inner);
        let title =
            title.or_else(|| prompt.as_deref().and_then(first_line)).unwrap_or_else(|| id.to_string());
        let parent = self.parent.and_then(IdOrNone::into_inner);
        // A malformed lease id is refused even where it would be unused.
        let named = cx.caller(parent.as_ref().unwrap_or(&id))?.lease;
        let lease = named.filter(|lease: &LeaseId| parent.as_ref() == Some(&lease.task));
        let task = NewTask {
            kind: Some(kind),
            priority: self.priority.map_or(NewPriority::Unset, |given| NewPriority::Given(given.get())),
            parent,
            triggered_by: self.triggered_by.map(Path::into_inner),
            description: prompt,
            ..NewTask::new(id, LOOPS, &title)
        };
        let intent = loops::AddLoop { call: cx.call(), task, lease, by_token: cx.token.is_some() };
        Ok(LoopPayload::of_task(cx.store.perform(&intent).await?))
    }
}

/// The first line that says something, cut to what fits a list.
fn first_line(text: &str) -> Option<String> {
    const SHOWN: usize = 80;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(SHOWN).collect())
}

fn made_up(kind: &str) -> Result<TaskId> {
    let number = RandomState::new().hash_one(std::process::id());
    let kind: String = kind.chars().take(32).collect();
    task_id(&format!("{kind}-{number:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_prompts_first_line() {
        assert_eq!(first_line("\n  \n  Do it \nnow"), Some("Do it".into()));
        assert_eq!(first_line(&"x".repeat(99)).map(|line| line.len()), Some(80));
        assert_eq!(first_line("\n \n"), None);
    }
}
