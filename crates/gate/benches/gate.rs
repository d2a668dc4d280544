//! The gate beside its peers, in one run: `cargo bench -p rota-gate --bench gate`.
//!
//! Figures are medians of several rounds in nanoseconds per operation (one acquire and one release);
//! read the ratios, machines differ. Exits with 1 if a target is missed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use governor::{Quota, RateLimiter};
use rota_gate::{Acquire, Gate, GateConfig, Permit, Priority, RequestId};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tower::limit::ConcurrencyLimit;
use tower::{Service, ServiceExt, service_fn};

const ROUNDS: usize = 9;
const SOLO_OPERATIONS: u32 = 200_000;
const TASKS: u32 = 16;
const TASK_OPERATIONS: u32 = 20_000;
const ADMISSIONS: u32 = 50_000;

fn main() -> ExitCode {
    let mut report = Report::default();
    uncontended(&mut report);
    contended(&mut report, "16 tasks, 10 slots", 10, false);
    contended(&mut report, "16 tasks, 4 slots, held across a yield", 4, true);
    admission(&mut report);
    report.verdict()
}

/// A gate whose limits are all in force and never in the way: the whole path is measured.
fn wide_gate(slots: usize) -> Gate {
    let config = GateConfig {
        max_concurrent: slots,
        max_requests_per_window: 1_000_000,
        rate_window: Duration::from_millis(1),
        burst: 1_000_000,
        ..GateConfig::default()
    };
    Gate::new(config).expect("a valid configuration")
}

fn uncontended(report: &mut Report) {
    println!("\nuncontended, one task, ns per acquire + release");
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let gate = wide_gate(10);
    let id = RequestId::from("bench");
    let semaphore = Semaphore::new(10);
    let limiter = RateLimiter::direct(governor_quota());
    let mut tower = ConcurrencyLimit::new(service_fn(|()| std::future::ready(Ok::<(), Infallible>(()))), 10);
    let mut figures = Figures::new(["gate", "tokio Semaphore", "governor", "tower ConcurrencyLimit"]);
    for _ in 0..ROUNDS {
        figures.add(0, solo(&runtime, async || drop(black_box(gate.acquire(&id, Priority::Normal).await))));
        figures.add(1, solo(&runtime, async || drop(black_box(semaphore.acquire().await))));
        figures.add(2, solo(&runtime, async || drop(black_box(limiter.check()))));
        let started = Instant::now();
        runtime.block_on(async {
            for _ in 0..SOLO_OPERATIONS {
                let service = tower.ready().await.expect("infallible");
                service.call(()).await.expect("infallible");
            }
        });
        figures.add(3, per_operation(started, SOLO_OPERATIONS));
    }
    let medians = figures.print();
    report.at_most("uncontended acquire + release, ns", medians[0], 1_000.0);
}

fn solo(runtime: &Runtime, mut operation: impl AsyncFnMut()) -> f64 {
    let started = Instant::now();
    runtime.block_on(async {
        for _ in 0..SOLO_OPERATIONS {
            operation().await;
        }
    });
    per_operation(started, SOLO_OPERATIONS)
}

fn contended(report: &mut Report, title: &str, slots: usize, hold: bool) {
    println!("\n{title}, two threads, ns per acquire + release");
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let gate = wide_gate(slots);
    let semaphore = Arc::new(Semaphore::new(slots));
    let limiter = Arc::new(RateLimiter::direct(governor_quota()));
    let service = service_fn(move |()| async move {
        pause(hold).await;
        Ok::<(), Infallible>(())
    });
    let tower = ConcurrencyLimit::new(service, slots);
    let mut figures =
        Figures::new(["gate", "tokio Semaphore", "governor (no slots)", "tower ConcurrencyLimit"]);
    for _ in 0..ROUNDS {
        figures.add(
            0,
            crowd(&runtime, |task| {
                let (gate, id) = (gate.clone(), RequestId::from(format!("task-{task}")));
                async move {
                    for _ in 0..TASK_OPERATIONS {
                        let permit = gate.acquire(&id, Priority::Normal).await.expect("a permit");
                        pause(hold).await;
                        drop(permit);
                    }
                }
            }),
        );
        figures.add(
            1,
            crowd(&runtime, |_| {
                let semaphore = Arc::clone(&semaphore);
                async move {
                    for _ in 0..TASK_OPERATIONS {
                        let permit = semaphore.acquire().await.expect("a permit");
                        pause(hold).await;
                        drop(permit);
                    }
                }
            }),
        );
        figures.add(
            2,
            crowd(&runtime, |_| {
                let limiter = Arc::clone(&limiter);
                async move {
                    for _ in 0..TASK_OPERATIONS {
                        let _ = black_box(limiter.check());
                        pause(hold).await;
                    }
                }
            }),
        );
        figures.add(
            3,
            crowd(&runtime, |_| {
                let mut service = tower.clone();
                async move {
                    for _ in 0..TASK_OPERATIONS {
                        service.ready().await.expect("infallible").call(()).await.expect("infallible");
                    }
                }
            }),
        );
    }
    let medians = figures.print();
    report.at_least(&format!("{title}: of tokio's Semaphore"), medians[1] / medians[0], 0.5);
}

