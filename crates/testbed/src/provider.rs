//! A provider of models that does what a script says: answers, streams, pushes back, cuts off, says nothing. It writes
//! down what it saw, so that tests can ask what reached it, when, and how much of it at once.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often somebody who waits looks whether the other side is still there.
const LOOK: Duration = Duration::from_millis(5);

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When its head was read.
    pub at: Instant,
    /// Counts from 0.
    pub number: usize,
    /// On which connection, counted from 0.
    pub connection: usize,
    /// The method.
    pub method: String,
    /// The target as it stood on the first line.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

impl Seen {
    /// The first header of a name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether it asks for a stream.
    pub fn wants_stream(&self) -> bool {
        let text = String::from_utf8_lossy(&self.body).replace(' ', "");
        text.contains("\"stream\":true")
    }
}

/// What the provider does for one request, step by step.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends bytes as they are.
    Send(Vec<u8>),
    /// Sends the same bytes many times.
    Flood(Vec<u8>, usize),
    /// Waits, or ends when the other side goes away.
    Wait(Duration),
    /// Waits until somebody calls [`Provider::open`], or the other side goes away.
    WaitForOpen,
    /// Closes the connection.
    Cut,
}

/// A whole answer of JSON.
pub fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<Step> {
    let mut head = format!("HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    vec![Step::Send([head.as_bytes(), body.as_bytes()].concat())]
}

/// A stream: its head, each piece as a chunk of its own, and its end.
pub fn stream(pieces: &[&str]) -> Vec<Step> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut steps = vec![Step::Send(head.into())];
    steps.extend(pieces.iter().map(|piece| Step::Send(chunk(piece.as_bytes()))));
    steps.push(Step::Send(b"0\r\n\r\n".to_vec()));
    steps
}

/// Bytes framed as one chunk.
pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

type Script = dyn Fn(&Seen) -> Vec<Step> + Send + Sync;

#[derive(Default)]
struct Record {
    seen: Vec<Seen>,
    running: usize,
    peak: usize,
    connections: usize,
    open_connections: usize,
    is_open: bool,
}

struct Shared {
    script: Box<Script>,
    record: Mutex<Record>,
    changed: Condvar,
    is_over: AtomicBool,
}

impl Shared {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Record)) {
        change(&mut self.record());
        self.changed.notify_all();
    }
}

/// A running provider; ends when it is dropped.
pub struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Provider {
    /// Listens on a free port of this host.
    ///
    /// # Panics
    /// There is none.
    pub fn start(script: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no port: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no port: {error}"));
        let shared = Arc::new(Shared {
            script: Box::new(script),
            record: Mutex::default(),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accept_all(&listener, &accepting));
        Self { address, shared }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.record().seen.clone()
    }

    /// The most requests that were under way at once.
    pub fn peak(&self) -> usize {
        self.shared.record().peak
    }

    /// Requests that are under way.
    pub fn running(&self) -> usize {
        self.shared.record().running
    }

    /// Connections that were ever made, and those that are open.
    pub fn connections(&self) -> (usize, usize) {
        let record = self.shared.record();
        (record.connections, record.open_connections)
    }

    /// Lets everybody go on who waits for it, and all who come later.
    pub fn open(&self) {
        self.shared.change(|record| record.is_open = true);
    }

    /// Waits until this holds of the provider.
    ///
    /// # Panics
    /// It does not within a minute.
    pub fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < Duration::from_secs(60), "{what} did not come about");
            let record = self.shared.record();
            drop(self.shared.changed.wait_timeout(record, LOOK));
        }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        // The one who accepts looks again.
        drop(TcpStream::connect(self.address));
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.is_over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let mut number = 0;
            shared.change(|record| {
                number = record.connections;
                record.connections += 1;
                record.open_connections += 1;
            });
            // A connection that breaks has ended, too.
            let _ended = converse(&shared, stream, number);
            shared.change(|record| record.open_connections -= 1);
        });
    }
}

fn converse(shared: &Shared, stream: TcpStream, connection: usize) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        stream.set_read_timeout(None)?;
        let Some(mut seen) = read_request(&mut reader)? else { return Ok(()) };
        seen.connection = connection;
        shared.change(|record| {
            seen.number = record.seen.len();
            record.seen.push(seen.clone());
            record.running += 1;
            record.peak = record.peak.max(record.running);
        });
        let played = play(shared, &stream, (shared.script)(&seen));
        shared.change(|record| record.running -= 1);
        if !played? {
            return Ok(());
        }
    }
}

/// False if the connection is to be closed.
fn play(shared: &Shared, mut stream: &TcpStream, steps: Vec<Step>) -> std::io::Result<bool> {
    for step in steps {
        match step {
            Step::Send(bytes) => stream.write_all(&bytes)?,
            Step::Flood(bytes, times) => {
                for _ in 0..times {
                    stream.write_all(&bytes)?;
                }
            }
            Step::Wait(wait) => {
                let until = Instant::now() + wait;
                while Instant::now() < until {
                    if is_gone(stream, LOOK.min(until - Instant::now()))? {
                        return Ok(false);
                    }
                }
            }
            Step::WaitForOpen => {
                while !shared.record().is_open {
                    if shared.is_over.load(Ordering::SeqCst) || is_gone(stream, LOOK)? {
                        return Ok(false);
                    }
                }
            }
            Step::Cut => return Ok(false),
        }
    }
    Ok(true)
}

/// Whether the other side closed the connection, looked at for a while.
fn is_gone(stream: &TcpStream, wait: Duration) -> std::io::Result<bool> {
    stream.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
    match stream.peek(&mut [0]) {
        Ok(0) => Ok(true),
        Ok(_) => Ok(false),
        Err(error) => {
            Ok(!matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut))
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> std::io::Result<Option<Seen>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let at = Instant::now();
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut seen = Seen { at, number: 0, connection: 0, method, target, headers, body: Vec::new() };
    if let Some(length) = seen.header("content-length").and_then(|length| length.parse().ok()) {
        seen.body = vec![0; length];
        reader.read_exact(&mut seen.body)?;
    } else if seen.header("transfer-encoding").is_some() {
        seen.body = read_chunks(reader)?;
    }
    Ok(Some(seen))
}

fn read_chunks(reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        let mut piece = vec![0; size + 2];
        reader.read_exact(&mut piece)?;
        if size == 0 {
            return Ok(body);
        }
        body.extend_from_slice(&piece[..size]);
    }
}
