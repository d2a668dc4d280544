//! A proxy before a server that cuts connections where a test wants it: at a statement, before or after it goes on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// Where to cut, seen from the client's statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// It never reaches the server.
    Before,
    /// It reaches the server, the answer does not reach the client.
    After,
}

/// Decides, for each message of a client (its kind and body), whether to cut there.
type Rule = dyn FnMut(u8, &[u8]) -> Option<Cut> + Send;

/// A proxy on a socket of its own.
pub struct Proxy {
    folder: tempfile::TempDir,
    rule: Arc<Mutex<Box<Rule>>>,
    cuts: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Before the server whose socket is in a folder.
    pub fn before(server: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let rule: Arc<Mutex<Box<Rule>>> = Arc::new(Mutex::new(Box::new(|_, _| None)));
        let cuts = Arc::new(AtomicU64::new(0));
        let (shared, counted) = (Arc::clone(&rule), Arc::clone(&cuts));
        let upstream = server.join(".s.PGSQL.5432");
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (rule, cuts) = (Arc::clone(&shared), Arc::clone(&counted));
                tokio::spawn(relay(client, upstream.clone(), rule, cuts));
            }
        });
        Self { folder, rule, cuts, task }
    }

    /// A URL through it.
    pub fn url(&self, schema: &str, rest: &str) -> String {
        format!("postgres://rota@/postgres?host={}&schema={schema}{rest}", self.folder.path().display())
    }

    /// Cuts by a rule from now on.
    pub fn cut_by(&self, rule: impl FnMut(u8, &[u8]) -> Option<Cut> + Send + 'static) {
        *self.rule.lock().unwrap() = Box::new(rule);
    }

    /// Cuts the next simple statement that is exactly this, once.
    pub fn cut_once_at(&self, statement: &'static str, cut: Cut) {
        let mut armed = true;
        self.cut_by(move |kind, body| {
            let hit = armed && kind == b'Q' && body.strip_suffix(&[0]) == Some(statement.as_bytes());
            armed &= !hit;
            hit.then_some(cut)
        });
    }

    /// Cuts the next statement with the scope `default` among its values, once.
    pub fn cut_once_at_work(&self, cut: Cut) {
        let (mut bound, mut armed) = (false, true);
        self.cut_by(move |kind, body| {
            if kind == b'B' {
                bound = body.windows(7).any(|word| word == b"default");
            }
            let hit = kind == b'E' && bound && armed;
            armed &= !hit;
            hit.then_some(cut)
        });
    }

    /// Never cuts again.
    pub fn heal(&self) {
        self.cut_by(|_, _| None);
    }

    /// How often it has cut.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One message: its kind (0 for the first, which has none) and its body.
async fn message(from: &mut (impl AsyncReadExt + Unpin), first: bool) -> std::io::Result<(u8, Vec<u8>)> {
    let kind = if first { 0 } else { from.read_u8().await? };
    let length = usize::try_from(from.read_u32().await?).unwrap().saturating_sub(4);
    let mut body = vec![0; length];
    from.read_exact(&mut body).await?;
    Ok((kind, body))
}

async fn relay(client: UnixStream, upstream: PathBuf, rule: Arc<Mutex<Box<Rule>>>, cuts: Arc<AtomicU64>) {
    let Ok(server) = UnixStream::connect(upstream).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (cut_now, mut is_cut) = tokio::sync::oneshot::channel::<()>();
    let back = tokio::spawn(async move {
        tokio::select! {
            biased;
            // Whatever the server still says is read and thrown away: it must not notice that nobody listens.
            _ = &mut is_cut => {}
            _ = tokio::io::copy(&mut from_server, &mut to_client) => return,
        }
        drop(to_client);
        drop(tokio::io::copy(&mut from_server, &mut tokio::io::sink()).await);
    });
    let mut first = true;
    while let Ok((kind, body)) = message(&mut from_client, first).await {
        let cut = if first { None } else { (rule.lock().unwrap())(kind, &body) };
        let mut bytes = Vec::with_capacity(body.len() + 5);
        if !first {
            bytes.push(kind);
        }
        bytes.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        bytes.extend(&body);
        first = false;
        match cut {
            None => {
                if to_server.write_all(&bytes).await.is_err() {
                    break;
                }
                continue;
            }
            Some(Cut::Before) => back.abort(),
            Some(Cut::After) => {
                assert!(cut_now.send(()).is_ok() || back.is_finished());
                // A statement in parts is done when it is told to synchronise.
                bytes.extend(if kind == b'Q' { &[][..] } else { &[b'S', 0, 0, 0, 4][..] });
                drop(to_server.write_all(&bytes).await);
                drop(to_server.shutdown().await);
            }
        }
        cuts.fetch_add(1, Ordering::SeqCst);
        return;
    }
}