async fn pause(hold: bool) {
    if hold {
        tokio::task::yield_now().await;
    }
}

fn crowd<F>(runtime: &Runtime, task: impl Fn(u32) -> F) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let started = Instant::now();
    runtime.block_on(async {
        let handles: Vec<_> = (0..TASKS).map(|number| tokio::spawn(task(number))).collect();
        for handle in handles {
            handle.await.expect("a task that ends");
        }
    });
    per_operation(started, TASKS * TASK_OPERATIONS)
}

/// One slot is handed on among `waiters`: release, grant, collect, and a new waiter joins.
fn admission(report: &mut Report) {
    println!("\nadmission: release, grant, collect, one more joins; ns per admission");
    let mut figures = Figures::new(["among 100 waiters", "among 100,000 waiters"]);
    let mut few = Waiters::new(100);
    let mut many = Waiters::new(100_000);
    for _ in 0..ROUNDS {
        figures.add(0, few.run());
        figures.add(1, many.run());
    }
    let medians = figures.print();
    report.at_most("admission among 100,000, times that among 100", medians[1] / medians[0], 3.0);
}

struct Waiters {
    gate: Gate,
    ids: VecDeque<RequestId>,
    queue: VecDeque<(RequestId, Pin<Box<Acquire>>)>,
    held: Option<Permit>,
}

impl Waiters {
    fn new(waiters: usize) -> Self {
        let gate = wide_gate(1);
        let Poll::Ready(Ok(held)) = poll(&mut Box::pin(gate.acquire("first", Priority::Normal))) else {
            panic!("a free gate lets one in");
        };
        let ids = (0..=waiters).map(|number| RequestId::from(format!("waiter-{number}"))).collect();
        let mut crowd = Self { gate, ids, queue: VecDeque::new(), held: Some(held) };
        for _ in 0..waiters {
            crowd.join();
        }
        crowd
    }

    fn join(&mut self) {
        let id = self.ids.pop_front().expect("one name is always free");
        let mut future = Box::pin(self.gate.acquire(&id, Priority::Normal));
        assert!(poll(&mut future).is_pending());
        self.queue.push_back((id, future));
    }

    fn run(&mut self) -> f64 {
        let started = Instant::now();
        for _ in 0..ADMISSIONS {
            drop(self.held.take());
            let (id, mut next) = self.queue.pop_front().expect("a waiter");
            let Poll::Ready(Ok(permit)) = poll(&mut next) else { panic!("the first in line is next") };
            self.held = Some(permit);
            self.ids.push_back(id);
            self.join();
        }
        per_operation(started, ADMISSIONS)
    }
}

fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn governor_quota() -> Quota {
    Quota::per_second(NonZeroU32::MAX).allow_burst(NonZeroU32::MAX)
}

fn per_operation(started: Instant, operations: u32) -> f64 {
    started.elapsed().as_nanos() as f64 / f64::from(operations)
}

struct Figures<const N: usize> {
    names: [&'static str; N],
    rounds: [Vec<f64>; N],
}

impl<const N: usize> Figures<N> {
    fn new(names: [&'static str; N]) -> Self {
        Self { names, rounds: std::array::from_fn(|_| Vec::new()) }
    }

    fn add(&mut self, which: usize, nanos: f64) {
        self.rounds[which].push(nanos);
    }

    /// Prints and returns the medians.
    fn print(mut self) -> [f64; N] {
        let medians = std::array::from_fn(|which| {
            let rounds = &mut self.rounds[which];
            rounds.sort_by(f64::total_cmp);
            rounds[rounds.len() / 2]
        });
        for which in 0..N {
            let (name, median, ratio) = (self.names[which], medians[which], medians[which] / medians[0]);
            println!("  {name:<26} {median:>9.1}   {ratio:>6.2} x the first");
        }
        medians
    }
}

#[derive(Default)]
struct Report {
    lines: Vec<(String, f64, String, bool)>,
}

impl Report {
    fn at_most(&mut self, what: &str, figure: f64, limit: f64) {
        self.lines.push((what.to_owned(), figure, format!("<= {limit}"), figure <= limit));
    }

    fn at_least(&mut self, what: &str, figure: f64, limit: f64) {
        self.lines.push((what.to_owned(), figure, format!(">= {limit}"), figure >= limit));
    }

    fn verdict(self) -> ExitCode {
        println!("\ntargets");
        for (what, figure, target, held) in &self.lines {
            let verdict = if *held { "held" } else { "MISSED" };
            println!("  {what:<64} {figure:>9.2}   {target:<8} {verdict}");
        }
        if self.lines.iter().all(|line| line.3) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
