//! A program that was told to stop does not wait for a server for long.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::fault::Fault;

/// When every call of this process gives up.
static GIVE_UP_AT: LazyLock<watch::Sender<Option<Instant>>> = LazyLock::new(|| watch::Sender::new(None));

/// From so long after the first call of this, nothing in this process waits for a server any more.
pub fn stop_waiting_after(wait: Duration) {
    GIVE_UP_AT.send_if_modified(|at| {
        let is_first = at.is_none();
        at.get_or_insert_with(|| Instant::now() + wait);
        is_first
    });
}

/// Ready when nothing is waited for any more.
pub(super) async fn given_up() {
    let mut known = GIVE_UP_AT.subscribe();
    let at = match known.wait_for(Option::is_some).await {
        Ok(at) => *at,
        // The sender lives as long as the process.
        Err(_) => None,
    };
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What a call hears that was given up.
pub(super) fn fault(place: &str, is_write: bool) -> Fault {
    let (place, problem) = (place.to_owned(), "the program stops and does not wait any longer".to_owned());
    if is_write { Fault::OutcomeUnknown { place, problem } } else { Fault::Away { place, problem } }
}
