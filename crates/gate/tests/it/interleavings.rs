//! The handle's own source under another lock and another clock: which interleaving of its critical
//! sections comes next is what shuttle picks, by seed (G2, P8).
//!
//! `desk.rs`, `waiter.rs`, `permit.rs` and `saver.rs` are compiled here a second time. Their `super` is this
//! module, which gives them shuttle's mutex and a clock that a thread moves by hand.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rota_gate::{
    Admission, Advice, BlockStore, Effect, GateConfig, GateState, Moment, NotRunning, Outcome, Priority,
    PureGate, Refusal, Request, StoreFault, StoredBlock, Ticket, Usage,
};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::support::{SUCCESS, cases, slots_only};

#[allow(dead_code, reason = "compiled for these tests only in part")]
#[path = "../../src/desk.rs"]
mod desk;
#[allow(dead_code, reason = "compiled for these tests only in part")]
#[path = "../../src/permit.rs"]
mod permit;
#[allow(dead_code, reason = "compiled for these tests only in part")]
#[path = "../../src/saver.rs"]
mod saver;
#[allow(dead_code, reason = "compiled for these tests only in part")]
#[path = "../../src/waiter.rs"]
mod waiter;

mod sync {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
}

/// A clock that only moves when told to; moving it fires the timers that are due.
mod clock {
    use super::{Arc, AtomicU64, Context, Moment, Ordering, Poll, Waker, sync::Mutex};

    #[derive(Debug, Default)]
    pub(crate) struct Clock(Arc<Hands>);

    #[derive(Debug, Default)]
    struct Hands {
        micros: AtomicU64,
        sleepers: Mutex<Vec<(Moment, Waker)>>,
    }

    impl Clock {
        pub fn now(&self) -> Moment {
            Moment::from_micros(self.0.micros.load(Ordering::SeqCst))
        }

        pub fn timer(&self, at: Moment) -> Timer {
            Timer { at, clock: Clock(Arc::clone(&self.0)) }
        }

        pub fn advance(&self, micros: u64) {
            self.0.micros.fetch_add(micros, Ordering::SeqCst);
            let now = self.now();
            let mut due = Vec::new();
            self.0.sleepers.lock().unwrap().retain(|(at, waker)| {
                let waits = *at > now;
                if !waits {
                    due.push(waker.clone());
                }
                waits
            });
            due.into_iter().for_each(Waker::wake);
        }
    }

    #[derive(Debug)]
    pub(crate) struct Timer {
        at: Moment,
        clock: Clock,
    }

    impl Timer {
        pub fn is_set_for(&self, at: Moment) -> bool {
            self.at == at
        }

        pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
            let mut sleepers = self.clock.0.sleepers.lock().unwrap();
            if self.clock.now() >= self.at {
                return Poll::Ready(());
            }
            sleepers.push((self.at, context.waker().clone()));
            Poll::Pending
        }
    }
}

use desk::Desk;
use permit::Permit;
use waiter::Acquire;

/// Schedules per test; each one is another seed.
fn schedules() -> usize {
    cases(1_500) as usize
}

fn desk(config: &GateConfig) -> Arc<Desk> {
    Arc::new(Desk::new(PureGate::new(config).unwrap(), clock::Clock::default(), None))
}

fn acquire(desk: &Arc<Desk>, id: String) -> Acquire {
    Acquire::new(Arc::clone(desk), Request::new(id).priority(Priority::Normal))
}

/// A waker that counts, for futures that are polled by hand.
#[derive(Default)]
struct Flag {
    woken: AtomicBool,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
    }
}

/// Polls whenever it is woken, at most `polls` times, giving way to others in between; then drops the future
/// wherever it stands.
fn poll_and_drop(mut future: Pin<Box<Acquire>>, polls: usize) -> Option<Permit> {
    let flag = Arc::new(Flag { woken: AtomicBool::new(true) });
    let waker = Waker::from(Arc::clone(&flag));
    for _ in 0..polls {
        if flag.woken.swap(false, Ordering::SeqCst)
            && let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker))
        {
            return Some(answer.unwrap());
        }
        thread::yield_now();
    }
    None
}

fn check_empty(desk: &Desk) {
    desk.with(|gate, _| {
        let state = gate.state();
        assert_eq!((state.running, state.queued), (0, 0), "a slot or a waiter leaked");
        let law = state.stats.completed <= state.stats.scheduled;
        assert!(law && state.stats.peak_concurrent <= state.slots);
    });
}

