//! The connections of a listener: how many there may be, and which are dropped for new ones.
//!
//! A connection that has brought no request costs a caller nothing, so anybody who reaches the port can hold any number
//! of them. Such a connection is dropped after a few seconds. When the limit is reached, the oldest connection without
//! a request under way makes room for a new one: first those that never got past authentication.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// How long a connection may take to bring its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(5);
/// How long to wait when the system has no more descriptors.
const SHORT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// Accepts connections for ever and hands each to `serve`, which must not block.
pub async fn accept_all(
    listener: &TcpListener,
    connections: &Arc<Connections>,
    mut serve: impl FnMut(TcpStream, Slot),
) {
    loop {
        match accept(listener, connections).await {
            Ok((stream, slot)) => serve(stream, slot),
            Err(_) => tokio::time::sleep(SHORT_OF_DESCRIPTORS).await,
        }
    }
}

async fn accept(listener: &TcpListener, connections: &Arc<Connections>) -> io::Result<(TcpStream, Slot)> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, connections.enter().await))
}

/// The connections of one listener.
pub struct Connections {
    limit: usize,
    state: Mutex<State>,
    /// A connection has ended, or has no request any more.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Numbers connections, and the moments from which they are idle.
    next: u64,
    open: BTreeMap<u64, Connection>,
    /// Without a request, by whether they ever got past authentication, and since when.
    idle: BTreeSet<(bool, u64, u64)>,
}

struct Connection {
    is_known: bool,
    has_asked: bool,
    requests: usize,
    idle_since: u64,
    dropped: Arc<Notify>,
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn set_idle(&mut self, number: u64, is_idle: bool) {
        let since = if is_idle { self.number() } else { 0 };
        let Some(connection) = self.open.get_mut(&number) else { return };
        self.idle.remove(&(connection.is_known, connection.idle_since, number));
        if is_idle {
            connection.idle_since = since;
            self.idle.insert((connection.is_known, since, number));
        }
    }

    fn remove(&mut self, number: u64) -> Option<Connection> {
        let removed = self.open.remove(&number)?;
        self.idle.remove(&(removed.is_known, removed.idle_since, number));
        Some(removed)
    }
}

/// Descriptors that are left for everything else.
const SPARE: u64 = 128;

/// So many connections as are wanted, or as the system has descriptors for, each connection needing a few.
fn within_descriptors(wanted: usize, each: u64) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let allowed = limit.map_or(u64::MAX, |limit| (limit.saturating_sub(SPARE) / each.max(1)).max(1));
    usize::try_from(allowed).map_or(wanted, |allowed| allowed.min(wanted))
}

