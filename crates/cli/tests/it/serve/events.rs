//! Server-sent events: each once, in an order that never changes, also for a client whose server was killed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use rota_core::event::{Event, EventKind};
use rota_core::{Task, TaskId, UnixMillis};
use rota_store::{Access, AnyStore, Store, Tx};
use rota_testbed::Server;
use rota_testbed::block_on;
use rota_verbs::create::CreateTask;
use rota_verbs::input::read;
use rota_verbs::{Context, Verb};
use serde_json::{Value, json};

use crate::mcp::client::Http;
use crate::support::Lab;

/// One connection to a stream; the answer comes without chunks in the older protocol.
struct Stream {
    lines: BufReader<TcpStream>,
    place: String,
}

impl Stream {
    fn open(server: &Http, query: &str, place: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let last = place.map_or(String::new(), |place| format!("Last-Event-ID: {place}\r\n"));
        let head = format!(
            "GET /api/v1/events{query} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {}\r\n{last}\r\n",
            server.address, server.token
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("200 OK"), "{line}");
        while line != "\r\n" {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0);
        }
        let mut stream = Self { lines, place: String::new() };
        // The server says where the stream begins.
        stream.next_field("id").unwrap();
        stream
    }

    /// The next line of a field; none when the server is gone.
    fn next_field(&mut self, wanted: &str) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap_or(0) == 0 || !line.ends_with('\n') {
                return None;
            }
            let (field, value) = line.trim_end().split_once(": ").unwrap_or_default();
            if field == "id" {
                self.place = value.to_owned();
            }
            if field == wanted {
                return Some(value.to_owned());
            }
        }
    }

    /// The next event; a client takes it, and its id, when it is whole.
    fn next(&mut self) -> Option<Value> {
        let before = self.place.clone();
        let data = self.next_field("data")?;
        let mut end = String::new();
        if self.lines.read_line(&mut end).unwrap_or(0) == 0 {
            self.place = before;
            return None;
        }
        Some(serde_json::from_str(&data).unwrap())
    }
}

fn add(store: &AnyStore, id: &str) {
    let task: CreateTask = read(&json!({"id": id, "title": "T"}).to_string()).unwrap();
    block_on(task.run(&Context::new(store.clone()))).unwrap();
}

/// Writers in parallel, and the server is killed twice.
fn nothing_is_missed(lab: &Lab, store: &(dyn Fn() -> AnyStore + Sync)) {
    const EACH: usize = 60;
    const WRITERS: usize = 4;
    let mut server = Http::serve(lab, &[]);
    let mut stream = Stream::open(&server, "", None);
    let mut seen: Vec<(String, u64)> = Vec::new();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let store = store();
                (0..EACH).for_each(|task| add(&store, &format!("t{writer}-{task}")));
            });
        }
        let kills = [WRITERS * EACH / 4, WRITERS * EACH / 2];
        let mut created = 0;
        while created < WRITERS * EACH {
            let Some(event) = stream.next() else {
                stream = Stream::open(&server, "", Some(&stream.place));
                continue;
            };
            let seq = event["seq"].as_u64().unwrap();
            created += usize::from(event["event"] == "created");
            seen.push((stream.place.clone(), seq));
            if kills.contains(&created) && event["event"] == "created" {
                server.child.kill().unwrap();
                server.child.wait().unwrap();
                server = Http::serve(lab, &[]);
            }
        }
    });
    let places: BTreeSet<&String> = seen.iter().map(|(place, _)| place).collect();
    let numbers: BTreeSet<u64> = seen.iter().map(|(_, seq)| *seq).collect();
    assert_eq!((places.len(), numbers.len()), (seen.len(), seen.len()), "nothing comes twice");
    let journal: Value = serde_json::from_str(&lab.line("log --json").ok()).unwrap();
    let all: BTreeSet<u64> =
        journal["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, all, "nothing is missed");
    // The same from the start, in the same order.
    let mut again = Stream::open(&server, "", Some("0-0"));
    for (place, seq) in &seen {
        let event = again.next().unwrap();
        assert_eq!((&again.place, event["seq"].as_u64()), (place, Some(*seq)));
    }
}

#[test]
fn resumed_on_sqlite() {
    let lab = Lab::new();
    nothing_is_missed(&lab, &|| lab.open());
}

#[test]
fn resumed_on_postgresql() {
    let lab = Lab::on(Server::shared().fresh_url());
    nothing_is_missed(&lab, &|| lab.open());
}

fn created(name: &str) -> Event {
    let task = Task::new("default", TaskId::new(name).unwrap(), "tasks", "T", UnixMillis::new(1));
    Event::of_change(EventKind::Created, None, &Task { events: 1, ..task })
}

