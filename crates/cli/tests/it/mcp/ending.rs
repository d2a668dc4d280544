//! How calls and servers end: what was acknowledged stays, what nobody waits for any more is given back.

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::{Http, Pipes, tell};
use crate::support::Lab;

/// A backlog of one task, claimed by `me` where wanted, and a connection that keeps every writer waiting.
fn busy(claimed: bool) -> (Lab, Connection) {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    if claimed {
        lab.line("task claim a --agent me").ok();
    }
    let other = Connection::open(lab.database()).unwrap();
    (lab, other)
}

fn status(lab: &Lab) -> String {
    let shown: Value = serde_json::from_str(&lab.line("task show a --json").ok()).unwrap();
    shown["status"].as_str().unwrap().to_owned()
}

/// Sends a call that waits for the store, and waits until the server has taken it in: it reads messages in order.
fn call_and_be_heard(client: &mut Pipes, tool: &str, arguments: &Value) -> u64 {
    let id = client.send("tools/call", json!({"name": tool, "arguments": arguments}));
    client.ask("ping", json!({}));
    id
}

/// Waits until a writer has its turn and so stands before the database that the other connection keeps.
pub fn wait_for_writer(lab: &Lab) {
    let turn = std::fs::File::open(lab.path().join(".rota/rota.db-turn")).unwrap();
    while turn.try_lock().is_ok() {
        turn.unlock().unwrap();
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_call_under_way_is_answered_when_the_client_closes_its_side() {
    let (lab, other) = busy(true);
    let mut client = Pipes::start(&lab, &[]);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let id = call_and_be_heard(&mut client, "rota_task_done", &json!({"id": "a", "agent": "me"}));
    client.close_input();
    other.execute_batch("ROLLBACK").unwrap();
    let (rest, code) = client.end();
    assert_eq!((rest.len(), &rest[0]["id"], code), (1, &json!(id), Some(0)), "{rest:?}");
    assert_eq!(rest[0]["result"]["structuredContent"]["status"], "done");
    assert_eq!(status(&lab), "done");
}

#[test]
fn a_call_under_way_is_answered_at_term_and_int() {
    for signal in [Signal::TERM, Signal::INT] {
        let (lab, other) = busy(true);
        let mut client = Pipes::start(&lab, &[]);
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let id = call_and_be_heard(&mut client, "rota_task_done", &json!({"id": "a", "agent": "me"}));
        tell(&client.child, signal);
        other.execute_batch("ROLLBACK").unwrap();
        let (rest, code) = client.end();
        assert_eq!((rest.len(), &rest[0]["id"], code), (1, &json!(id), Some(0)), "{rest:?}");
        assert_eq!(status(&lab), "done");
    }
}

/// A claim that was cancelled while it waited is granted to nobody: it is given back, and no answer comes.
#[test]
fn a_cancelled_claim_is_given_back() {
    let (lab, other) = busy(false);
    let mut client = Pipes::start(&lab, &[]);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let id = call_and_be_heard(&mut client, "rota_task_claim", &json!({"agent": "me"}));
    wait_for_writer(&lab);
    client
        .write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    client.ask("ping", json!({}));
    other.execute_batch("ROLLBACK").unwrap();
    client.close_input();
    let (rest, code) = client.end();
    assert_eq!((rest, code), (vec![], Some(0)), "no answer to what was cancelled");
    assert_eq!(status(&lab), "open");
    let log = lab.line("log --task a").ok();
    assert!(log.contains("granted") && log.contains("released"), "{log}");
}

/// A cancelled `done` with `next` that is carried out all the same settles the task and keeps no claim.
#[test]
fn a_cancelled_done_gives_back_the_next_claim() {
    let (lab, other) = busy(true);
    lab.line("task create b B").ok();
    let mut client = Pipes::start(&lab, &[]);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let arguments = json!({"id": "a", "agent": "me", "next": true});
    let id = call_and_be_heard(&mut client, "rota_task_done", &arguments);
    wait_for_writer(&lab);
    client
        .write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    client.ask("ping", json!({}));
    other.execute_batch("ROLLBACK").unwrap();
    client.close_input();
    let (rest, code) = client.end();
    assert_eq!((rest, code), (vec![], Some(0)), "no answer to what was cancelled");
    assert_eq!(status(&lab), "done");
    let log = lab.line("log --task b").ok();
    assert!(log.contains("granted") && log.contains("released"), "{log}");
}

/// Nobody said anything yet.
#[test]
fn a_server_that_nobody_greets_ends() {
    let lab = Lab::new();
    assert_eq!(lab.line("mcp").ok(), "");
    let server = Http::start(&lab, &[]);
    assert_eq!(server.end(Signal::TERM), Some(0));
    let mut server = Http::start(&lab, &[]);
    server.shake_hands();
    assert_eq!(server.end(Signal::INT), Some(0));
}

/// What is no message is refused, and the next one is served.
#[test]
fn noise_does_not_stop_the_server() {
    let lab = Lab::new();
    let mut client = Pipes::start(&lab, &[]);
    client.write(&json!("noise"));
    let id = client.send("ping", json!({}));
    let answer = loop {
        let message = client.next().unwrap();
        if message["id"] == json!(id) {
            break message;
        }
    };
    assert_eq!(answer["result"], json!({}), "{answer}");
}
