//! The block outlives the process (G3: a restart in the middle keeps it).

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rota_gate::{BlockEnd, BlockStore, Gate, GateConfig, OpenError, Outcome, Priority, Refusal, StoredBlock};

use crate::support::{SUCCESS, in_time, limited, ready, secs, slots_only};

/// A store whose clock and faults the test decides.
#[derive(Default)]
struct Shelf {
    blocks: Mutex<HashMap<String, StoredBlock>>,
    unix_ms: AtomicU64,
    is_broken: AtomicBool,
    saves: AtomicU64,
}

impl Shelf {
    fn at(unix_ms: u64) -> Arc<Self> {
        Arc::new(Self { unix_ms: AtomicU64::new(unix_ms), ..Self::default() })
    }

    /// Time passes, for the wall clock and the runtime's clock alike.
    async fn advance(&self, seconds: u64) {
        self.unix_ms.fetch_add(seconds * 1_000, Ordering::SeqCst);
        tokio::time::advance(secs(seconds)).await;
    }

    fn block(&self) -> Option<StoredBlock> {
        self.blocks.lock().unwrap().get("anthropic").copied()
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        if self.is_broken.load(Ordering::SeqCst) { Err("disk full".into()) } else { Ok(()) }
    }
}

impl BlockStore for Shelf {
    fn load(&self, upstream: &str) -> Result<Option<StoredBlock>, Box<dyn Error + Send + Sync>> {
        self.check()?;
        Ok(self.blocks.lock().unwrap().get(upstream).copied())
    }

    fn save(&self, upstream: &str, block: StoredBlock) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.check()?;
        self.saves.fetch_add(1, Ordering::SeqCst);
        self.blocks.lock().unwrap().insert(upstream.to_owned(), block);
        Ok(())
    }

    fn unix_millis(&self) -> u64 {
        self.unix_ms.load(Ordering::SeqCst)
    }
}

const START: u64 = 1_800_000_000_000;

fn open(config: GateConfig, store: &Arc<Shelf>) -> Gate {
    Gate::with_store(config, "anthropic", Arc::clone(store) as Arc<dyn BlockStore>).unwrap()
}

