//! Receivers that are down, slow, refuse or send elsewhere; and that nobody waits for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rota_store::intents::Call;
use rota_store::intents::blocks::NoteLimit;
use rota_store::intents::issues::NoteViolation;
use rota_store::{AnyStore, Location, Store};
use rota_testbed::block_on;
use rota_verbs::create::CreateTask;
use rota_verbs::delete::DeleteTask;
use rota_verbs::loops::AddLoop;
use rota_verbs::policy::{ApplyPolicy, Unnamed};
use rota_verbs::settle::ParkTask;
use rota_verbs::{Context, Verb, input};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{TRIES, read, run, signature};

/// What came in: the head in lower case, and the body.
type Got = (String, Vec<u8>);

const WAIT: Duration = Duration::from_secs(60);

/// Answers each request with the next of these; the last one for ever. What came in is told.
fn receiver(answers: &'static [&'static str]) -> (String, mpsc::Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("{error}"));
    let url = listener.local_addr().map(|address| format!("http://{address}/hook"));
    let (told, got) = mpsc::channel();
    std::thread::spawn(move || {
        for (at, stream) in listener.incoming().enumerate() {
            let answer = answers[at.min(answers.len() - 1)];
            let Ok(stream) = stream else { return };
            if told.send(answer_one(stream, answer)).is_err() {
                return;
            }
        }
    });
    (url.unwrap_or_default(), got)
}

/// An empty answer is none: the caller waits in vain.
fn answer_one(mut stream: TcpStream, answer: &str) -> Got {
    let mut reader = BufReader::new(stream.try_clone().unwrap_or_else(|error| panic!("{error}")));
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) && line != "\r\n" {
        head.push_str(&line.to_ascii_lowercase());
        line.clear();
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    drop(reader.read_exact(&mut body));
    if answer.is_empty() {
        // Until the caller gives up.
        drop(reader.read_to_end(&mut Vec::new()));
    } else {
        let head = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        drop(stream.write_all(head.as_bytes()));
    }
    (head, body)
}

fn done<V: Verb>(cx: &Context, json: &Value) {
    let input: V = input::read(&json.to_string()).unwrap_or_else(|error| panic!("{error}"));
    block_on(input.run(cx)).unwrap_or_else(|error| panic!("{error}"));
}

fn add(cx: &Context, id: &str) {
    done::<CreateTask>(cx, &json!({"id": id, "title": "T"}));
}

fn park(cx: &Context, id: &str) {
    done::<ParkTask>(cx, &json!({"id": id, "reason": "needs \u{1b}[2J a key"}));
}

struct Told {
    cx: Context,
    stop: CancellationToken,
    runtime: tokio::runtime::Runtime,
}

