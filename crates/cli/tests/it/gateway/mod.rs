//! `rota gateway` and `rota gate` as programs: against a scripted provider, with real clients.

pub mod agents;
mod beside;
mod clients;
mod follow;
mod half_open;
mod money;
mod tls;
mod verbs;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rota_testbed::provider::Provider;

use crate::support::Lab;

/// What no agent may ever see.
const KEY: &str = "sk-canary-0123456789";
/// Longer than anything that should happen takes.
const SOON: Duration = Duration::from_secs(60);

/// A configuration with the provider in the place of both.
fn config(provider: &Provider, more: &str) -> String {
    let url = provider.url();
    format!(
        "rate_limit: {{initial_backoff_secs: 1, max_backoff_secs: 1, recovery_period_secs: 0, max_requests_per_window: \
         10000, burst: 10000}}\ngateway:\n  listen: 127.0.0.1:0\n  upstreams:\n    anthropic: {{url: \"{url}\"}}\n    \
         openai: {{url: \"{url}\"}}\n{more}"
    )
}

/// `rota gateway` as a process.
struct Running {
    child: Child,
    url: String,
    said: Arc<Mutex<String>>,
}

impl Running {
    /// In a folder that has a configuration.
    fn start(lab: &Lab) -> Self {
        let mut command = lab.command();
        command.arg("gateway").env("ANTHROPIC_API_KEY", KEY).env("OPENAI_API_KEY", KEY);
        Self::of(&mut command)
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = Arc::new(Mutex::new(String::new()));
        let url = loop {
            let line = lines.next().expect("a gateway that listens").unwrap();
            if let Some(rest) = line.strip_prefix("gateway on ") {
                break rest.split(',').next().unwrap().to_owned();
            }
            said.lock().unwrap().push_str(&format!("{line}\n"));
        };
        let kept = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        Self { child, url, said }
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// The most memory it ever had, in kilobytes.
    fn peak_kb(&self) -> usize {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn ask(&self, token: &str) -> TcpStream {
        ask(&self.url, token)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends one call.
fn ask(url: &str, token: &str) -> TcpStream {
    let address = url.trim_start_matches("http://");
    let body = r#"{"model":"claude-opus-4","max_tokens":9,"messages":[]}"#;
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\nx-api-key: {token}\r\nconnection: close\r\n"
    );
    stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// Everything that comes back.
fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Waits until something holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < SOON, "{what} did not come about");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn operator(folder: &Path) -> String {
    std::fs::read_to_string(folder.join(".rota/token")).unwrap().trim().to_owned()
}
