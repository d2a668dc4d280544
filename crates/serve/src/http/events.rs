//! The journal as server-sent events. One follower per scope reads the store, a few times a second, for all its clients;
//! a client that comes with the id of the last event it saw is first brought up to where the follower is. Every event
//! carries the cursor behind it, cursors only grow, and a client is sent only what is behind its own: so nothing is
//! missed and nothing comes twice, whichever way an event came.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Frame;
use rota_core::TaskId;
use rota_store::Cursor;
use rota_verbs::log::{EventPayload, placed, tail};
use rota_verbs::{Context, Payload, Said};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::problem;
use crate::listen::{Answer, Problem};

/// How often a scope is read: events that are closer together come in one piece.
const EVERY: Duration = Duration::from_millis(100);
/// How many events are read at once.
const PAGE: usize = 1_000;
/// Batches a client may be behind before it reads for itself.
const BEHIND: usize = 64;
/// Pieces that wait for a client to take them.
const UNSENT: usize = 4;
/// How long a client may take for a piece; then it is cut off, and can come back.
const SLOW: Duration = Duration::from_secs(30);
/// A client that is gone is noticed by writing to it.
const BEAT: Duration = Duration::from_secs(15);

/// One event as it is sent.
#[derive(Clone)]
struct Sent {
    place: Cursor,
    task: Option<TaskId>,
    text: Bytes,
}

/// What came with one look at the store.
struct Batch {
    events: Vec<Sent>,
    /// All of them in one piece, for clients that want all.
    whole: Bytes,
}

impl Batch {
    fn of(events: Vec<Sent>) -> Self {
        let mut whole = BytesMut::new();
        events.iter().for_each(|event| whole.extend_from_slice(&event.text));
        Self { events, whole: whole.freeze() }
    }
}

/// A follower, and whether it has begun: what comes later than that it tells, what was before a client reads itself.
#[derive(Clone)]
struct Channel {
    batches: broadcast::Sender<Arc<Batch>>,
    begun: watch::Receiver<bool>,
}

type Heard = broadcast::Receiver<Arc<Batch>>;

/// The followers of all scopes.
#[derive(Clone, Default)]
pub struct Hub(Arc<Mutex<BTreeMap<String, Channel>>>);

/// What a client asks for.
pub struct Wanted {
    /// Behind which event; none for from now on.
    pub after: Option<Cursor>,
    /// Only this task's.
    pub task: Option<TaskId>,
}

impl Wanted {
    /// As the query and the header say it; the header is what a client says that comes back.
    pub fn read(parts: &Parts, query: &mut BTreeMap<String, String>) -> Result<Self, Problem> {
        let bad = |detail: String| Problem::new(StatusCode::BAD_REQUEST, "bad_request", detail);
        let header = parts.headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?").to_owned());
        let after = header.or_else(|| query.remove("after")).filter(|after| !after.is_empty());
        let after =
            after.map(|after| after.parse::<Cursor>()).transpose().map_err(|error| bad(error.to_string()))?;
        let task = query.remove("task").map(|task| TaskId::new(&task)).transpose();
        Ok(Self { after, task: task.map_err(|error| bad(error.to_string()))? })
    }
}

impl Hub {
    /// A stream of events that goes on until the client leaves or the server stops.
    pub async fn stream(
        &self,
        cx: Context,
        wanted: Wanted,
        stop: CancellationToken,
    ) -> Result<Answer, Problem> {
        let (heard, begun) = self.listen(&cx, &stop);
        let place = match wanted.after {
            Some(place) => place,
            None => tail(&cx, None, 0).await.map_err(|error| problem(&Said::of(&error)))?.cursor,
        };
        let (pieces, body) = mpsc::channel(UNSENT);
        // Something to read at once: the client knows that it is heard.
        drop(pieces.try_send(Bytes::from(format!("retry: 1000\nid: {place}\n\n"))));
        let client = Client { cx, place, task: wanted.task, pieces, begun };
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = client.run(heard) => {}
            }
        });
        let mut response = Response::new(Pieces(body).boxed());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    /// The follower of a scope, which is started if nobody listens to it yet.
    fn listen(&self, cx: &Context, stop: &CancellationToken) -> (Heard, watch::Receiver<bool>) {
        let mut channels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(&cx.scope) {
            return (channel.batches.subscribe(), channel.begun.clone());
        }
        let (batches, heard) = broadcast::channel(BEHIND);
        let (begin, begun) = watch::channel(false);
        channels.insert(cx.scope.clone(), Channel { batches: batches.clone(), begun: begun.clone() });
        tokio::spawn(follow(self.clone(), cx.clone(), batches, begin, stop.clone()));
        (heard, begun)
    }

    /// Ends the follower of a scope that nobody listens to any more.
    fn end(&self, scope: &str, batches: &broadcast::Sender<Arc<Batch>>) -> bool {
        let mut channels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = batches.receiver_count() == 0;
        if is_over {
            channels.remove(scope);
        }
        is_over
    }
}

