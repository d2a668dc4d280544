//! Many callers at once, most of whom say nothing.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::mcp::client::Http;
use crate::support::Lab;

/// A thousand connections that never send a whole request, and some that stop in the middle of one.
#[test]
fn idle_connections_keep_nobody_out() {
    let lab = Lab::new();
    lab.line("task create a T").ok();
    let server = Http::serve(&lab, &[]);
    // Both ends of each are this machine's; where it allows fewer, fewer must do.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, most).unwrap();
    let crowd: Vec<TcpStream> = (0..1_000)
        .map(|at| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            let start: &[u8] = match at % 3 {
                0 => b"",
                1 => b"GET /api/v1/tasks HTTP/1.1\r\nHost: local",
                _ => b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{",
            };
            stream.write_all(start).unwrap();
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(server.ask("GET", "/tasks/a", None).status, 200);
    }
    // Who has no token learns that without being waited for.
    let mut third = crowd.into_iter().nth(2).unwrap();
    let mut said = [0; 12];
    third.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"HTTP/1.1 401");
}
