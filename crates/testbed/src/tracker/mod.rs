//! An issue tracker on a port of this machine that behaves as Gitea or GitHub do, oddities included, and fails as they
//! do: late, twice, after the effect, with a page of HTML.

mod fault;
mod gitea;
mod github;
mod wire;
mod world;

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fault::Fate;
pub use fault::Faults;
use wire::{Reply, Request};
pub use world::{Dialect, TOKEN, TrackedComment, TrackedIssue, World};

/// Nothing waits longer than this.
const TOO_LONG: Duration = Duration::from_secs(60);

/// A tracker with one repository, `acme/shop`.
pub struct Tracker {
    address: std::net::SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    is_over: AtomicBool,
}

struct State {
    world: World,
    faults: Option<Faults>,
    requests: Vec<String>,
    hold: Option<Hold>,
}

/// A request that is kept waiting.
struct Hold {
    method: String,
    ending: String,
    is_after: bool,
    is_reached: bool,
    /// So many such requests go by first.
    spared: usize,
}

/// When a request is kept waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Before it has any effect.
    Before,
    /// After its effect, before its answer.
    After,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tracker {
    /// Starts one.
    pub fn start(dialect: Dialect) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no port: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
        let world = World::new(dialect, format!("http://{address}"));
        let state = State { world, faults: None, requests: Vec::new(), hold: None };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serve(&serving, stream));
            }
        });
        Self { address, shared }
    }

    /// Where its API is.
    pub fn api_base(&self) -> String {
        let path = if self.with(|world| world.dialect) == Dialect::Gitea { "/api/v1" } else { "" };
        format!("http://{}{path}", self.address)
    }

    /// Looks at what it holds, or changes it as a person would.
    pub fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.shared.state().world)
    }

    /// From now on it fails like this; none for never.
    pub fn fail(&self, faults: Option<Faults>) {
        self.shared.state().faults = faults;
    }

    /// Requests since the last time this was asked, `METHOD path?query`.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().requests)
    }

    /// Keeps a request of this kind waiting until [`Tracker::let_go`], after so many others of the kind.
    pub fn hold(&self, method: &str, ending: &str, when: When, spared: usize) {
        let (method, ending) = (method.to_owned(), ending.to_owned());
        let is_after = when == When::After;
        self.shared.state().hold = Some(Hold { method, ending, is_after, is_reached: false, spared });
    }

    /// Waits until a request is kept waiting.
    pub fn wait_until_held(&self) {
        let state = self.shared.state();
        let waits = |state: &mut State| !state.hold.as_ref().is_some_and(|hold| hold.is_reached);
        let waited = self.shared.changed.wait_timeout_while(state, TOO_LONG, waits);
        let (_state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "no such request came");
    }

    /// Lets the request that waits go on, and holds no other.
    pub fn let_go(&self) {
        self.shared.state().hold = None;
        self.shared.changed.notify_all();
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.let_go();
        // The listener looks up.
        let _woken = TcpStream::connect(self.address);
    }
}

fn serve(shared: &Shared, stream: TcpStream) {
    let Ok(mut connection) = wire::Connection::new(stream) else { return };
    while let Some(request) = connection.read() {
        if shared.is_over.load(Ordering::SeqCst) {
            return;
        }
        let Some(reply) = answer(shared, &request) else { return };
        if connection.write(&reply).is_err() {
            return;
        }
    }
}

/// None if the connection is to be cut.
fn answer(shared: &Shared, request: &Request) -> Option<Reply> {
    wait_if_held(shared, request, false);
    let mut state = shared.state();
    state.requests.push(format!("{} {}", request.method, request.target));
    let fate = state.faults.as_mut().map_or(Fate::Normal, Faults::next);
    let reply = match fate {
        Fate::Late => {
            drop(state);
            wait_for_the_end(shared);
            return None;
        }
        Fate::Failed => return Some(Reply::text(500, "text/plain", "no")),
        Fate::Html => return Some(Reply::text(503, "text/html", "<html><body>busy</body></html>")),
        Fate::Twice => {
            state.world.answer(request);
            state.world.answer(request)
        }
        Fate::Normal | Fate::Lost => state.world.answer(request),
    };
    drop(state);
    wait_if_held(shared, request, true);
    (fate != Fate::Lost).then_some(reply)
}

fn wait_if_held(shared: &Shared, request: &Request, is_after: bool) {
    let mut state = shared.state();
    let path = request.target.split('?').next().unwrap_or_default();
    let is_it = |hold: &Hold| {
        hold.is_after == is_after && hold.method == request.method && path.ends_with(&hold.ending)
    };
    let Some(hold) = state.hold.as_mut().filter(|hold| is_it(hold)) else { return };
    if hold.spared > 0 {
        hold.spared -= 1;
        return;
    }
    hold.is_reached = true;
    shared.changed.notify_all();
    let waited = shared.changed.wait_timeout_while(state, TOO_LONG, |state| state.hold.is_some());
    drop(waited);
}

/// A client that waits longer than it should gets nothing.
fn wait_for_the_end(shared: &Shared) {
    let late = Duration::from_secs(2);
    let state = shared.state();
    let waited = shared.changed.wait_timeout_while(state, late, |_| !shared.is_over.load(Ordering::SeqCst));
    drop(waited);
}