/// Who began first commits last, and the server is killed in between: everything comes once, in the order that the
/// journal has from then on. On SQLite nobody can begin before another has committed.
#[test]
fn writers_that_commit_out_of_order() {
    let lab = Lab::on(Server::shared().fresh_url());
    let store = lab.open();
    let mut server = Http::serve(&lab, &[]);
    let mut stream = Stream::open(&server, "", None);
    let hear = |stream: &mut Stream| stream.next().unwrap()["task"].as_str().unwrap().to_owned();
    add(&store, "first");
    assert_eq!(hear(&mut stream), "first");
    let mut slow = block_on(store.begin(Access::Write)).unwrap();
    block_on(slow.append(&created("slow"))).unwrap();
    // A write is sent with the next read.
    block_on(slow.clock()).unwrap();
    add(&store, "second");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    add(&store, "third");
    server = Http::serve(&lab, &[]);
    let mut resumed = Stream::open(&server, "", Some(&stream.place));
    let mut fresh = Stream::open(&server, "", Some("0-0"));
    add(&store, "fourth");
    block_on(slow.commit()).unwrap();
    add(&store, "last");
    let heard: Vec<String> = (0..5).map(|_| hear(&mut resumed)).collect();
    assert_eq!(heard, ["slow", "second", "third", "fourth", "last"]);
    let heard: Vec<String> = (0..6).map(|_| hear(&mut fresh)).collect();
    assert_eq!(heard, ["first", "slow", "second", "third", "fourth", "last"]);
}

#[test]
fn one_task_another_scope_and_bad_places() {
    let lab = Lab::new();
    let server = Http::serve(&lab, &[]);
    lab.line("task create before T --scope other").ok();
    let mut stream = Stream::open(&server, "?scope=other&task=a", None);
    lab.line("task create b T --scope other").ok();
    lab.line("task create a T").ok();
    lab.line("task create a T --scope other").ok();
    lab.line("task pause a --scope other").ok();
    for wanted in ["created", "paused"] {
        let event = stream.next().unwrap();
        assert_eq!(
            (&event["event"], &event["task"], &event["scope"]),
            (&wanted.into(), &"a".into(), &"other".into())
        );
    }
    for query in ["?after=nowhere", "?task=-x", "?colour=red", "?scope=a&scope=b"] {
        assert_eq!(server.ask("GET", &format!("/events{query}"), None).status, 400, "{query}");
    }
    assert_eq!(server.ask("POST", "/events", None).status, 405);
}

/// A server that is told to stop ends its streams and itself.
#[test]
fn streams_end_with_the_server() {
    let lab = Lab::new();
    let server = Http::serve(&lab, &[]);
    let mut stream = Stream::open(&server, "", None);
    assert_eq!(server.end(rustix::process::Signal::TERM), Some(0));
    assert!(stream.next().is_none());
}

/// Kilobytes that a process has in memory.
fn resident(server: &Http) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Readers that do not read: the others hear everything, the server does not hoard, and whoever reads at last, cut off or
/// not, has missed nothing.
#[test]
fn a_slow_reader_holds_up_nobody_and_misses_nothing() {
    const TASKS: usize = 300;
    const SLOW: usize = 20;
    const BYTES: usize = 60 * 1_024;
    let lab = Lab::new();
    let server = Http::serve(&lab, &[]);
    let mut slow: Vec<Stream> = (0..SLOW).map(|_| Stream::open(&server, "", None)).collect();
    let mut quick = Stream::open(&server, "", None);
    let (before, store) = (resident(&server), lab.open());
    let hear_all = |stream: &mut Stream| {
        let mut heard = 0;
        while heard < TASKS {
            match stream.next() {
                Some(event) if event["event"] == "created" => {
                    assert_eq!(event["task"], format!("t{heard}"));
                    heard += 1;
                }
                Some(_) => {}
                None => *stream = Stream::open(&server, "", Some(&stream.place)),
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for at in 0..TASKS {
                let input = json!({"id": format!("t{at}"), "title": "T", "description": "x".repeat(BYTES)});
                let task: CreateTask = read(&input.to_string()).unwrap();
                block_on(task.run(&Context::new(store.clone()))).unwrap();
            }
        });
        hear_all(&mut quick);
    });
    let grown = resident(&server).saturating_sub(before);
    let all = (TASKS * BYTES / 1_024) as u64;
    assert!(grown < SLOW as u64 / 2 * all, "{grown} kB for {all} kB of events");
    hear_all(&mut slow[0]);
}
