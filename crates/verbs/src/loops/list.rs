//! `loop list`: loops in the one order.

use rota_core::text::escaped;
use rota_core::{Front, Status};
use rota_store::Store;
use rota_store::intents::read::List;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LOOPS, LoopPayload};
use crate::Result;
use crate::context::{Context, bad_value};

/// Which loops.
#[derive(Clone, Debug, Default)]
pub struct ListLoops {
    /// In which states; none for all but deleted.
    pub statuses: Option<Vec<Status>>,
    /// Of which kinds; none for all.
    pub kinds: Option<Vec<String>>,
}

/// A list of loops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loops {
    /// How many.
    pub total: usize,
    /// In order.
    pub loops: Vec<LoopPayload>,
}

/// Lists loops; leaves deleted ones out unless asked.
pub async fn list(cx: &Context, input: ListLoops) -> Result<Loops> {
    let all = || Status::ALL.into_iter().filter(|status| *status != Status::Deleted).collect();
    let statuses = input.statuses.unwrap_or_else(all);
    let intent = List { call: cx.call(), queue: LOOPS.to_owned(), statuses, assignee: None };
    let mut views = cx.store.perform(&intent).await?;
    if let Some(kinds) = &input.kinds {
        views.retain(|view| view.task.kind.as_ref().is_some_and(|kind| kinds.contains(kind)));
    }
    let loops: Vec<LoopPayload> = views.into_iter().map(LoopPayload::of_view).collect();
    Ok(Loops { total: loops.len(), loops })
}

/// Reads a comma-separated list of states in the words of loops.
pub fn statuses(list: &str) -> Result<Vec<Status>> {
    let word = |status: &Status| status.word_for(Front::Loop, false);
    let read = |given: &str| {
        let found = Status::ALL.into_iter().find(|status| word(status) == given);
        let known = || Status::ALL.iter().map(word).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| bad_value(format!("unknown status '{}' (known: {})", escaped(given), known())))
    };
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    let statuses: Vec<Status> = words.map(read).collect::<std::result::Result<_, _>>()?;
    if statuses.is_empty() {
        return Err(bad_value("--status is empty".into()).into());
    }
    Ok(statuses)
}
