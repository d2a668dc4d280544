//! MCP sessions. A session has an agent name of its own and remembers the leases that it was granted: settling without a
//! lease id means its own lease, and its end releases what it still holds.
//!
//! Over stdio the process is the session. Over HTTP a session begins with `initialize` and ends when the client deletes it,
//! or after [`SILENCE`] without a request once its last lease has ended. A request of the newer protocol family stands
//! alone: it has no session.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rota_verbs::settle::ReleaseTask;
use rota_verbs::{Context, Verb, task_id};
use tokio::runtime::Handle;

/// How long a session without a lease may be silent.
pub const SILENCE: Duration = Duration::from_secs(300);

/// One client, from its `initialize` to its end.
pub struct Session {
    agent: String,
    context: Context,
    runtime: Handle,
    sessions: Arc<Sessions>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether the client has said `initialize`; without it there is no session.
    has_begun: bool,
    has_ended: bool,
    /// Its id over HTTP.
    id: Option<String>,
    held: BTreeMap<(String, String), HeldLease>,
}

/// A lease that a session holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// Its id.
    pub lease: String,
    /// The agent name that it was claimed under.
    pub agent: Option<String>,
    /// When it expires.
    pub until: Instant,
}

/// All sessions of a server.
#[derive(Default)]
pub struct Sessions {
    /// Those that have not ended. A session is listed until it is known to release what it holds, so that the end of the
    /// server misses none.
    open: Mutex<Vec<Arc<Session>>>,
    releasing: Mutex<Vec<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    /// A client that may begin a session. `named` is the agent name that the server was started with, where it serves
    /// this client alone.
    pub fn client(self: &Arc<Self>, context: &Context, named: Option<String>) -> Client {
        let agent = named.unwrap_or_else(|| {
            let number = RandomState::new().hash_one(std::process::id());
            format!("mcp-{number:016x}")
        });
        let (context, runtime, sessions) = (context.clone(), Handle::current(), Arc::clone(self));
        let session = Arc::new(Session { agent, context, runtime, sessions, state: Mutex::default() });
        lock(&self.open).push(Arc::clone(&session));
        Client(session)
    }

    /// Whether the HTTP session of this id holds a lease that has not expired.
    pub fn holds(&self, id: &str, now: Instant) -> bool {
        lock(&self.open).iter().any(|session| {
            let state = lock(&session.state);
            state.id.as_deref() == Some(id) && state.held.values().any(|held| held.until > now)
        })
    }

    /// Ends every session and waits until what they held is released.
    pub fn end_all(&self) {
        let open = lock(&self.open).clone();
        open.iter().for_each(|session| session.end());
        let releasing = std::mem::take(&mut *lock(&self.releasing));
        for thread in releasing {
            // A release that panicked leaves a lease that expires.
            drop(thread.join());
        }
    }
}

impl Session {
    /// The client says `initialize`.
    pub fn begin(&self) {
        lock(&self.state).has_begun = true;
    }

    /// The name of the session's agent; none for a request without a session.
    pub fn agent(&self) -> Option<&str> {
        lock(&self.state).has_begun.then_some(self.agent.as_str())
    }

    /// Notes the id that an HTTP client presents.
    pub fn note_id(&self, id: &str) {
        lock(&self.state).id.get_or_insert_with(|| id.to_owned());
    }

    /// Remembers a lease that was granted. False if the session has ended meanwhile: then it is not remembered.
    pub fn hold(&self, cx: &Context, task: &str, lease: &str, lasts_ms: i64) -> bool {
        let mut state = lock(&self.state);
        if state.has_begun && !state.has_ended {
            let held = HeldLease { lease: lease.to_owned(), agent: cx.agent.clone(), until: after(lasts_ms) };
            state.held.insert((cx.scope.clone(), task.to_owned()), held);
        }
        !state.has_ended
    }

    /// Notes that a lease was renewed.
    pub fn extend(&self, scope: &str, task: &str, lasts_ms: i64) {
        if let Some(held) = lock(&self.state).held.get_mut(&(scope.to_owned(), task.to_owned())) {
            held.until = after(lasts_ms);
        }
    }

