//! Wakes that are for nothing, and are not made. Whenever a piece of a body is taken, hyper wakes whoever reads the
//! connection that it came on. Here both are one task: it would run a second time, look through everything, and find
//! nothing new.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

thread_local! {
    /// While something is taken on this thread: whether a quiet task was to be woken meanwhile.
    static WOKEN: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Wakes a task, but not while it takes something itself. Other threads wake it as ever.
struct Quiet(Waker);

impl Wake for Quiet {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if WOKEN.get().is_some() {
            WOKEN.set(Some(true));
        } else {
            self.0.wake_by_ref();
        }
    }
}

/// Runs a future as a quiet task.
pub(crate) async fn quietly<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut quiet: Option<(Waker, Waker)> = None;
    poll_fn(|cx| {
        // A task keeps its waker, mostly for all its life.
        if !quiet.as_ref().is_some_and(|(task, _)| task.will_wake(cx.waker())) {
            quiet = None;
        }
        let (_, waker) = quiet.get_or_insert_with(|| {
            let task = cx.waker().clone();
            (task.clone(), Waker::from(Arc::new(Quiet(task))))
        });
        future.as_mut().poll(&mut Context::from_waker(waker))
    })
    .await
}

/// Takes something without waking the quiet task that takes it; says whether it was to be woken.
pub(crate) fn take<T>(take: impl FnOnce() -> T) -> (T, bool) {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            WOKEN.set(None);
        }
    }
    WOKEN.set(Some(false));
    let _end = End;
    let taken = take();
    (taken, WOKEN.get() == Some(true))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_wakes_of_who_takes_are_kept_back() {
        let count = Arc::new(Count::default());
        let task = Waker::from(Arc::clone(&count));
        let woken = || count.0.load(Ordering::Relaxed);
        let mut quiet = None;
        let polled = {
            let future = quietly(poll_fn(|cx| {
                quiet = Some(cx.waker().clone());
                Poll::Ready(())
            }));
            pin!(future).poll(&mut Context::from_waker(&task))
        };
        assert!(polled.is_ready());
        let quiet = quiet.unwrap_or_else(|| unreachable!("it was polled"));
        quiet.wake_by_ref();
        assert_eq!(woken(), 1, "at any other time it is woken");
        assert_eq!(take(|| 7), (7, false));
        assert_eq!(take(|| quiet.wake_by_ref()), ((), true));
        assert_eq!(woken(), 1, "what it takes itself does not wake it");
        take(|| std::thread::scope(|scope| drop(scope.spawn(|| quiet.wake_by_ref()))));
        assert_eq!(woken(), 2, "what others do wakes it meanwhile");
        take(|| task.wake_by_ref());
        quiet.wake();
        assert_eq!(woken(), 4);
    }
}
