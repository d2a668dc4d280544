//! `prune`: takes out old finished tasks and the old part of the journal.

use rota_core::UnixMillis;
use rota_store::intents::Call;
use rota_store::intents::prune::{Place, Prune};
use rota_store::{Access, Intent, Store, Tx};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;

/// What was taken out, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pruned {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Only what did not change since.
    pub unchanged_since: UnixMillis,
    /// Tasks taken out.
    pub tasks: u64,
    /// Old and finished tasks that stay, because another waits for them or is their child.
    pub needed: u64,
    /// Events of tasks that stay, now told by a snapshot.
    pub events: u64,
}

/// Prunes the scope, in batches; a dry run does the same in one transaction that is undone.
pub async fn prune(cx: &Context, older_than_ms: i64, dry_run: bool) -> Result<Pruned> {
    let mut tx = cx.store.begin(if dry_run { Access::Write } else { Access::Read }).await?;
    let now = match cx.now {
        Some(now) => now,
        None => tx.clock().await?,
    };
    let unchanged_since = now.plus_ms(older_than_ms.saturating_neg());
    let mut total = Pruned { dry_run, unchanged_since, tasks: 0, needed: 0, events: 0 };
    let mut tx = Some(tx).filter(|_| dry_run);
    let mut next = Some(Place::START);
    while let Some(place) = next {
        let call = Call { now: Some(now), allow_future: cx.now.is_none() || cx.allow_future, ..cx.call() };
        let batch = Prune { call, unchanged_since, place };
        let (pruned, then) = match &mut tx {
            Some(tx) => batch.run(tx).await?,
            None => cx.store.perform(&batch).await?,
        };
        total.tasks += pruned.tasks;
        total.needed += pruned.needed;
        total.events += pruned.events;
        next = then;
    }
    Ok(total)
}
