//! Random schedules of the handle under a paused clock (P8, G2, G4).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use rota_gate::{Gate, GateConfig, Outcome, Priority, TryAcquire};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{SUCCESS, cases, in_time, millis, most_in_any_window};

/// One caller: comes, waits for as long as it has patience, holds its slot, ends somehow.
#[derive(Debug, Clone)]
struct Caller {
    arrives_ms: u64,
    level: u8,
    patience_ms: Option<u64>,
    holds_ms: u64,
    ends: End,
    tries_first: bool,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Success,
    Dropped,
    Panics,
    RateLimited(Option<u64>),
    Overloaded,
}

fn callers() -> impl Strategy<Value = Vec<Caller>> {
    let end = prop_oneof![
        6 => Just(End::Success),
        2 => Just(End::Dropped),
        1 => Just(End::Panics),
        1 => prop::option::of(0u64..20).prop_map(End::RateLimited),
        1 => Just(End::Overloaded),
    ];
    let patience = prop::option::weighted(0.4, 0u64..20_000);
    let caller = (0u64..30_000, 0u8..4, patience, 0u64..5_000, end, any::<bool>());
    let caller = caller.prop_map(|(arrives_ms, level, patience_ms, holds_ms, ends, tries_first)| Caller {
        arrives_ms,
        level,
        patience_ms,
        holds_ms,
        ends,
        tries_first,
    });
    prop::collection::vec(caller, 1..60)
}

#[derive(Debug, Default)]
struct Log {
    starts: Vec<u64>,
    in_flight: usize,
    most_in_flight: usize,
    gave_up: u64,
}

/// Counts down even if the caller panics.
struct InFlight(Arc<Mutex<Log>>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.lock().unwrap().in_flight -= 1;
    }
}

async fn call(gate: Gate, number: usize, caller: Caller, log: Arc<Mutex<Log>>, began: Instant) {
    sleep(millis(caller.arrives_ms)).await;
    let (id, priority) = (format!("{number}"), Priority::ALL[usize::from(caller.level)]);
    let patience = caller.patience_ms.map_or(Duration::from_secs(864_000), millis);
    let answer = if caller.tries_first {
        match gate.try_acquire(id.clone(), priority) {
            TryAcquire::Ready(permit) => Ok(Ok(permit)),
            TryAcquire::Queued { ticket, .. } => timeout(patience, ticket).await,
            TryAcquire::RateLimited { .. } => timeout(patience, gate.acquire(id, priority)).await,
            TryAcquire::Rejected { reason } => panic!("rejected: {reason}"),
        }
    } else {
        timeout(patience, gate.acquire(id, priority)).await
    };
    let permit = match answer {
        Ok(Ok(permit)) => permit,
        Ok(Err(refusal)) => panic!("refused: {refusal}"),
        Err(_) => {
            log.lock().unwrap().gave_up += 1;
            return;
        }
    };
    {
        let mut log = log.lock().unwrap();
        log.starts.push(began.elapsed().as_micros() as u64);
        log.in_flight += 1;
        log.most_in_flight = log.most_in_flight.max(log.in_flight);
    }
    let _in_flight = InFlight(Arc::clone(&log));
    assert!(gate.state().block.is_none(), "started inside a block");
    sleep(millis(caller.holds_ms)).await;
    match caller.ends {
        End::Success => {
            permit.report(SUCCESS).unwrap();
        }
        End::Dropped => drop(permit),
        // Unwinds as a panic does, without its message on the terminal.
        End::Panics => std::panic::resume_unwind(Box::new("on purpose")),
        End::RateLimited(wait) => {
            let retry_after = wait.map(Duration::from_secs);
            permit.report(Outcome::RateLimited { retry_after }).unwrap();
        }
        End::Overloaded => {
            permit.report(Outcome::Overloaded { earlier: 0 }).unwrap();
        }
    }
}

fn run(config: &GateConfig, callers: Vec<Caller>) -> (Gate, Log) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let gate = Gate::new(config.clone()).unwrap();
        let log = Arc::new(Mutex::new(Log::default()));
        let began = Instant::now();
        let spawn = |(number, caller): (usize, Caller)| {
            let panics = matches!(caller.ends, End::Panics);
            (tokio::spawn(call(gate.clone(), number, caller, Arc::clone(&log), began)), panics)
        };
        let tasks: Vec<_> = callers.into_iter().enumerate().map(spawn).collect();
        for (task, panics) in tasks {
            if let Err(error) = in_time(task).await {
                let purpose = error.into_panic();
                assert!(panics && purpose.is::<&str>(), "{:?}", purpose.downcast_ref::<String>());
            }
        }
        (gate, Arc::into_inner(log).unwrap().into_inner().unwrap())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    /// P8, G2, G4: whoever has patience is served; slots, window and block hold; nothing is left behind.
    #[test]
    fn the_handle_keeps_the_rules(
        slots in 1usize..4,
        limit in 1u32..8,
        window in 1u64..15,
        burst in 1u32..8,
        callers in callers(),
    ) {
        let config = GateConfig {
            max_concurrent: slots,
            max_requests_per_window: limit,
            rate_window: Duration::from_secs(window),
            burst,
            ..GateConfig::default()
        };
        let count = callers.len();
        let (gate, log) = run(&config, callers);
        prop_assert!(log.most_in_flight <= slots);
        prop_assert!(most_in_any_window(&log.starts, window * 1_000_000) <= limit as usize);
        prop_assert_eq!(log.starts.len() + log.gave_up as usize, count);
        let state = gate.state();
        prop_assert_eq!((state.running, state.queued), (0, 0));
        prop_assert_eq!(state.stats.completed, log.starts.len() as u64);
        prop_assert_eq!(state.stats.cancelled, log.gave_up);
    }
}

/// The same over the runtime with threads: nothing is lost when callers really run at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_at_once_lose_nothing() {
    let config = GateConfig {
        max_requests_per_window: 1_000_000,
        burst: 1_000_000,
        max_concurrent: 3,
        ..GateConfig::default()
    };
    let gate = Gate::new(config).unwrap();
    let tasks: Vec<_> = (0..32)
        .map(|task| {
            let gate = gate.clone();
            tokio::spawn(async move {
                for round in 0..200 {
                    let mut acquire = gate.acquire(format!("{task}-{round}"), Priority::ALL[round % 4]);
                    if (task + round) % 3 == 0 {
                        // Polled once at the least, then dropped wherever it stands.
                        let first = std::future::poll_fn(|context| {
                            std::task::Poll::Ready(std::pin::Pin::new(&mut acquire).poll(context))
                        });
                        drop(first.await);
                        tokio::task::yield_now().await;
                        continue;
                    }
                    let permit = acquire.await.unwrap();
                    assert!(gate.state().running <= 3);
                    tokio::task::yield_now().await;
                    permit.report(SUCCESS).unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let state = gate.state();
    assert_eq!((state.running, state.queued), (0, 0));
    drop(gate.acquire("last", Priority::Low).await.unwrap());
}