impl Connections {
    /// At most so many at once; fewer where the system has no descriptors for them, of which each takes so many.
    pub fn new(limit: usize, descriptors: u64) -> Arc<Self> {
        let limit = within_descriptors(limit.max(1), descriptors);
        Arc::new(Self { limit, state: Mutex::default(), changed: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection that was accepted. At the limit it drops the oldest idle one, or waits until one ends where
    /// all have a request under way.
    pub async fn enter(self: &Arc<Self>) -> Slot {
        loop {
            let changed = self.changed.notified();
            if let Some(slot) = self.try_enter() {
                return slot;
            }
            changed.await;
        }
    }

    fn try_enter(self: &Arc<Self>) -> Option<Slot> {
        let mut state = self.state();
        if state.open.len() >= self.limit {
            let (_, _, oldest) = *state.idle.first()?;
            state.remove(oldest)?.dropped.notify_one();
        }
        let (number, dropped) = (state.number(), Arc::new(Notify::new()));
        let connection = Connection {
            is_known: false,
            has_asked: false,
            requests: 0,
            idle_since: 0,
            dropped: Arc::clone(&dropped),
        };
        state.open.insert(number, connection);
        state.set_idle(number, true);
        Some(Slot { place: Arc::new(Place { all: Arc::clone(self), number }), dropped })
    }
}

/// A connection's place among the others, until it is dropped.
struct Place {
    all: Arc<Connections>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.state().remove(self.number);
        self.all.changed.notify_one();
    }
}

/// An open connection.
pub struct Slot {
    place: Arc<Place>,
    dropped: Arc<Notify>,
}

impl Slot {
    /// Ready when the connection is to be dropped: for a new one, or because no request came.
    pub async fn is_over(&self) {
        tokio::select! {
            () = self.dropped.notified() => {}
            () = self.brings_nothing() => {}
        }
    }

    async fn brings_nothing(&self) {
        tokio::time::sleep(FIRST_REQUEST).await;
        let has_asked =
            self.place.all.state().open.get(&self.place.number).is_some_and(|open| open.has_asked);
        if has_asked {
            std::future::pending::<()>().await;
        }
    }

    /// For the service of the connection.
    pub fn requests(&self) -> Requests {
        Requests { place: Arc::clone(&self.place) }
    }
}

/// Counts the requests of one connection.
#[derive(Clone)]
pub struct Requests {
    place: Arc<Place>,
}

impl Requests {
    /// A request has begun. The connection is not dropped for others until the answer has been sent or given up.
    pub fn begin(&self) -> Underway {
        let mut state = self.place.all.state();
        if let Some(open) = state.open.get_mut(&self.place.number) {
            open.has_asked = true;
            open.requests += 1;
            state.set_idle(self.place.number, false);
        }
        Underway { place: Arc::clone(&self.place), is_stranger: false }
    }
}

/// A request under way.
pub struct Underway {
    place: Arc<Place>,
    is_stranger: bool,
}

impl Underway {
    /// The request needed no token, so its answer does not make the connection known.
    pub fn of_stranger(mut self) -> Self {
        self.is_stranger = true;
        self
    }

    /// Ends the request with the body of its answer. A response other than 401 and 403
    /// to a request with a token makes the connection known.
    pub fn answered<B>(self, response: Response<B>) -> Response<Answered<B>> {
        let is_denied = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if !is_denied && !self.is_stranger {
            let mut state = self.place.all.state();
            if let Some(open) = state.open.get_mut(&self.place.number) {
                open.is_known = true;
            }
        }
        response.map(|body| Answered { body, _underway: self })
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let mut state = self.place.all.state();
        let Some(open) = state.open.get_mut(&self.place.number) else { return };
        open.requests -= 1;
        if open.requests == 0 {
            state.set_idle(self.place.number, true);
            drop(state);
            self.place.all.changed.notify_one();
        }
    }
}

/// The body of an answer; the request is under way until it is dropped.
pub struct Answered<B> {
    body: B,
    _underway: Underway,
}

impl<B: Body + Unpin> Body for Answered<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::{Connections, Slot};
    use std::sync::Arc;

    fn full(all: &Arc<Connections>, count: usize) -> Vec<Slot> {
        (0..count).map(|_| all.try_enter().unwrap_or_else(|| panic!("there is room"))).collect()
    }

    fn left(slots: &[Slot]) -> Vec<usize> {
        let is_open = |slot: &Slot| slot.place.all.state().open.contains_key(&slot.place.number);
        (0..slots.len()).filter(|index| is_open(&slots[*index])).collect()
    }

    #[test]
    fn the_oldest_without_a_request_goes_first() {
        let all = Connections::new(4, 1);
        let mut slots = full(&all, 4);
        let busy = slots[0].requests().begin();
        let known = slots[1].requests().begin().answered(http::Response::new(()));
        drop(known);
        // 0 has a request, 1 had one that was let in: 2 is the oldest of the rest.
        slots.extend(full(&all, 1));
        assert_eq!(left(&slots), [0, 1, 3, 4]);
        slots.extend(full(&all, 2));
        assert_eq!(left(&slots), [0, 1, 5, 6]);
        let others: Vec<_> = [5, 6].map(|index: usize| slots[index].requests().begin()).into();
        slots.extend(full(&all, 1));
        assert_eq!(left(&slots), [0, 5, 6, 7], "then those that were let in");
        let last = slots[7].requests().begin();
        assert!(all.try_enter().is_none(), "all have a request");
        drop((busy, others, last));
        assert!(all.try_enter().is_some());
    }

    #[test]
    fn a_request_that_was_denied_makes_nothing_known() {
        let all = Connections::new(2, 1);
        let mut slots = full(&all, 2);
        let mut denied = http::Response::new(());
        *denied.status_mut() = http::StatusCode::UNAUTHORIZED;
        drop(slots[1].requests().begin().answered(http::Response::new(())));
        drop(slots[0].requests().begin().answered(denied));
        slots.extend(full(&all, 1));
        assert_eq!(left(&slots), [1, 2], "although its request was the later one");
    }

    #[test]
    fn a_request_without_a_token_makes_nothing_known() {
        let all = Connections::new(2, 1);
        let mut slots = full(&all, 2);
        drop(slots[1].requests().begin().answered(http::Response::new(())));
        drop(slots[0].requests().begin().of_stranger().answered(http::Response::new(())));
        slots.extend(full(&all, 1));
        assert_eq!(left(&slots), [1, 2], "although its request was the later one");
    }

    #[test]
    fn a_connection_that_ends_leaves_its_place() {
        let all = Connections::new(2, 1);
        let mut slots = full(&all, 2);
        drop(slots.pop());
        slots.extend(full(&all, 1));
        assert_eq!(left(&slots), [0, 1]);
    }
}
