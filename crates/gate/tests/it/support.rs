//! What several tests need.

use std::time::Duration;

use rota_gate::{Gate, GateConfig, Outcome, Permit, Priority, QueuedTicket, TryAcquire, Usage};

/// How many random cases a test runs: `ROTA_TEST_CASES`, for longer runs, or what the normal check affords.
pub fn cases(normal: u32) -> u32 {
    std::env::var("ROTA_TEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(normal)
}

/// A success that used no tokens.
pub const SUCCESS: Outcome = Outcome::Success(Usage { input_tokens: 0, output_tokens: 0 });

pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Limits that leave only the slots in the way.
pub fn slots_only(max_concurrent: usize) -> GateConfig {
    GateConfig {
        max_concurrent,
        max_requests_per_window: 1_000_000,
        burst: 1_000_000,
        ..GateConfig::default()
    }
}

pub fn gate(config: GateConfig) -> Gate {
    Gate::new(config).expect("a valid configuration")
}

#[track_caller]
pub fn ready(gate: &Gate, id: &str) -> Permit {
    match gate.try_acquire(id, Priority::Normal) {
        TryAcquire::Ready(permit) => permit,
        other => panic!("{id}: expected Ready, got {other:?}"),
    }
}

#[track_caller]
pub fn queued(gate: &Gate, id: &str, priority: Priority) -> (QueuedTicket, usize, Duration) {
    match gate.try_acquire(id, priority) {
        TryAcquire::Queued { ticket, position, estimated_wait } => (ticket, position, estimated_wait),
        other => panic!("{id}: expected Queued, got {other:?}"),
    }
}

#[track_caller]
pub fn limited(gate: &Gate, id: &str) -> Option<Duration> {
    match gate.try_acquire(id, Priority::Normal) {
        TryAcquire::RateLimited { retry_after } => retry_after,
        other => panic!("{id}: expected RateLimited, got {other:?}"),
    }
}

/// Fails after a day of paused time instead of hanging: a lost wake-up shows at once.
pub async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(secs(86_400), future).await.expect("someone waits for ever")
}

/// The most starts that lie in any half-open stretch of `window`.
pub fn most_in_any_window(starts: &[u64], window: u64) -> usize {
    let mut starts = starts.to_vec();
    starts.sort_unstable();
    let counts = starts.iter().map(|first| {
        let end = first.saturating_add(window);
        starts.iter().filter(|start| (*first..end).contains(*start)).count()
    });
    counts.max().unwrap_or(0)
}
