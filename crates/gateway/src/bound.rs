//! Bounds on time that are set with every call and hardly ever reached: one timer for all of them, which is moved when it
//! fires and not when they are set.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Timer;
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer for deadlines of which none is earlier than the one before.
#[derive(Default)]
pub(crate) struct Bound {
    /// Made when somebody first waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Bound {
    /// Ready when the deadline has come.
    pub fn poll(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

/// The bound on the heads of one connection, as hyper wants it.
#[derive(Clone, Default)]
pub(crate) struct HeadTimer(Arc<Mutex<Bound>>);

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HeadSleep { bound: Arc::clone(&self.0), deadline: deadline.into() })
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }
}

struct HeadSleep {
    bound: Arc<Mutex<Bound>>,
    deadline: Instant,
}

impl Future for HeadSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner).poll(self.deadline, cx)
    }
}

impl hyper::rt::Sleep for HeadSleep {}

/// Waits no longer than until a deadline, and takes a timer only where there is something to wait for.
pub(crate) async fn until<F: Future>(deadline: impl FnOnce() -> Instant, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let at_once = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx)));
    match at_once.await {
        Poll::Ready(output) => Some(output),
        Poll::Pending => tokio::time::timeout_at(deadline(), future).await.ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_kept_to_the_moment_however_often_it_moved() {
        let start = Instant::now();
        let mut bound = Bound::default();
        for second in 0..90 {
            let deadline = start + Duration::from_secs(second) + MINUTE;
            let early = tokio::time::timeout(Duration::from_secs(1), poll_fn(|cx| bound.poll(deadline, cx)));
            assert!(early.await.is_err(), "not before its time");
        }
        poll_fn(|cx| bound.poll(start + 2 * MINUTE + MINUTE, cx)).await;
        assert_eq!(start.elapsed(), 3 * MINUTE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_head_of_each_request_has_its_whole_time() {
        let start = Instant::now();
        let timer = HeadTimer::default();
        let first = tokio::time::timeout(MINUTE / 2, timer.sleep(MINUTE));
        assert!(first.await.is_err(), "the first came in time");
        timer.sleep(MINUTE).await;
        assert_eq!(start.elapsed(), MINUTE / 2 + MINUTE);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_is_taken_and_what_is_not_is_waited_for() {
        let start = Instant::now();
        let soon = || start + MINUTE;
        assert_eq!(until(|| unreachable!("nothing to wait for"), std::future::ready(1)).await, Some(1));
        assert_eq!(until(soon, tokio::time::sleep(MINUTE / 2)).await, Some(()));
        assert_eq!(until(soon, tokio::time::sleep(MINUTE)).await, None);
        assert_eq!(start.elapsed(), MINUTE);
    }
}
