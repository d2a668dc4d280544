//! The load: connections that send one request after the other, and streams whose first byte is waited for.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::request;
use super::subjects::Subject;
use crate::Result;
use crate::stats::micros;

/// How long to load whom.
pub struct Load<'a> {
    pub subject: &'a Subject,
    pub time: Duration,
}

impl Load<'_> {
    /// How long each request took, in microseconds.
    pub async fn requests(&self, connections: usize) -> Result<Vec<f64>> {
        let until = Instant::now() + self.time;
        let text = request(self.subject, false);
        let mut clients = JoinSet::new();
        for _ in 0..connections {
            let (text, address) = (text.clone(), self.subject.address.clone());
            clients.add(async move { client(&address, &text, until).await });
        }
        clients.all().await
    }

    /// How long the first byte of each stream took, in microseconds.
    pub async fn streams(&self, at_once: usize) -> Result<Vec<f64>> {
        let until = Instant::now() + self.time;
        let text = request(self.subject, true);
        let mut clients = JoinSet::new();
        for _ in 0..at_once {
            let (text, address) = (text.clone(), self.subject.address.clone());
            clients.add(async move { streaming(&address, &text, until).await });
        }
        clients.all().await
    }
}

/// Tasks that each bring times, or fail with a text.
trait Clients {
    fn add(&mut self, client: impl Future<Output = Times> + Send + 'static);
    fn all(self) -> impl Future<Output = Result<Vec<f64>>>;
}

type Times = std::result::Result<Vec<f64>, String>;

impl Clients for JoinSet<Times> {
    fn add(&mut self, client: impl Future<Output = Times> + Send + 'static) {
        self.spawn(client);
    }

    async fn all(mut self) -> Result<Vec<f64>> {
        let mut all = Vec::new();
        while let Some(times) = self.join_next().await {
            all.extend(times??);
        }
        Ok(all)
    }
}

async fn client(address: &str, text: &str, until: Instant) -> Times {
    let mut stream = open(address).await?;
    let (mut times, mut buffer) = (Vec::new(), Vec::with_capacity(16_384));
    while Instant::now() < until {
        let start = Instant::now();
        stream.write_all(text.as_bytes()).await.map_err(|error| error.to_string())?;
        read_answer(&mut stream, &mut buffer).await?;
        times.push(micros(start.elapsed()));
    }
    Ok(times)
}

async fn streaming(address: &str, text: &str, until: Instant) -> Times {
    let mut times = Vec::new();
    while Instant::now() < until {
        let mut stream = open(address).await?;
        let start = Instant::now();
        stream.write_all(text.as_bytes()).await.map_err(|error| error.to_string())?;
        let (mut seen, mut piece) = (Vec::new(), vec![0; 4_096]);
        let mut first = None;
        loop {
            let count = stream.read(&mut piece).await.map_err(|error| error.to_string())?;
            seen.extend_from_slice(&piece[..count]);
            if first.is_none() && contains(&seen, b"data: ") {
                first = Some(micros(start.elapsed()));
            }
            if count == 0 || seen.ends_with(b"0\r\n\r\n") {
                break;
            }
        }
        times.push(first.ok_or("a stream without an event")?);
    }
    Ok(times)
}

async fn open(address: &str) -> std::result::Result<TcpStream, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| format!("{address}: {error}"))?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(stream)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// Reads one answer, by its length or to the end of its chunks.
async fn read_answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::result::Result<(), String> {
    buffer.clear();
    loop {
        let count = stream.read_buf(buffer).await.map_err(|error| error.to_string())?;
        if count == 0 {
            return Err("closed before an answer".to_owned());
        }
        let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let text = std::str::from_utf8(&buffer[..head]).map_err(|error| error.to_string())?;
        if !text.starts_with("HTTP/1.1 200") {
            return Err(format!("answered {}", String::from_utf8_lossy(buffer)));
        }
        let length = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        let is_all = match length {
            Some(length) => buffer.len() >= head + 4 + length,
            None => buffer.ends_with(b"0\r\n\r\n"),
        };
        if is_all {
            return Ok(());
        }
    }
}

/// The value that so many of a hundred lie below; 0 of nothing.
pub fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() as f64 * percent / 100.0) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}
