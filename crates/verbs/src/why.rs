//! `why`: every check with its verdict, every score term, the position, what would free it.

use rota_core::explain::Explanation;
use rota_store::Store;
use rota_store::intents::read::{Runners, Why};

use crate::Result;
use crate::context::{Context, task_id};

/// Explains why a task runs, or not.
pub async fn why(cx: &Context, id: &str) -> Result<Explanation> {
    let (call, host, mut runners) = (cx.call(), cx.host.clone(), Runners::clone(&cx.runners));
    runners.waits = cx.settings.waits(runners.kinds.iter().flat_map(|kinds| kinds.keys()));
    cx.store.perform(&Why { call, id: task_id(id)?, host, runners }).await
}
