//! `rota prune`

use async_trait::async_trait;
use rota_core::UnixMillis;
use rota_core::text::escaped;
use rota_store::intents::Call;
use rota_store::intents::prune::{Place, Prune};
use rota_store::{Access, Intent, Store, Tx};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;
use crate::input::BadInput;
use crate::verb::{Route, Verb};

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

/// Take out old finished tasks and the old part of the journal
///
/// Done, failed, invalidated and deleted tasks go, unless another waits for them or is their child. Old events of
/// tasks that stay are told by one snapshot. A task added again under a pruned id goes on from its last fence.
///
/// Example: rota prune --older-than 30d --dry-run
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PruneStore {
    /// What did not change for so long: 30d, 12h, 45m
    #[arg(long = "older-than", value_name = "DURATION", allow_hyphen_values = true, value_parser = milliseconds)]
    pub older_than_ms: u64,
    /// Say what would go, change nothing
    #[arg(long)]
    #[serde(default)]
    pub dry_run: bool,
}

#[async_trait]
impl Verb for PruneStore {
    type Payload = Pruned;
    const ROUTE: Route = Route::post("prune", "/prunings");

    /// In batches; a dry run does the same in one transaction that is undone.
    async fn run(self, cx: &Context) -> Result<Pruned> {
        let (dry_run, older_than_ms) = (self.dry_run, i64::try_from(self.older_than_ms).unwrap_or(i64::MAX));
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
            let call =
                Call { now: Some(now), allow_future: cx.now.is_none() || cx.allow_future, ..cx.call() };
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
}

/// `30d`, `12h`, `45m`, `90s`, `2w` as milliseconds.
fn milliseconds(text: &str) -> std::result::Result<u64, BadInput> {
    let units = [('s', 1_000), ('m', 60_000), ('h', 3_600_000), ('d', 86_400_000), ('w', 604_800_000_u64)];
    let read = || {
        let (unit, milliseconds) = units.into_iter().find(|(unit, _)| text.ends_with(*unit))?;
        let number = text.strip_suffix(unit)?;
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let length = number.parse::<u64>().ok().filter(|_| digits)?.checked_mul(milliseconds);
        length.filter(|length| i64::try_from(*length).is_ok())
    };
    read().ok_or_else(|| {
        let given = escaped(text);
        BadInput::Malformed(format!("--older-than must be a duration such as 30d, 12h or 45m, got: {given}"))
    })
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn durations() {
        for (text, length) in [("90s", 90_000), ("0d", 0), ("2w", 1_209_600_000), ("45m", 2_700_000)] {
            assert_eq!(milliseconds(text).ok(), Some(length), "{text}");
        }
        for text in ["", "d", "30", "-1d", "1.5h", "1y", "99999999999999999w", "１d"] {
            assert!(milliseconds(text).is_err(), "{text}");
        }
    }
}
