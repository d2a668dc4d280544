//! The limits of upstreams as grants see them: a stored block, the ramp after it, a spent budget, and the ceiling on running
//! loops where no gateway counts their calls. `rota why` explains by the same function.

use std::collections::BTreeMap;

use rota_core::UnixMillis;
use rota_core::policy::GatePolicy;
use rota_core::select::{Room, UpstreamLimit};

use super::Cx;
use crate::fault::Fault;
use crate::tx::{BlockRow, Tx};

/// Which upstream the loops of each kind use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Upstreams {
    /// By kind. A kind that names none, or is not here, has a block of its own ([`block_of`]).
    pub of_kind: BTreeMap<String, Option<String>>,
    /// Whether `max_api_calls` bounds the running loops of an upstream, because no gateway counts their calls.
    pub bounds_loops: bool,
}

/// The name of the block that a kind waits for: that of the upstream it uses, else one of its own.
pub fn block_of(kind: &str, uses_api: Option<&str>) -> String {
    uses_api.map_or_else(|| format!("kind:{kind}"), str::to_owned)
}

impl Upstreams {
    /// A room under the limits that hold now for these kinds.
    pub(super) async fn limit<T: Tx>(
        &self,
        tx: &mut T,
        cx: &Cx,
        room: Room,
        kinds: &[&str],
    ) -> Result<Room, Fault> {
        let gate = &cx.published.policy.gate;
        let mut upstream_of = BTreeMap::new();
        let mut limits: BTreeMap<String, UpstreamLimit> = BTreeMap::new();
        for kind in kinds {
            let uses_api = self.of_kind.get(*kind).and_then(Option::as_deref);
            let name = block_of(kind, uses_api);
            let limit = limits.entry(name.clone()).or_default();
            if uses_api.is_some() && self.bounds_loops {
                limit.ceiling = Some(gate.max_concurrent);
            }
            upstream_of.insert((*kind).to_owned(), name);
        }
        for block in tx.blocks().await? {
            let is_budget = block.budget_of().is_some();
            let Some(limit) = limits.get_mut(block.budget_of().unwrap_or(&block.upstream)) else { continue };
            if block.holds(cx.now) {
                limit.held.extend(block.wait(cx.now));
            } else if let Some(ramp) = ramp(&block, gate, cx.now).filter(|_| !is_budget) {
                limit.ceiling = Some(limit.ceiling.map_or(ramp, |ceiling| ceiling.min(ramp)));
            }
        }
        Ok(room.with_upstreams(upstream_of, limits))
    }
}

/// How many loops of an upstream may run so soon after its block: one at first, all again after the recovery period.
fn ramp(block: &BlockRow, gate: &GatePolicy, now: UnixMillis) -> Option<u32> {
    let since_ms = u64::try_from(now.age_ms_of(block.blocked_until?)).unwrap_or(0);
    let period_ms = u64::from(gate.recovery_period_secs) * 1_000;
    if since_ms >= period_ms {
        return None;
    }
    let more = u64::from(gate.max_concurrent).saturating_mul(since_ms) / period_ms;
    Some(u32::try_from(more.saturating_add(1)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_begins_with_one() {
        let gate = GatePolicy { max_concurrent: 10, recovery_period_secs: 30, ..GatePolicy::default() };
        let block = BlockRow {
            upstream: "a".into(),
            blocked_until: Some(UnixMillis::new(1_000)),
            hits: 1,
            reason: None,
            updated_at: UnixMillis::new(0),
        };
        for (now, wanted) in
            [(1_000, Some(1)), (3_999, Some(1)), (4_000, Some(2)), (30_999, Some(10)), (31_000, None)]
        {
            assert_eq!(ramp(&block, &gate, UnixMillis::new(now)), wanted, "{now}");
        }
        assert_eq!(ramp(&BlockRow { blocked_until: None, ..block }, &gate, UnixMillis::new(0)), None);
    }
}
