//! Many callers at once, most of whom say nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

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

/// Whoever does not come to the end of a head or a body is hung up on, also one who goes on sending a little: half a minute
/// is given, whatever comes in it.
#[test]
fn slow_clients_are_cut_off() {
    let lab = Lab::new();
    let server = Http::serve(&lab, &[]);
    let head = format!("Host: {}\r\nAuthorization: Bearer {}\r\n", server.address, server.token);
    let body = format!("POST /api/v1/tasks HTTP/1.1\r\n{head}Content-Length: 1000000\r\n\r\n{{");
    let cases = [
        ("nothing", String::new(), ""),
        ("half a head", format!("GET /api/v1/tasks HTTP/1.1\r\n{head}X-More: "), ""),
        ("half a body", body, "HTTP/1.1 408 "),
    ];
    std::thread::scope(|scope| {
        for (what, start, wanted) in &cases {
            let address = &server.address;
            scope.spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(start.as_bytes()).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                let (mut said, mut piece) = (String::new(), [0; 4_096]);
                for second in 0.. {
                    assert!(second < 90, "{what}: nobody hangs up");
                    match stream.read(&mut piece) {
                        Ok(0) => break,
                        Ok(length) => said.push_str(std::str::from_utf8(&piece[..length]).unwrap()),
                        // Still waited for: a little more comes, unless nothing ever did.
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                            let more: &[u8] = if start.is_empty() { b"" } else { b" " };
                            if stream.write_all(more).is_err() {
                                break;
                            }
                        }
                        Err(_) => break,
                    }
                }
                assert!(said.starts_with(wanted) && said.is_empty() == wanted.is_empty(), "{what}: {said}");
            });
        }
        assert_eq!(server.ask("GET", "/tasks", None).status, 200, "others are served meanwhile");
    });
}