fn rate_limited(retry_after: u64) -> Outcome {
    Outcome::RateLimited { retry_after: Some(secs(retry_after)) }
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_keeps_the_block_and_its_hits() {
    let store = Shelf::at(START);
    let gate = open(slots_only(10), &store);
    ready(&gate, "a").report(rate_limited(60)).unwrap();
    drop(gate);
    store.advance(20).await;

    let gate = open(slots_only(10), &store);
    assert_eq!(limited(&gate, "b"), Some(secs(40)));
    let permit = in_time(gate.acquire("c", Priority::Critical)).await.unwrap();
    assert_eq!(permit.waited(), secs(40), "not a moment earlier");
    assert_eq!((gate.state().hits, gate.state().slots_now), (1, 1), "it ramps after the block");
    permit.report(Outcome::RateLimited { retry_after: None }).unwrap();
    assert_eq!(
        gate.state().block.unwrap().ends_in,
        Some(secs(10)),
        "the second hit in a row doubles the backoff"
    );
}

/// Only a block is followed by a ramp: ten first calls of a fresh gate start at once.
#[tokio::test(start_paused = true)]
async fn a_fresh_start_does_not_ramp() {
    let store = Shelf::at(START);
    let gate = open(GateConfig::default(), &store);
    assert!(!gate.state().ramping);
    let permits: Vec<_> = (0..10).map(|index| ready(&gate, &format!("call-{index}"))).collect();
    assert_eq!((permits.len(), gate.state().slots_now), (10, 10));
    drop((permits, gate));
    assert!(!open(GateConfig::default(), &store).state().ramping, "nor does a restart without a block");
}

/// A restart while the gate comes back from a block goes on where the ramp was.
#[tokio::test(start_paused = true)]
async fn a_restart_during_a_ramp_goes_on_with_it() {
    let store = Shelf::at(START);
    let gate = open(slots_only(10), &store);
    ready(&gate, "a").report(rate_limited(60)).unwrap();
    drop(gate);
    store.advance(60 + 15).await;
    let gate = open(slots_only(10), &store);
    assert_eq!((gate.state().slots_now, gate.state().block), (5, None));
    store.advance(15).await;
    assert_eq!((gate.state().slots_now, gate.state().ramping), (10, false));
    drop(gate);
    assert!(!open(slots_only(10), &store).state().ramping, "it is over");
}

#[tokio::test(start_paused = true)]
async fn another_host_learns_of_the_block() {
    let store = Shelf::at(START);
    let (here, there) = (open(slots_only(10), &store), open(slots_only(10), &store));
    ready(&here, "a").report(rate_limited(60)).unwrap();
    assert_eq!(there.state().block, None);
    there.refresh_block().unwrap();
    assert_eq!(there.state().block.unwrap().ends_in, Some(secs(60)));
    store.advance(10).await;
    there.refresh_block().unwrap();
    assert_eq!(there.state().block.unwrap().ends_in, Some(secs(50)), "reading it again changes nothing");
}

#[tokio::test(start_paused = true)]
async fn upstreams_do_not_share_a_block() {
    let store = Shelf::at(START);
    let gate = open(slots_only(10), &store);
    ready(&gate, "a").report(rate_limited(60)).unwrap();
    let other = Gate::with_store(slots_only(10), "openai", store as Arc<dyn BlockStore>).unwrap();
    assert_eq!(other.state().block, None);
}

#[tokio::test(start_paused = true)]
async fn a_quota_without_reset_outlives_the_process_until_it_is_unblocked() {
    let store = Shelf::at(START);
    let gate = open(slots_only(10), &store);
    ready(&gate, "a").report(Outcome::Quota { resets_in: None }).unwrap();
    assert_eq!(store.block().unwrap().until, BlockEnd::Unblock);
    store.advance(1_000_000).await;
    let gate = open(slots_only(10), &store);
    assert_eq!(gate.acquire("b", Priority::Normal).await.unwrap_err(), Refusal::Quota { resets_in: None });
    gate.unblock();
    drop(ready(&gate, "b"));
    let gate = open(slots_only(10), &store);
    assert_eq!(gate.state().block, None, "the unblocking is stored too");
}

#[tokio::test(start_paused = true)]
async fn it_is_saved_when_it_changes_and_not_otherwise() {
    let store = Shelf::at(START);
    let gate = open(slots_only(10), &store);
    store.advance(30).await;
    drop(ready(&gate, "a"));
    ready(&gate, "b").report(SUCCESS).unwrap();
    assert_eq!(store.saves.load(Ordering::SeqCst), 0);
    ready(&gate, "c").report(rate_limited(60)).unwrap();
    assert_eq!(store.saves.load(Ordering::SeqCst), 1);
    store.advance(60).await;
    ready(&gate, "d").report(SUCCESS).unwrap();
    assert_eq!(
        (store.saves.load(Ordering::SeqCst), store.block().unwrap().hits),
        (2, 0),
        "hits are forgotten there too"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_reported_and_tried_again() {
    let store = Shelf::at(START);
    let gate = open(slots_only(10), &store);
    store.is_broken.store(true, Ordering::SeqCst);
    let other = ready(&gate, "other");
    ready_after_ramp(&gate, &store, "a").await.report(rate_limited(60)).unwrap();
    assert!(gate.state().block.is_some(), "the block holds here all the same");
    let fault = gate.store_fault().unwrap();
    assert_eq!(fault.to_string(), "the stored block could not be written");
    assert_eq!(fault.source.to_string(), "disk full");
    assert!(gate.refresh_block().is_err());
    let failed = Gate::with_store(slots_only(10), "anthropic", Arc::clone(&store) as Arc<dyn BlockStore>);
    assert!(matches!(failed, Err(OpenError::Store(_))), "a block that cannot be read is not taken for none");

    store.is_broken.store(false, Ordering::SeqCst);
    other.report(SUCCESS).unwrap();
    assert!(gate.store_fault().is_none());
    assert_eq!(store.block().unwrap().hits, 1);
}

async fn ready_after_ramp(gate: &Gate, store: &Shelf, id: &str) -> rota_gate::Permit {
    store.advance(30).await;
    ready(gate, id)
}

/// A wall clock that jumped does not turn a throttle into an outage; a quota is honoured as it is.
#[tokio::test(start_paused = true)]
async fn a_throttle_from_the_far_future_is_cut_to_what_a_throttle_can_be() {
    let store = Shelf::at(START);
    let far = BlockEnd::UnixMillis(START + 10_000_000_000);
    let past = BlockEnd::UnixMillis(0);
    for (quota_until, expected) in [(past, secs(300)), (far, secs(10_000_000))] {
        let block = StoredBlock { until: far, quota_until, hits: 3 };
        store.blocks.lock().unwrap().insert("anthropic".to_owned(), block);
        let gate = open(slots_only(10), &store);
        assert_eq!(gate.state().block.unwrap().ends_in, Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_before_its_stamps_or_at_its_ends_does_no_harm() {
    for (now, until) in [(0, 0), (0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
        let store = Shelf::at(now);
        let end = BlockEnd::UnixMillis(until);
        let block = StoredBlock { until: end, quota_until: end, hits: u32::MAX };
        store.blocks.lock().unwrap().insert("anthropic".to_owned(), block);
        let gate = open(slots_only(10), &store);
        gate.unblock();
        ready(&gate, "a").report(rate_limited(60)).unwrap();
        assert!(store.block().is_some());
    }
}
