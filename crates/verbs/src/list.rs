//! `list`: the tasks of a queue, in the one order.

use rota_core::Status;
use rota_store::Store;
use rota_store::intents::read::List as ListIntent;

use crate::context::{Context, bad_value};
use crate::payload::TaskList;
use crate::{Result, TaskPayload};

/// Which tasks.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// Which queue.
    pub queue: String,
    /// In which states; none for all but deleted.
    pub statuses: Option<Vec<Status>>,
    /// Deleted ones too.
    pub all: bool,
    /// Only this holder's.
    pub assignee: Option<String>,
}

/// Lists tasks; leaves deleted ones out unless asked.
pub async fn list(cx: &Context, input: List) -> Result<TaskList> {
    let statuses = match input.statuses {
        Some(statuses) => statuses,
        None if input.all => Vec::new(),
        None => Status::ALL.into_iter().filter(|status| *status != Status::Deleted).collect(),
    };
    let intent = ListIntent { call: cx.call(), queue: input.queue, statuses, assignee: input.assignee };
    let views = cx.store.perform(&intent).await?;
    Ok(TaskList::new(views.into_iter().map(TaskPayload::of_view).collect()))
}

/// Reads a comma-separated list of states.
pub fn statuses(list: &str) -> Result<Vec<Status>> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    let statuses: Vec<Status> = words.map(status).collect::<Result<_>>()?;
    if statuses.is_empty() {
        return Err(bad_value("--status is empty".into()).into());
    }
    Ok(statuses)
}

/// Reads one state.
pub fn status(word: &str) -> Result<Status> {
    let known = || Status::ALL.map(Status::word).join(", ");
    let shown = rota_core::text::escaped(word);
    Ok(Status::from_word(word)
        .ok_or_else(|| bad_value(format!("unknown status '{shown}' (known: {})", known())))?)
}
