//! More connections without a request than there may be, by somebody without a token: the next caller does not notice.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::mcp::client::Http;
use crate::support::Lab;

/// More than `rota serve` keeps.
const CROWD: usize = 2_048 + 300;
/// "At once", on a machine that is busy with other tests.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Both ends of each connection are this machine's, but only one is this process's.
pub fn allow_descriptors() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, most).unwrap();
}

/// Connects so often and sends the beginning of a request, or nothing.
pub fn crowd(address: &str, count: usize) -> Vec<TcpStream> {
    let starts: [&[u8]; 2] = [b"", b"GET / HTTP/1.1\r\nHost: local"];
    (0..count).map(|number| begin(address, starts[number % 2])).collect()
}

fn begin(address: &str, start: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    // It may have been dropped for those behind it.
    drop(stream.write_all(start));
    stream
}

/// Requests that need no token, or show none, and do not end: they hold no place that a caller with a token needs.
#[test]
fn half_a_body_without_a_token_holds_nobody_up() {
    let lab = Lab::new();
    lab.line("task create a T").ok();
    // Room for about seventy connections.
    let server = Http::serve_with_descriptors(&lab, 200);
    for path in ["/healthz", "/readyz", "/api/v1/tasks"] {
        let start =
            format!("POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: 1000\r\n\r\nhalf", server.address);
        let waiting: Vec<TcpStream> = (0..300).map(|_| begin(&server.address, start.as_bytes())).collect();
        let since = Instant::now();
        assert_eq!(server.ask("GET", "/tasks/a", None).status, 200, "{path}");
        // Bodies are given up after half a minute.
        assert!(since.elapsed() < Duration::from_secs(15), "{path}: {:?}", since.elapsed());
        drop(waiting);
    }
}

/// Whether the other side has closed it.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0; 512]);
    stream.set_nonblocking(false).unwrap();
    match read {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

#[test]
fn the_next_answer_comes_at_once() {
    allow_descriptors();
    let lab = Lab::new();
    lab.line("task create a T").ok();
    let server = Http::serve(&lab, &[]);
    // A caller whose request is under way is not dropped for them: it follows the journal.
    let mut follower = TcpStream::connect(&server.address).unwrap();
    let request = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.address, server.token
    );
    follower.write_all(request.as_bytes()).unwrap();
    let mut head = [0; 15];
    follower.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    let mut waiting = crowd(&server.address, CROWD);
    let since = Instant::now();
    assert_eq!(server.ask("GET", "/tasks/a", None).status, 200);
    assert!(since.elapsed() < AT_ONCE, "{:?}", since.elapsed());
    assert!(is_closed(&mut waiting[0]), "the oldest made room");
    // Nothing came on the others, so they go as well, and long before half a minute is over.
    let last = waiting.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(matches!(last.read(&mut [0; 64]), Ok(0) | Err(_)) && is_closed(last));
    lab.line("task create b T").ok();
    follower.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut said = String::new();
    let mut piece = [0; 4_096];
    while !said.contains("\"b\"") {
        let count = follower.read(&mut piece).unwrap();
        assert!(count > 0, "the follower was dropped: {said}");
        said.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
}