    /// The lease that it holds on a task.
    pub fn held(&self, scope: &str, task: &str) -> Option<HeldLease> {
        lock(&self.state).held.get(&(scope.to_owned(), task.to_owned())).cloned()
    }

    /// Forgets a lease that was settled.
    pub fn forget(&self, scope: &str, task: &str) {
        lock(&self.state).held.remove(&(scope.to_owned(), task.to_owned()));
    }

    /// Ends the session and releases what it still holds, in a thread of its own.
    fn end(&self) {
        let mut state = lock(&self.state);
        state.has_ended = true;
        let held = std::mem::take(&mut state.held);
        if !held.is_empty() {
            let (cx, runtime) = (self.context.clone(), self.runtime.clone());
            let release = move |held| runtime.block_on(release(&cx, held));
            let thread = std::thread::spawn(move || held.into_iter().for_each(release));
            // Under the lock of the state: whoever ends the session again waits until the thread is listed.
            lock(&self.sessions.releasing).push(thread);
        }
        drop(state);
        lock(&self.sessions.open).retain(|session| !std::ptr::eq(Arc::as_ptr(session), self));
    }
}

/// The client's side of a session, which ends with it.
pub struct Client(Arc<Session>);

impl Deref for Client {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The moment after so many milliseconds. A lease may be longer than a process can count.
fn after(lasts_ms: i64) -> Instant {
    const LONGEST_MS: i64 = 365 * 86_400_000;
    Instant::now() + Duration::from_millis(lasts_ms.clamp(0, LONGEST_MS).unsigned_abs())
}

/// Releases a lease. One that was settled or reclaimed is refused, and one that cannot be released expires.
async fn release(cx: &Context, ((scope, task), held): ((String, String), HeldLease)) {
    let (lease, agent) = (Some(held.lease), held.agent);
    let cx = Context { scope, agent, lease, ambient_lease: None, now: None, ..cx.clone() };
    if let Ok(id) = task_id(&task) {
        drop(ReleaseTask { id: id.into() }.run(&cx).await);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use rota_store::{AnyStore, Location};
    use rota_verbs::claim::ClaimTask;
    use rota_verbs::create::CreateTask;
    use rota_verbs::show::ShowTask;

    use super::*;

    fn input<V: Verb>(json: &str) -> V {
        rota_verbs::input::read(json).unwrap_or_else(|unread| panic!("{unread:?}"))
    }

    /// A client that goes away while the server ends: its lease is released before the server is gone.
    #[test]
    fn the_end_of_the_server_waits_for_a_session_that_ends_by_itself() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
        let _entered = runtime.enter();
        let store = runtime.block_on(AnyStore::open(&Location::Memory));
        let store = store.unwrap_or_else(|error| panic!("{error}"));
        let cx = Context::new(store);
        let made = runtime.block_on(input::<CreateTask>(r#"{"id":"a","title":"A"}"#).run(&cx));
        made.unwrap_or_else(|error| panic!("{error}"));
        for round in 0..500 {
            let sessions = Arc::new(Sessions::default());
            let client = sessions.client(&cx, None);
            client.begin();
            let own = Context { agent: client.agent().map(str::to_owned), ..cx.clone() };
            let claimed = runtime.block_on(input::<ClaimTask>("{}").run(&own));
            let claimed = claimed.unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert!(client.hold(&own, "a", claimed.task.lease_id.as_deref().unwrap_or_default(), 60_000));
            let both = Arc::new(Barrier::new(2));
            let start = Arc::clone(&both);
            let leaving = std::thread::spawn(move || {
                start.wait();
                drop(client);
            });
            both.wait();
            sessions.end_all();
            let task = runtime.block_on(input::<ShowTask>(r#"{"id":"a"}"#).run(&cx));
            let task = task.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(task.task.status, "open", "round {round}");
            assert!(leaving.join().is_ok());
        }
    }
}
