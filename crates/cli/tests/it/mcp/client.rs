//! A small MCP client over standard input and output, and one over HTTP that writes its requests by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::daemon::{read, until};
use crate::support::{Lab, rota_in};

pub const HANDSHAKE: &str = "2025-11-25";
pub const INLINE: &str = "2026-07-28";

/// Asks a process to end.
pub fn tell(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// A server that this client started.
pub struct Pipes {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last: u64,
}

impl Pipes {
    /// Starts one and shakes hands.
    pub fn start(lab: &Lab, arguments: &[&str]) -> Self {
        Self::start_with(lab, arguments, &[])
    }

    /// The same with variables.
    pub fn start_with(lab: &Lab, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = lab.command();
        command.arg("mcp").args(arguments).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut client = Self { child, input, output, last: 0 };
        let params = json!({
            "protocolVersion": HANDSHAKE,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let greeting = client.ask("initialize", params);
        assert_eq!(greeting["result"]["serverInfo"]["name"], "rota", "{greeting}");
        client.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    pub fn write(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{message}").unwrap();
    }

    /// Sends a request; its number.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}));
        self.last
    }

    /// The next message; none at the end of the stream.
    pub fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).unwrap();
        (read > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let answer = self.next().unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Says goodbye: no more requests.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// What it says to the end, and its exit code.
    pub fn end(mut self) -> (Vec<Value>, Option<i32>) {
        let mut rest = Vec::new();
        while let Some(message) = self.next() {
            rest.push(message);
        }
        (rest, self.child.wait().unwrap().code())
    }
}

/// A server that listens, and the token it wants.
pub struct Http {
    pub child: Child,
    pub address: String,
    pub token: String,
    pub session: Option<String>,
}

/// What came back over HTTP.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    /// The JSON of the body: all of it, or the last event of a stream.
    pub fn json(&self) -> Value {
        let mut events = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        let text = events.rfind(|event| !event.trim().is_empty()).unwrap_or(&self.body);
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Http {
    /// Starts one for MCP on a free port.
    pub fn start(lab: &Lab, arguments: &[&str]) -> Self {
        Self::start_with(lab, arguments, &[])
    }

    /// The same with variables.
    pub fn start_with(lab: &Lab, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::listening(lab, &["mcp", "--http"], arguments, variables)
    }

    /// Starts a `rota serve` on a free port.
    pub fn serve(lab: &Lab, arguments: &[&str]) -> Self {
        Self::listening(lab, &["serve"], arguments, &[])
    }

    /// Starts a `rota up` and asks what it serves.
    pub fn up(lab: &Lab, variables: &[(&str, &str)]) -> Self {
        let mut command = lab.command();
        command.args(["up", "--publish"]).envs(variables.iter().copied());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the daemon answers", || lab.line("status").code == 0);
        let url = read(lab.path().join(".rota/run/serve"));
        let address = url.trim_end().strip_prefix("http://").unwrap().to_owned();
        let token = read(lab.path().join(".rota/token")).trim_end().to_owned();
        Self { child, address, token, session: None }
    }

    /// The same with so many descriptors, which bound its connections.
    pub fn serve_with_descriptors(lab: &Lab, count: u32) -> Self {
        let plain = lab.command_on_store();
        let mut command = rota_in(Path::new("sh"), lab.path());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.args(["-c", &format!("ulimit -n {count}; exec \"$@\""), "sh"]);
        command.arg(plain.get_program()).args(plain.get_args());
        Self::started(command, &["serve"], &[], &[])
    }

    fn listening(lab: &Lab, words: &[&str], arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::started(lab.command_on_store(), words, arguments, variables)
    }

    fn started(mut command: Command, words: &[&str], arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        command.args(words).args(["--listen", "127.0.0.1:0"]).args(arguments).envs(variables.iter().copied());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
        let place = said.strip_prefix("listening on http://").and_then(|rest| rest.split_once(", token in "));
        let (address, path) = place.unwrap_or_else(|| panic!("{said}"));
        let address = address.trim_end_matches("/mcp");
        let token = std::fs::read_to_string(path.trim_end()).unwrap().trim_end().to_owned();
        Self { child, address: address.to_owned(), token, session: None }
    }

    /// Sends a request with the headers as they are.
    pub fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        // A server that refuses a body stops reading it.
        drop(stream.write_all(format!("{request}\r\n{body}").as_bytes()));
        let mut reply = Vec::new();
        drop(stream.read_to_end(&mut reply));
        let reply = String::from_utf8(reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{reply}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { unchunked(body) } else { body.to_owned() };
        Reply { status, head: head.to_owned(), body }
    }

    /// Sends a message as a client that may.
    pub fn post(&self, headers: &[(&str, &str)], message: &Value) -> Reply {
        let authorization = format!("Bearer {}", self.token);
        let mut all = vec![
            ("Host", self.address.as_str()),
            ("Authorization", &authorization),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        all.extend(headers);
        self.raw("POST", "/mcp", &all, &message.to_string())
    }

    /// Asks the API as somebody who may.
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        self.ask_as(&self.token, method, path, body)
    }

    /// Asks the API with a token.
    pub fn ask_as(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let authorization = format!("Bearer {token}");
        let headers = [
            ("Host", self.address.as_str()),
            ("Authorization", &authorization),
            ("Content-Type", "application/json"),
        ];
        let body = body.map(Value::to_string).unwrap_or_default();
        self.raw(method, &format!("/api/v1{path}"), &headers, &body)
    }

    /// Shakes hands; later calls are in this session.
    pub fn shake_hands(&mut self) {
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        }});
        let reply = self.post(&[], &message);
        assert_eq!(
            (reply.status, &reply.json()["result"]["serverInfo"]["name"]),
            (200, &json!("rota")),
            "{reply:?}"
        );
        let session = reply.header("mcp-session-id").unwrap().to_owned();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", HANDSHAKE)];
        assert_eq!(self.post(&headers, &ready).status, 202);
        self.session = Some(session);
    }

    /// Calls a tool in the session.
    pub fn call(&self, tool: &str, arguments: &Value) -> Value {
        let session = self.session.as_deref().unwrap();
        let headers = [("mcp-session-id", session), ("mcp-protocol-version", HANDSHAKE)];
        let params = json!({"name": tool, "arguments": arguments});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        self.post(&headers, &message).json()
    }

    /// Ends it with a signal; its exit code.
    pub fn end(mut self, signal: Signal) -> Option<i32> {
        tell(&self.child, signal);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        // Gone already where a test ended it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn unchunked(body: &str) -> String {
    let (mut whole, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    whole
}