impl Told {
    /// With hooks, the last of which takes what shows that the others are listened for.
    fn begin(section: &Value) -> Self {
        let store = block_on(AnyStore::open(&Location::Memory)).unwrap_or_else(|error| panic!("{error}"));
        let cx = Context::new(store);
        let (url, got) = receiver(&["200 OK"]);
        let mut section = section.clone();
        section
            .as_array_mut()
            .unwrap_or_else(|| panic!("a list"))
            .push(json!({"on": ["failed"], "url": url}));
        let hooks =
            read(&(&section).into(), |_| Some("hush".to_owned())).unwrap_or_else(|error| panic!("{error}"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
        let stop = CancellationToken::new();
        // Something is left to do, so that it is not idle before it should be.
        add(&cx, "open");
        runtime.spawn(run(cx.clone(), None, None, hooks, Duration::from_millis(10), stop.clone()));
        let start = Instant::now();
        for at in 0.. {
            assert!(start.elapsed() < WAIT, "nobody listens");
            fail(&cx, &format!("sign-{at}"));
            if got.recv_timeout(Duration::from_millis(500)).is_ok() {
                break;
            }
        }
        Self { cx, stop, runtime }
    }

    fn end(self) {
        self.stop.cancel();
        self.runtime.shutdown_timeout(Duration::from_millis(100));
    }
}

/// A loop below one that is deleted fails for good.
fn fail(cx: &Context, id: &str) {
    let parent = format!("parent-of-{id}");
    done::<AddLoop>(cx, &json!({"kind": "ralph", "id": parent}));
    done::<AddLoop>(cx, &json!({"kind": "ralph", "id": id, "parent": parent}));
    done::<DeleteTask>(cx, &json!({"id": parent}));
}

fn next(got: &mpsc::Receiver<Got>) -> (String, Value, Vec<u8>) {
    let (head, body) = got.recv_timeout(WAIT).unwrap_or_else(|error| panic!("{error}"));
    (head, serde_json::from_slice(&body).unwrap_or_default(), body)
}

#[test]
fn a_signed_message_is_tried_until_it_is_taken() {
    let answers =
        &["500 Oh", "503 No", "307 Elsewhere\r\nlocation: http://169.254.169.254/secret", "204 Thanks"];
    let (url, got) = receiver(answers);
    let told = Told::begin(&json!([{"on": ["parked"], "url": url, "secret_env": "S"}]));
    add(&told.cx, "a");
    park(&told.cx, "a");
    let tries: Vec<_> = (0..4).map(|_| next(&got)).collect();
    for (head, message, body) in &tries {
        assert!(head.starts_with("post /hook http/1.1"), "a redirect is not followed: {head}");
        assert!(head.contains("x-rota-event: parked"), "{head}");
        assert!(
            head.contains(&format!("x-rota-signature: sha256={}", signature(&"hush".into(), body))),
            "{head}"
        );
        assert_eq!(message, &tries[0].1, "the same message each time");
    }
    let (message, reason) = (&tries[0].1, "needs \u{1b}[2J a key");
    assert_eq!(
        (&message["event"], &message["task"], &message["reason"]),
        (&json!("parked"), &json!("a"), &json!(reason))
    );
    // The next message comes after it, and the one before is not sent again.
    add(&told.cx, "b");
    park(&told.cx, "b");
    assert_eq!(next(&got).1["task"], "b");
    told.end();
}

#[test]
fn a_receiver_that_hangs_or_is_down_holds_up_nobody() {
    let (hangs, _keep) = receiver(&[""]);
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let gone = format!("http://{}", gone.unwrap_or_else(|error| panic!("{error}")));
    let (works, got) = receiver(&["200 OK"]);
    let told = Told::begin(&json!([
        {"on": ["parked"], "url": hangs},
        {"on": ["parked"], "url": gone},
        {"on": ["parked", "idle"], "url": works},
    ]));
    for at in 0..5 {
        add(&told.cx, &format!("t{at}"));
        park(&told.cx, &format!("t{at}"));
    }
    for at in 0..5 {
        assert_eq!(next(&got).1["task"], format!("t{at}"));
    }
    park(&told.cx, "open");
    assert_eq!(next(&got).1["task"], "open");
    assert_eq!(next(&got).1["event"], "idle", "nothing is left");
    told.end();
}

#[test]
fn a_command_reads_the_message() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let file = folder.path().join("told");
    let script = format!("cat > {0}.part && mv {0}.part {0}", file.display());
    let told = Told::begin(&json!([{"on": ["parked"], "run": ["sh", "-c", script]}]));
    add(&told.cx, "$(touch evil)");
    park(&told.cx, "$(touch evil)");
    let start = Instant::now();
    let text = loop {
        match std::fs::read_to_string(&file) {
            Ok(text) if !text.is_empty() => break text,
            _ => assert!(start.elapsed() < WAIT, "nothing was told"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap_or_default()["task"], "$(touch evil)");
    told.end();
}

#[test]
fn a_receiver_that_never_takes_it_is_given_up_on() {
    let (url, got) = receiver(&["500 No"]);
    let told = Told::begin(&json!([{"on": ["parked"], "url": url}]));
    for id in ["a", "b"] {
        add(&told.cx, id);
        park(&told.cx, id);
    }
    let tries: Vec<Value> = (0..2 * TRIES).map(|_| next(&got).1["task"].clone()).collect();
    let wanted: Vec<Value> = ["a", "b"].iter().flat_map(|id| vec![json!(id); TRIES as usize]).collect();
    assert_eq!(tries, wanted, "each so many times, the first before the second, and none for ever");
    add(&told.cx, "c");
    park(&told.cx, "c");
    assert_eq!(next(&got).1["task"], "c", "neither comes again");
    told.end();
}

/// An upstream that pushes back for seconds, and one that is used up for hours.
fn push_back(cx: &Context, upstream: &str, for_secs: u32) {
    let gate = json!({"initialBackoffSecs": for_secs, "maxBackoffSecs": for_secs});
    let policy = json!({"gate": gate}).to_string();
    let apply = ApplyPolicy { document: policy, unnamed: Unnamed::Replace };
    block_on(apply.run(cx)).unwrap_or_else(|error| panic!("{error}"));
    let call = Call::in_scope(&cx.scope);
    let limit = NoteLimit { call, upstream: upstream.to_owned(), began_at: None, retry_after_ms: None };
    block_on(cx.store.perform(&limit)).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn limits_quotas_and_violations_are_told() {
    let (url, got) = receiver(&["200 OK"]);
    let topics = ["rate_limited", "quota", "governance_violation", "parked"];
    let told = Told::begin(&json!([{"on": topics, "url": url}]));
    push_back(&told.cx, "anthropic", 60);
    let message = next(&got).1;
    assert_eq!(
        (&message["event"], &message["upstream"], &message["reason"]),
        (&json!("rate_limited"), &json!("anthropic"), &json!("rate limited"))
    );
    push_back(&told.cx, "openai", 3_600);
    let message = next(&got).1;
    assert_eq!((&message["event"], &message["upstream"]), (&json!("quota"), &json!("openai")));
    let violation = NoteViolation {
        call: Call::in_scope(&told.cx.scope),
        source: "local".to_owned(),
        message: "immutability: RULES.md was changed".to_owned(),
    };
    block_on(told.cx.store.perform(&violation)).unwrap_or_else(|error| panic!("{error}"));
    let message = next(&got).1;
    assert_eq!(
        (&message["event"], &message["task"], &message["reason"]),
        (&json!("governance_violation"), &json!("supervisor/local"), &json!(violation.message))
    );
    told.end();
}
