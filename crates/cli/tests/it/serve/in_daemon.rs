//! What `rota up` serves beside its work: its own figures, and traces for whoever collects them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

use serde_json::Value;

use crate::daemon::{configure, until};
use crate::mcp::client::Http;
use crate::support::Lab;

/// Hands on the messages that come in, each with the path it was sent to.
fn collector() -> (String, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (hand, messages) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut path, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                if let Some(("content-length", value)) = line.to_ascii_lowercase().split_once(": ") {
                    length = value.trim().parse().unwrap();
                } else if path.is_empty() {
                    path = line.split(' ').nth(1).unwrap().to_owned();
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
            if hand.send((path, serde_json::from_slice(&body).unwrap())).is_err() {
                return;
            }
        }
    });
    (url, messages)
}

#[test]
fn a_daemon_shows_its_ticks_and_traces_its_calls() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'true'}\n");
    let (url, messages) = collector();
    let daemon = Http::up(&lab, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]);
    lab.line("loop add --kind ralph --id r").ok();
    let authorization = format!("Bearer {}", daemon.token);
    let headers = [("Host", daemon.address.as_str()), ("Authorization", authorization.as_str())];
    until("a tick was counted, and a settlement", || {
        let metrics = daemon.raw("GET", "/metrics", &headers, "").body;
        let value = |name: &str| {
            let line = metrics.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0)
        };
        value("rota_tick_seconds_count") >= 1.0 && value("rota_settled_total{") >= 1.0
    });
    assert_eq!(daemon.ask("GET", "/tasks/none", None).status, 404);
    let of_the_call = |span: &&Value| span["name"] == "GET /api/v1/tasks/none";
    let wait = std::time::Duration::from_secs(60);
    let (path, span) = loop {
        let (path, message) = messages.recv_timeout(wait).unwrap();
        let spans = message["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
        if let Some(span) = spans.iter().find(of_the_call) {
            break (path, span.clone());
        }
    };
    assert_eq!(path, "/v1/traces");
    assert_eq!(span["attributes"][0]["value"]["intValue"], "404");
    lab.line("down").ok();
}
