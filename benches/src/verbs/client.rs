//! A lean load generator: callers with one kept connection each, on one thread, that write a request and read its answer by
//! hand. It costs a few microseconds per call, so that the figures are those of the server.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::table::{NOT_SUPPORTED, Round};
use crate::Result;
use crate::agents::processor_seconds;
use crate::server::Server;
use crate::stats::micros;

/// Errors as text, because they cross tasks.
type Answered<T> = std::result::Result<T, String>;

/// Turns of each caller that are not measured: statements get prepared, caches filled.
const WARM_UP: usize = 8;
/// The longest that a round may take beyond its length.
const GRACE: Duration = Duration::from_secs(60);

/// The calls of one turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// `POST /claims`, then `POST /tasks/{id}/done`.
    ClaimThenDone,
    /// `POST /tasks/{id}/done` that claims the next task, too.
    DoneWithNext,
    /// `POST /tasks`.
    Add,
}

/// The lease that a caller holds.
#[derive(PartialEq, Eq, Debug)]
struct Held {
    id: String,
    lease: String,
}

struct Caller {
    stream: TcpStream,
    number: usize,
    /// The headers that all its requests have.
    headers: String,
    request: Vec<u8>,
    answer: Vec<u8>,
    held: Option<Held>,
    has_settled: bool,
    added: usize,
}

impl Caller {
    async fn connect(address: &str, token: &str, number: usize) -> Answered<Self> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let headers = format!(
            "host: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: "
        );
        let (request, answer) = (Vec::with_capacity(1024), Vec::with_capacity(4096));
        Ok(Self { stream, number, headers, request, answer, held: None, has_settled: false, added: 0 })
    }

    /// Sends one request and reads the whole answer; its status and its body.
    async fn post(&mut self, path: &str, body: &str) -> Answered<(u16, &str)> {
        self.request.clear();
        let length = body.len().to_string();
        let parts = ["POST ", path, " HTTP/1.1\r\n", &self.headers, &length, "\r\n\r\n", body];
        for part in parts {
            self.request.extend_from_slice(part.as_bytes());
        }
        self.stream.write_all(&self.request).await.map_err(|error| error.to_string())?;
        self.answer.clear();
        loop {
            if let Some((status, start, end)) = parse_head(&self.answer)?
                && self.answer.len() >= end
            {
                let body = std::str::from_utf8(&self.answer[start..end]);
                return Ok((status, body.map_err(|error| error.to_string())?));
            }
            let read = self.stream.read_buf(&mut self.answer).await.map_err(|error| error.to_string())?;
            if read == 0 {
                return Err("the server closed the connection".to_owned());
            }
        }
    }

    /// Claims a task; false when nothing is left.
    async fn claim(&mut self) -> Answered<bool> {
        let path = format!("/api/v1/claims?agent=caller-{}", self.number);
        let held = match self.post(&path, "{}").await? {
            (200, body) => Some(held_in(body)?),
            (409, body) if body.contains("\"nothing_eligible\"") => None,
            (status, body) => return Err(format!("POST {path}: {status} {body}")),
        };
        self.held = held;
        Ok(self.held.is_some())
    }

    /// Settles the task that this caller holds.
    async fn done(&mut self, next: bool) -> Answered<()> {
        let held = self.held.take().ok_or("nothing is held")?;
        let (number, Held { id, lease }) = (self.number, &held);
        let path = format!("/api/v1/tasks/{id}/done?agent=caller-{number}&leaseId={lease}");
        let next_held = match self.post(&path, if next { r#"{"next":true}"# } else { "{}" }).await? {
            (200, body) if next => next_in(body)?,
            (200, _) => None,
            (400, body) if next && body.contains("unknown field `next`") => {
                return Err(NOT_SUPPORTED.to_owned());
            }
            (status, body) => return Err(format!("POST {path}: {status} {body}")),
        };
        self.held = next_held;
        Ok(())
    }

    async fn add(&mut self) -> Answered<()> {
        let body = format!(
            r#"{{"id":"new-{}-{:09}","title":"A new task","category":"code","description":"Do the work that one sentence of the usual length describes."}}"#,
            self.number, self.added
        );
        self.added += 1;
        match self.post("/api/v1/tasks", &body).await? {
            (200, _) => Ok(()),
            (status, body) => Err(format!("POST /api/v1/tasks: {status} {body}")),
        }
    }

    /// One task; false when nothing is left.
    async fn turn(&mut self, way: Way) -> Answered<bool> {
        match way {
            Way::Add => self.add().await?,
            Way::ClaimThenDone | Way::DoneWithNext => {
                // A `done` that claimed nothing found nothing to claim.
                let is_over = way == Way::DoneWithNext && self.has_settled;
                if self.held.is_none() && (is_over || !self.claim().await?) {
                    return Ok(false);
                }
                self.done(way == Way::DoneWithNext).await?;
                self.has_settled = true;
            }
        }
        Ok(true)
    }

    async fn work(&mut self, way: Way, length: Duration) -> Answered<usize> {
        let (began, mut tasks) = (Instant::now(), 0);
        while began.elapsed() < length && self.turn(way).await? {
            tasks += 1;
        }
        Ok(tasks)
    }
}