/// G2: patient callers are all served, whatever the impatient ones drop and whenever they do.
#[test]
fn a_waiter_dropped_at_any_point_loses_nothing() {
    shuttle::check_random(
        || {
            let desk = desk(&slots_only(1));
            let holders = Arc::new(AtomicUsize::new(0));
            let patient = (0..2).map(|number| {
                let (desk, holders) = (Arc::clone(&desk), Arc::clone(&holders));
                thread::spawn(move || {
                    let permit =
                        shuttle::future::block_on(acquire(&desk, format!("patient-{number}"))).unwrap();
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold one slot");
                    thread::yield_now();
                    holders.fetch_sub(1, Ordering::SeqCst);
                    if number == 0 {
                        drop(permit);
                    } else {
                        permit.report(SUCCESS).unwrap();
                    }
                })
            });
            let impatient = (0..2).map(|number| {
                let (desk, holders) = (Arc::clone(&desk), Arc::clone(&holders));
                thread::spawn(move || {
                    let future = Box::pin(acquire(&desk, format!("impatient-{number}")));
                    let polls = thread_rng().gen_range(0..6);
                    if let Some(permit) = poll_and_drop(future, polls) {
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold one slot");
                        holders.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                })
            });
            let threads: Vec<_> = patient.chain(impatient).collect();
            for thread in threads {
                thread.join().unwrap();
            }
            check_empty(&desk);
        },
        schedules(),
    );
}

/// G2: when only time can help, someone always keeps it, also when the one who did leaves.
#[test]
fn the_time_is_kept_whoever_leaves() {
    shuttle::check_random(
        || {
            let config = GateConfig {
                max_requests_per_window: 1,
                rate_window: Duration::from_micros(10),
                ..slots_only(3)
            };
            let desk = desk(&config);
            let done = Arc::new(AtomicUsize::new(0));
            let patient = (0..2).map(|number| {
                let (desk, done) = (Arc::clone(&desk), Arc::clone(&done));
                thread::spawn(move || {
                    drop(shuttle::future::block_on(acquire(&desk, format!("patient-{number}"))).unwrap());
                    done.fetch_add(1, Ordering::SeqCst);
                })
            });
            // More than keep the time at once, so that the duty changes hands.
            let impatient = (0..5).map(|number| {
                let (desk, done) = (Arc::clone(&desk), Arc::clone(&done));
                thread::spawn(move || {
                    let future = Box::pin(acquire(&desk, format!("impatient-{number}")));
                    drop(poll_and_drop(future, thread_rng().gen_range(0..5)));
                    done.fetch_add(1, Ordering::SeqCst);
                })
            });
            let callers: Vec<_> = patient.chain(impatient).collect();
            // Time passes until everyone is through; a lost wake-up would show as time without end.
            let mut steps = 0;
            while done.load(Ordering::SeqCst) < 7 {
                desk.clock().advance(1);
                thread::yield_now();
                steps += 1;
                assert!(steps < 20_000, "someone waits for ever");
            }
            for caller in callers {
                caller.join().unwrap();
            }
            check_empty(&desk);
        },
        schedules(),
    );
}

/// G3 and G2 together: reports, cancellations by name and a quota race with waiters; nobody is left waiting.
#[test]
fn reports_and_cancellations_race_with_waiters() {
    shuttle::check_random(
        || {
            let desk = desk(&slots_only(1));
            let waiters = (0..3).map(|number| {
                let desk = Arc::clone(&desk);
                thread::spawn(move || match shuttle::future::block_on(acquire(&desk, format!("{number}"))) {
                    Ok(permit) if number == 0 => {
                        permit.report(Outcome::Quota { resets_in: None }).unwrap();
                    }
                    Ok(permit) => drop(permit),
                    Err(refusal) => assert!(matches!(refusal, Refusal::Cancelled | Refusal::Quota { .. })),
                })
            });
            let canceller = {
                let desk = Arc::clone(&desk);
                thread::spawn(move || {
                    // It may be there or not: it is a race.
                    let _ = desk.with(|gate, now| gate.cancel(now, &"1".into()));
                })
            };
            let threads: Vec<_> = waiters.chain([canceller]).collect();
            for thread in threads {
                thread.join().unwrap();
            }
            check_empty(&desk);
        },
        schedules(),
    );
}

/// A store sees blocks in the order they came to be, whoever saves them.
#[test]
fn an_older_block_never_replaces_a_newer_one() {
    #[derive(Default)]
    struct Shelf(sync::Mutex<Option<StoredBlock>>);
    impl BlockStore for Shelf {
        fn load(&self, _: &str) -> Result<Option<StoredBlock>, Box<dyn std::error::Error + Send + Sync>> {
            Ok(None)
        }
        fn save(&self, _: &str, block: StoredBlock) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            thread::yield_now();
            *self.0.lock().unwrap() = Some(block);
            Ok(())
        }
        fn unix_millis(&self) -> u64 {
            0
        }
    }
    shuttle::check_random(
        || {
            let shelf = Arc::new(Shelf::default());
            let saver = saver::Saver::new(Arc::clone(&shelf) as Arc<dyn BlockStore>, "upstream");
            let gate = PureGate::new(&slots_only(3)).unwrap();
            let desk = Arc::new(Desk::new(gate, clock::Clock::default(), Some(saver)));
            let ask = |number: u64| shuttle::future::block_on(acquire(&desk, format!("{number}"))).unwrap();
            let permits = [1, 2, 3].map(|number| (number, ask(number)));
            let threads = permits.map(|(number, permit)| {
                thread::spawn(move || {
                    let retry_after = Some(Duration::from_secs(100 * number));
                    permit.report(Outcome::RateLimited { retry_after }).unwrap();
                })
            });
            for thread in threads {
                thread.join().unwrap();
            }
            let now = desk.with(|gate, now| gate.stored_block(now, 0));
            assert_eq!(*shelf.0.lock().unwrap(), Some(now));
        },
        schedules(),
    );
}
