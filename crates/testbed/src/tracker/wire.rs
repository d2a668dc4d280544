//! Just enough HTTP/1.1 to be talked to by every client: one request at a time, bodies by their length.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// No body is longer.
const BODY_BYTES: usize = 16 * 1_024 * 1_024;

pub(super) struct Connection {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

pub struct Request {
    pub method: String,
    pub target: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// The path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A parameter of the query.
    pub fn query(&self, name: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next_back()
    }

    pub fn number(&self, name: &str, default: usize) -> usize {
        self.query(name).and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Percent-encoding undone.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Reply {
    pub fn json(status: u16, value: &serde_json::Value) -> Self {
        Self::text(status, "application/json", &value.to_string())
    }

    pub fn text(status: u16, kind: &str, text: &str) -> Self {
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        Self { status, headers, body: text.as_bytes().to_vec() }
    }

    pub fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }
}

impl Connection {
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream.try_clone()?), writer: stream })
    }

    /// The next request; none at the end, or if it is none.
    pub fn read(&mut self) -> Option<Request> {
        let mut line = String::new();
        self.reader.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").map_or(Some(0), |text| text.parse().ok())?;
        let mut body = vec![0; std::cmp::min(length, BODY_BYTES)];
        self.reader.read_exact(&mut body).ok()?;
        Some(Request { method, target, headers, body })
    }

    pub fn write(&mut self, reply: &Reply) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {} x\r\n", reply.status);
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if reply.status != 204 && reply.status != 304 {
            head.push_str(&format!("content-length: {}\r\n", reply.body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&reply.body);
        self.writer.write_all(&bytes)
    }
}