/// Of the answer so far: its status, and where its body begins and ends; none while the head is incomplete.
fn parse_head(answer: &[u8]) -> Answered<Option<(u16, usize, usize)>> {
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&answer[..head]).map_err(|error| error.to_string())?;
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
    let lengths = text.lines().filter_map(|line| line.split_once(':'));
    let length = lengths
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .find_map(|(_, value)| value.trim().parse::<usize>().ok());
    let start = head + 4;
    Ok(Some((status, start, start + length.ok_or("an answer without content-length")?)))
}

/// The first id and lease in a text.
fn held_in(text: &str) -> Answered<Held> {
    let string = |key: &str| -> Answered<String> {
        let place = text.find(key).ok_or_else(|| format!("no {key} in {text}"))?;
        let rest = text[place + key.len()..].trim_start_matches([':', ' ', '"']);
        Ok(rest.split('"').next().unwrap_or_default().to_owned())
    };
    Ok(Held { id: string("\"id\"")?, lease: string("\"leaseId\"")? })
}

/// The claim in the answer to `done`; none if nothing was eligible.
fn next_in(body: &str) -> Answered<Option<Held>> {
    let claim = body.split_once("\"next\":").map(|(_, claim)| claim.trim_start());
    claim.filter(|claim| !claim.starts_with("null")).map(held_in).transpose()
}

/// This thread's processor time so far in microseconds; 0 where the system does not tell.
fn thread_micros() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_else(|_| String::new());
    text.split(' ').next().and_then(|word| word.parse::<f64>().ok()).map_or(0.0, |nanos| nanos / 1e3)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

async fn all<T: 'static>(mut running: JoinSet<Answered<T>>) -> Result<Vec<T>> {
    let mut results = Vec::new();
    while let Some(ended) = running.join_next().await {
        results.push(ended??);
    }
    Ok(results)
}

/// Lets so many callers work at once, until the time is up or the backlog is empty.
pub fn load(server: &Server, way: Way, callers: usize, length: Duration) -> Result<Round> {
    runtime()?.block_on(async {
        let round = tokio::time::timeout(length + GRACE, measure(server, way, callers, length));
        round.await.map_err(|_| "the server did not answer in time")?
    })
}

async fn measure(server: &Server, way: Way, callers: usize, length: Duration) -> Result<Round> {
    let mut warming = JoinSet::new();
    for number in 0..callers {
        let (address, token) = (server.address.clone(), server.token.clone());
        warming.spawn(async move {
            let mut caller = Caller::connect(&address, &token, number).await?;
            for _ in 0..WARM_UP {
                caller.turn(way).await?;
            }
            Ok(caller)
        });
    }
    let warm = all(warming).await?;
    let (client_before, server_before) = (thread_micros(), processor_seconds(server.pid)?);
    let began = Instant::now();
    let mut running = JoinSet::new();
    for mut caller in warm {
        running.spawn(async move { caller.work(way, length).await });
    }
    let tasks = all(running).await?.iter().sum::<usize>() as f64;
    let seconds = began.elapsed().as_secs_f64();
    if tasks == 0.0 {
        return Err("no task was settled: the backlog was empty, or `done` ignored `next`".into());
    }
    let client = (thread_micros() - client_before) / tasks;
    let served = (processor_seconds(server.pid)? - server_before) * 1e6 / tasks;
    Ok(Round { per_second: tasks / seconds, cpu: Some((client, served)) })
}

/// A lone caller that only claims.
pub struct Claimer {
    runtime: tokio::runtime::Runtime,
    caller: Caller,
}

impl Claimer {
    /// Connects.
    pub fn connect(server: &Server) -> Result<Self> {
        let runtime = runtime()?;
        let caller = runtime.block_on(Caller::connect(&server.address, &server.token, 0))?;
        Ok(Self { runtime, caller })
    }

    /// The time of each of so many claims, in microseconds.
    pub fn times(&mut self, count: usize) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            let claimed = self.runtime.block_on(self.caller.claim())?;
            times.push(micros(began.elapsed()));
            if !claimed {
                return Err("the backlog ran out".into());
            }
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(id: &str, lease: &str) -> Held {
        Held { id: id.to_owned(), lease: lease.to_owned() }
    }

    #[test]
    fn answers_are_read_however_they_are_cut() {
        let answer = b"HTTP/1.1 409 Conflict\r\nContent-Length: 5\r\ndate: now\r\n\r\nhello";
        let head = answer.len() - 5;
        for cut in 0..head {
            assert_eq!(parse_head(&answer[..cut]), Ok(None), "{cut}");
        }
        for cut in head..=answer.len() {
            assert_eq!(parse_head(&answer[..cut]), Ok(Some((409, head, head + 5))), "{cut}");
        }
        assert!(parse_head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn claims_are_found() {
        let claimed = "{\n  \"id\": \"b\",\n  \"title\": \"T\",\n  \"leaseId\": \"lease-b-1\"\n}";
        assert_eq!(held_in(claimed), Ok(held("b", "lease-b-1")));
        assert_eq!(held_in(r#"{"id":"b","leaseId":"lease-b-1"}"#), Ok(held("b", "lease-b-1")));
        assert!(held_in(r#"{"id":"b"}"#).is_err());
        let done = format!("{{\n  \"id\": \"a\",\n  \"next\": {claimed}\n}}");
        assert_eq!(next_in(&done), Ok(Some(held("b", "lease-b-1"))));
        for nothing in [r#"{"id":"a"}"#, r#"{"id":"a","next":null}"#, "{\"next\": null}"] {
            assert_eq!(next_in(nothing), Ok(None), "{nothing}");
        }
    }
}
