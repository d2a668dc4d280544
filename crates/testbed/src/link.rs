//! The way from one host to a server, which can be cut, or swallow everything, and be healed again.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::{NoServer, Server};

/// What becomes of what is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// It arrives.
    Open,
    /// It is held until the way is open again, and nobody is told.
    Silent,
    /// Connections are cut, and new ones too.
    Cut,
}

struct State {
    way: Way,
    streams: Vec<UnixStream>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A way to a server.
pub struct Link {
    folder: tempfile::TempDir,
    shared: Arc<Shared>,
}

impl Link {
    /// To a server that listens on a socket.
    pub fn to(server: &Server) -> Result<Self, NoServer> {
        let failed = |error: std::io::Error| NoServer(format!("a link: {error}"));
        let folder = tempfile::tempdir().map_err(failed)?;
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).map_err(failed)?;
        let state = Mutex::new(State { way: Way::Open, streams: Vec::new() });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let (upstream, known) =
            (server.socket_folder().join(format!(".s.PGSQL.{}", server.port())), Arc::clone(&shared));
        // Ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A server that is away looks like a connection that is closed.
                drop(connect(client, &upstream, &known));
            }
        });
        Ok(Self { folder, shared })
    }

    /// A URL through it.
    pub fn url(&self, schema: &str) -> String {
        format!("postgres://rota@/postgres?host={}&schema={schema}", self.folder.path().display())
    }

    /// Cuts what is connected, and whatever connects.
    pub fn cut(&self) {
        let mut state = self.shared.state();
        state.way = Way::Cut;
        for stream in state.streams.drain(..) {
            // It may have ended by itself.
            drop(stream.shutdown(Shutdown::Both));
        }
        self.shared.changed.notify_all();
    }

    /// Holds everything back from now on.
    pub fn silence(&self) {
        self.shared.state().way = Way::Silent;
    }

    /// Lets everything through again.
    pub fn heal(&self) {
        self.shared.state().way = Way::Open;
        self.shared.changed.notify_all();
    }
}

fn connect(client: UnixStream, upstream: &PathBuf, shared: &Arc<Shared>) -> std::io::Result<()> {
    if shared.state().way == Way::Cut {
        return Ok(());
    }
    let server = UnixStream::connect(upstream)?;
    {
        let mut state = shared.state();
        state.streams.push(client.try_clone()?);
        state.streams.push(server.try_clone()?);
    }
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        let shared = Arc::clone(shared);
        std::thread::spawn(move || carry(from, to, &shared));
    }
    Ok(())
}

fn carry(mut from: UnixStream, mut to: UnixStream, shared: &Shared) {
    let mut buffer = vec![0; 16 * 1_024];
    while let Ok(count) = from.read(&mut buffer) {
        let state = shared.state();
        let held = shared.changed.wait_while(state, |state| state.way == Way::Silent);
        drop(held.unwrap_or_else(PoisonError::into_inner));
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Both));
    drop(from.shutdown(Shutdown::Both));
}