/// Reads what is new and tells everybody, until nobody is there.
async fn follow(
    hub: Hub,
    cx: Context,
    batches: broadcast::Sender<Arc<Batch>>,
    begin: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let mut place: Option<Cursor> = None;
    while !hub.end(&cx.scope, &batches) {
        // A store that is away for a while is asked again.
        if let Ok((events, cursor)) = read(&cx, place).await {
            place = Some(cursor);
            begin.send_replace(true);
            if !events.is_empty() {
                // Nobody left: the next round ends it.
                drop(batches.send(Arc::new(Batch::of(events))));
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// What is behind a cursor, or where the end is.
async fn read(cx: &Context, place: Option<Cursor>) -> Result<(Vec<Sent>, Cursor), ()> {
    let read = match place {
        Some(place) => placed(cx, place, PAGE).await,
        None => tail(cx, None, 0).await.map(|tail| (Vec::new(), tail.cursor)),
    };
    let (events, cursor) = read.map_err(|_| ())?;
    Ok((events.into_iter().map(sent).collect(), cursor))
}

fn sent((place, event): (Cursor, EventPayload)) -> Sent {
    let (task, word) = (event.task.clone(), event.event.clone());
    let data = Payload::new(event).to_line();
    let text = format!("id: {place}\nevent: {word}\ndata: {}\n\n", data.trim_end());
    Sent { place, task, text: text.into() }
}

/// Somebody who listens.
struct Client {
    cx: Context,
    /// Behind the last event that was sent.
    place: Cursor,
    task: Option<TaskId>,
    pieces: mpsc::Sender<Bytes>,
    begun: watch::Receiver<bool>,
}

impl Client {
    async fn run(mut self, mut heard: Heard) {
        if self.begun.wait_for(|begun| *begun).await.is_err() {
            return;
        }
        let mut behind = true;
        loop {
            if behind {
                match self.catch_up().await {
                    Ok(more) => behind = more,
                    // The store is away: what is missed meanwhile is read when it is back.
                    Err(Left::Store) => tokio::time::sleep(EVERY).await,
                    Err(Left::Client) => return,
                }
                continue;
            }
            let next = tokio::time::timeout(BEAT, heard.recv()).await;
            let sent = match next {
                Ok(Ok(batch)) => self.pass_on(&batch).await,
                Ok(Err(broadcast::error::RecvError::Lagged(_))) => {
                    behind = true;
                    Ok(())
                }
                Ok(Err(broadcast::error::RecvError::Closed)) => return,
                Err(_) => self.send(Bytes::from_static(b":\n\n")).await,
            };
            if sent.is_err() {
                return;
            }
        }
    }

    /// Reads one page for itself; whether there may be more.
    async fn catch_up(&mut self) -> Result<bool, Left> {
        let (events, cursor) = read(&self.cx, Some(self.place)).await.map_err(|()| Left::Store)?;
        let more = !events.is_empty();
        self.pass_on(&Batch::of(events)).await.map_err(|()| Left::Client)?;
        self.place = self.place.max(cursor);
        Ok(more)
    }

    /// Sends what is behind its place.
    async fn pass_on(&mut self, batch: &Batch) -> Result<(), ()> {
        let Some(last) = batch.events.last() else { return Ok(()) };
        let is_all =
            self.task.is_none() && batch.events.first().is_some_and(|first| first.place > self.place);
        let piece = if is_all {
            batch.whole.clone()
        } else {
            let mut piece = BytesMut::new();
            let wanted =
                |event: &&Sent| event.place > self.place && (self.task.is_none() || event.task == self.task);
            batch.events.iter().filter(wanted).for_each(|event| piece.extend_from_slice(&event.text));
            piece.freeze()
        };
        self.place = self.place.max(last.place);
        if piece.is_empty() { Ok(()) } else { self.send(piece).await }
    }

    async fn send(&self, piece: Bytes) -> Result<(), ()> {
        match tokio::time::timeout(SLOW, self.pieces.send(piece)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(()),
        }
    }
}

enum Left {
    Store,
    Client,
}

/// A body that comes piece by piece.
struct Pieces(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
