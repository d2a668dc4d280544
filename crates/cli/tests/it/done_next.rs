//! `rota task done ID --next`: settles a task and claims the next one in one transaction.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use expect_test::expect;
use serde_json::Value;

use crate::daemon::{everywhere, until};
use crate::mcp::client::Http;
use crate::support::Lab;

fn task(lab: &Lab, id: &str) -> Value {
    serde_json::from_str(&lab.line(&format!("task show {id} --json")).ok()).unwrap()
}

/// `done ID`, then the bytes of a claim; with nothing left a line on standard error and exit code 0.
#[test]
fn prints_the_settlement_and_then_the_claim() {
    everywhere(|lab| {
        lab.check(
            r#"
            @0 task create a A
            @0 task create b B --deps a -d "the second"
            @0 task claim --agent x
            @1 task done a --agent x --result '{"commit":"c1"}' --next
            @2 task done b --agent x --next
            @2 task done b --agent x --next
            @3 log
            "#,
            expect![[r#"
                $ @0 task create a A
                a
                $ @0 task create b B --deps a -d "the second"
                b
                $ @0 task claim --agent x
                ## Task a
                id: a
                title: A
                priority: 2
                status: active
                assignee: x
                lease_expires_at: 2026-01-01T00:10:00Z
                lease_id: lease-a-1
                retry_count: 0
                $ @1 task done a --agent x --result '{"commit":"c1"}' --next
                done a
                ## Task b
                id: b
                title: B
                priority: 2
                status: active
                assignee: x
                lease_expires_at: 2026-01-01T00:10:01Z
                lease_id: lease-b-1
                retry_count: 0
                description: the second
                deps: a
                blocker_results:
                - a: {"commit":"c1"}
                $ @2 task done b --agent x --next
                done b
                ! No eligible tasks
                $ @2 task done b --agent x --next
                ! error: task 'b' is not active (status: done)
                [1]
                $ @3 log
                2026-01-01T00:00:00.000Z      1  created a
                2026-01-01T00:00:00.000Z      2  created b
                2026-01-01T00:00:00.000Z      3  blocked b by a
                2026-01-01T00:00:00.000Z      4  granted a  open -> active  lease-a-1  @x
                2026-01-01T00:00:01.000Z      5  done a  active -> done  lease-a-1  @x
                2026-01-01T00:00:01.000Z      6  readied b  @x
                2026-01-01T00:00:01.000Z      7  granted b  open -> active  lease-b-1  @x
                2026-01-01T00:00:02.000Z      8  done b  active -> done  lease-b-1  @x
            "#]],
        );
    });
}

#[test]
fn as_json_the_claim_is_next() {
    everywhere(|lab| {
        lab.check(
            r#"
            @0 task create a A
            @0 task create b B --deps a
            @0 task claim a --agent x
            @1 task done a --agent x --result '{"commit":"c1"}' --next --json
            @2 task done b --agent x --next --json
            "#,
            expect![[r#"
                $ @0 task create a A
                a
                $ @0 task create b B --deps a
                b
                $ @0 task claim a --agent x
                ## Task a
                id: a
                title: A
                priority: 2
                status: active
                assignee: x
                lease_expires_at: 2026-01-01T00:10:00Z
                lease_id: lease-a-1
                retry_count: 0
                $ @1 task done a --agent x --result '{"commit":"c1"}' --next --json
                {
                  "schemaVersion": 1,
                  "id": "a",
                  "scope": "default",
                  "queue": "tasks",
                  "title": "A",
                  "status": "done",
                  "priority": 2,
                  "assignee": "x",
                  "fence": 1,
                  "attempts": 0,
                  "result": {
                    "commit": "c1"
                  },
                  "createdAt": "2026-01-01T00:00:00.000Z",
                  "updatedAt": "2026-01-01T00:00:01.000Z",
                  "startedAt": "2026-01-01T00:00:00.000Z",
                  "finishedAt": "2026-01-01T00:00:01.000Z",
                  "next": {
                    "id": "b",
                    "scope": "default",
                    "queue": "tasks",
                    "title": "B",
                    "status": "active",
                    "priority": 2,
                    "deps": [
                      "a"
                    ],
                    "assignee": "x",
                    "leaseId": "lease-b-1",
                    "leaseExpiresAt": "2026-01-01T00:10:01.000Z",
                    "fence": 1,
                    "attempts": 0,
                    "createdAt": "2026-01-01T00:00:00.000Z",
                    "updatedAt": "2026-01-01T00:00:01.000Z",
                    "startedAt": "2026-01-01T00:00:01.000Z",
                    "blockerResults": [
                      {
                        "id": "a",
                        "result": {
                          "commit": "c1"
                        }
                      }
                    ]
                  }
                }
                $ @2 task done b --agent x --next --json
                {
                  "schemaVersion": 1,
                  "id": "b",
                  "scope": "default",
                  "queue": "tasks",
                  "title": "B",
                  "status": "done",
                  "priority": 2,
                  "deps": [
                    "a"
                  ],
                  "assignee": "x",
                  "fence": 1,
                  "attempts": 0,
                  "createdAt": "2026-01-01T00:00:00.000Z",
                  "updatedAt": "2026-01-01T00:00:02.000Z",
                  "startedAt": "2026-01-01T00:00:01.000Z",
                  "finishedAt": "2026-01-01T00:00:02.000Z"
                }
                ! No eligible tasks
            "#]],
        );
    });
}

/// Whatever refuses the settlement, the free task stays free.
#[test]
fn a_refused_done_claims_nothing() {
    everywhere(|lab| {
        lab.line("@0 task create a A").ok();
        lab.line("@0 task claim a --agent x").ok();
        lab.line("@0 task create free F").ok();
        lab.line("@0 task create late L").ok();
        lab.line("@0 task claim late --agent x --lease 1").ok();
        lab.check_refused(
            r#"
            @5 task done a --agent y --next
            @5 task done a --lease-id lease-a-9 --next
            @5 task done a --next
            @5 task done free --agent x --next
            @5 task done nobody --agent x --next
            @5 task done a --agent x --result '{"sha":1}' --next
            @5 task done a --agent x --result '[]' --next
            @5 task done a --agent x --next --queue nowhere
            @5 task done a --agent x --next --category "a\nb"
            @5 task done a --agent x --next --lease soon
            "#,
            expect![[r#"
                $ @5 task done a --agent y --next
                ! error: agent 'y' is not the assignee of task 'a'
                !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:00Z
                [1]
                $ @5 task done a --lease-id lease-a-9 --next
                ! error: lease 'lease-a-9' is not the current lease of task 'a'
                !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:00Z
                [1]
                $ @5 task done a --next
                ! error: task 'a' is held by 'x': name the holder (--agent) or its lease (--lease-id)
                [1]
                $ @5 task done free --agent x --next
                ! error: task 'free' is not active (status: open)
                !   claim it first: rota task claim free
                [1]
                $ @5 task done nobody --agent x --next
                ! error: task 'nobody' not found
                !   see what there is: rota task list --all
                [2]
                $ @5 task done a --agent x --result '{"sha":1}' --next
                ! error: result JSON must include a 'commit' key
                [1]
                $ @5 task done a --agent x --result '[]' --next
                ! error: result JSON must be an object
                [1]
                $ @5 task done a --agent x --next --queue nowhere
                ! error: unknown queue 'nowhere' (known: issues, loops, runs, tasks)
                [1]
                $ @5 task done a --agent x --next --category "a\nb"
                ! error: category has the control character \n in 'a\nb'
                [1]
                $ @5 task done a --agent x --next --lease soon
                ! error: --lease must be a non-negative integer, got: soon
                ! Usage: rota task done [OPTIONS] <id>
                [1]
            "#]],
        );
        // The refusal of a late holder, whose lease another claim took back.
        lab.line("@6 task claim late --agent y").ok();
        lab.check_refused(
            "@7 task done late --agent x --lease-id lease-late-1 --next",
            expect![[r#"
            $ @7 task done late --agent x --lease-id lease-late-1 --next
            ! error: lease 'lease-late-1' is not the current lease of task 'late'
            !   it is held by 'y' under lease-late-2 until 2026-01-01T00:10:06Z
            [1]
        "#]],
        );
        lab.check_refused(
            "ROTA_STORE=http://127.0.0.1:1 ROTA_TOKEN=t task done a --agent x --next",
            expect![[r#"
            $ ROTA_STORE=http://127.0.0.1:1 ROTA_TOKEN=t task done a --agent x --next
            ! error: http://127.0.0.1:1: Connection refused (os error 111)
            [75]
        "#]],
        );
    });
}

/// The options of the claim mean nothing without it.
#[test]
fn options_of_the_claim_need_next() {
    everywhere(|lab| {
        lab.line("@0 task create a A").ok();
        lab.line("@0 task claim a --agent x").ok();
        lab.check_refused(
            r#"
            @1 task done a --agent x --lease 60
            @1 task done a --agent x --category c
            @1 task done a --agent x --specs '*.md'
            @1 task done a --agent x --queue tasks
            "#,
            expect![[r#"
                $ @1 task done a --agent x --lease 60
                ! error: --lease needs --next, which claims the next task
                [1]
                $ @1 task done a --agent x --category c
                ! error: --category needs --next, which claims the next task
                [1]
                $ @1 task done a --agent x --specs '*.md'
                ! error: --specs needs --next, which claims the next task
                [1]
                $ @1 task done a --agent x --queue tasks
                ! error: --queue needs --next, which claims the next task
                [1]
            "#]],
        );
    });
}

#[test]
fn takes_the_filters_of_a_claim() {
    everywhere(|lab| {
        lab.check(
            r#"
            @0 task create a A
            @0 task create first F -p 0
            @0 task create docs D -c docs
            @0 task create spec S -r login.md
            @0 task create mine M --queue mine
            @0 task claim a --agent x
            @1 task done a --agent x --next --category docs --lease 60
            @2 task done docs --agent x --next --specs 'log*,none' --json
            @3 task done spec --agent x --next --queue mine
            @4 task done mine --agent x --next --category none
            @4 task show first
            "#,
            expect![[r#"
                $ @0 task create a A
                a
                $ @0 task create first F -p 0
                first
                $ @0 task create docs D -c docs
                docs
                $ @0 task create spec S -r login.md
                spec
                $ @0 task create mine M --queue mine
                mine
                $ @0 task claim a --agent x
                ## Task a
                id: a
                title: A
                priority: 2
                status: active
                assignee: x
                lease_expires_at: 2026-01-01T00:10:00Z
                lease_id: lease-a-1
                retry_count: 0
                $ @1 task done a --agent x --next --category docs --lease 60
                done a
                ## Task docs
                id: docs
                title: D
                priority: 2
                status: active
                category: docs
                assignee: x
                lease_expires_at: 2026-01-01T00:01:01Z
                lease_id: lease-docs-1
                retry_count: 0
                $ @2 task done docs --agent x --next --specs 'log*,none' --json
                {
                  "schemaVersion": 1,
                  "id": "docs",
                  "scope": "default",
                  "queue": "tasks",
                  "title": "D",
                  "status": "done",
                  "priority": 2,
                  "category": "docs",
                  "assignee": "x",
                  "fence": 1,
                  "attempts": 0,
                  "createdAt": "2026-01-01T00:00:00.000Z",
                  "updatedAt": "2026-01-01T00:00:02.000Z",
                  "startedAt": "2026-01-01T00:00:01.000Z",
                  "finishedAt": "2026-01-01T00:00:02.000Z",
                  "next": {
                    "id": "spec",
                    "scope": "default",
                    "queue": "tasks",
                    "title": "S",
                    "status": "active",
                    "priority": 2,
                    "spec": "login.md",
                    "assignee": "x",
                    "leaseId": "lease-spec-1",
                    "leaseExpiresAt": "2026-01-01T00:10:02.000Z",
                    "fence": 1,
                    "attempts": 0,
                    "createdAt": "2026-01-01T00:00:00.000Z",
                    "updatedAt": "2026-01-01T00:00:02.000Z",
                    "startedAt": "2026-01-01T00:00:02.000Z"
                  }
                }
                $ @3 task done spec --agent x --next --queue mine
                done spec
                ## Task mine
                id: mine
                title: M
                priority: 2
                status: active
                assignee: x
                lease_expires_at: 2026-01-01T00:10:03Z
                lease_id: lease-mine-1
                retry_count: 0
                $ @4 task done mine --agent x --next --category none
                done mine
                ! No eligible tasks
                $ @4 task show first
                ID:          first
                Title:       F
                Status:      open
                Priority:    0
                Created:     2026-01-01T00:00:00Z
                Updated:     2026-01-01T00:00:00Z
            "#]],
        );
    });
}

/// A claim from a paused queue is granted nothing, and the settlement counts; a scope is not left.
#[test]
fn a_paused_queue_and_another_scope() {
    everywhere(|lab| {
        lab.check(
            r#"
            @0 task create a A
            @0 task create b B
            @0 task create c C --scope other
            @0 task claim a --agent x
            @0 queue pause tasks
            @1 task done a --agent x --next
            @1 queue resume tasks
            @1 task claim b --agent x
            @2 task done b --agent x --next
            @2 task list --scope other
            "#,
            expect![[r#"
                $ @0 task create a A
                a
                $ @0 task create b B
                b
                $ @0 task create c C --scope other
                c
                $ @0 task claim a --agent x
                ## Task a
                id: a
                title: A
                priority: 2
                status: active
                assignee: x
                lease_expires_at: 2026-01-01T00:10:00Z
                lease_id: lease-a-1
                retry_count: 0
                $ @0 queue pause tasks
                {
                  "schemaVersion": 1,
                  "queue": "tasks",
                  "paused": true
                }
                $ @1 task done a --agent x --next
                done a
                ! No eligible tasks
                $ @1 queue resume tasks
                {
                  "schemaVersion": 1,
                  "queue": "tasks",
                  "paused": false
                }
                $ @1 task claim b --agent x
                ## Task b
                id: b
                title: B
                priority: 2
                status: active
                assignee: x
                lease_expires_at: 2026-01-01T00:10:01Z
                lease_id: lease-b-1
                retry_count: 0
                $ @2 task done b --agent x --next
                done b
                ! No eligible tasks
                $ @2 task list --scope other
                ID                   P S        CAT   TITLE                               AGENT
                c                    2 open     -     C                                   -
            "#]],
        );
    });
}

/// The settlement makes room under a ceiling, and expired leases are reclaimed, as by a claim of its own.
#[test]
fn the_settlement_makes_room_for_the_claim() {
    everywhere(|lab| {
        std::fs::write(lab.path().join("one.json"), r#"{"queues":{"tasks":{"maxConcurrent":1}}}"#).unwrap();
        lab.line("policy apply one.json").ok();
        lab.check(
            r#"
            @0 task create a A
            @0 task create b B
            @0 task claim --agent x
            @0 task claim --agent y
            @1 task done a --agent x --next
            "#,
            expect![[r#"
                $ @0 task create a A
                a
                $ @0 task create b B
                b
                $ @0 task claim --agent x
                ## Task a
                id: a
                title: A
                priority: 2
                status: active
                assignee: x
                lease_expires_at: 2026-01-01T00:10:00Z
                lease_id: lease-a-1
                retry_count: 0
                $ @0 task claim --agent y
                ! No eligible tasks
                [2]
                $ @1 task done a --agent x --next
                done a
                ## Task b
                id: b
                title: B
                priority: 2
                status: active
                assignee: x
                lease_expires_at: 2026-01-01T00:10:01Z
                lease_id: lease-b-1
                retry_count: 0
            "#]],
        );
    });
}

/// Two agents that finish at the same time are granted different tasks.
#[test]
fn agents_that_finish_together_share_no_task() {
    everywhere(|lab| {
        const AGENTS: usize = 6;
        for number in 0..2 * AGENTS {
            lab.line(&format!("task create t{number:02} T")).ok();
        }
        for agent in 0..AGENTS {
            lab.line(&format!("task claim t{agent:02} --agent a{agent}")).ok();
        }
        let next = |agent: usize| -> String {
            let line = format!("task done t{agent:02} --agent a{agent} --next --json");
            let said: Value = serde_json::from_str(&lab.line(&line).ok()).unwrap();
            assert_eq!(said["next"]["assignee"], format!("a{agent}"), "{said}");
            said["next"]["id"].as_str().unwrap().to_owned()
        };
        let mut granted: Vec<String> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..AGENTS).map(|agent| scope.spawn(move || next(agent))).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        granted.sort();
        let free: Vec<String> = (AGENTS..2 * AGENTS).map(|number| format!("t{number:02}")).collect();
        assert_eq!(granted, free);
    });
}

/// A caller that hangs up while it waits: its settlement stays, and the claim is given back.
#[test]
fn a_caller_over_http_that_went_away_keeps_no_lease() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    lab.line("task create b B").ok();
    lab.line("task claim a --agent x").ok();
    let server = Http::serve(&lab, &[]);
    let writer = rusqlite::Connection::open(lab.database()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut caller = TcpStream::connect(&server.address).unwrap();
    let body = r#"{"next":true}"#;
    let request = format!(
        "POST /api/v1/tasks/a/done?agent=x HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        server.address,
        server.token,
        body.len()
    );
    caller.write_all(request.as_bytes()).unwrap();
    crate::mcp::ending::wait_for_writer(&lab);
    caller.shutdown(Shutdown::Write).unwrap();
    // The server closes its side when it has noticed.
    let mut said = Vec::new();
    caller.read_to_end(&mut said).unwrap();
    assert_eq!(String::from_utf8_lossy(&said), "");
    writer.execute_batch("ROLLBACK").unwrap();
    until("the task is settled", || task(&lab, "a")["status"] == "done");
    until("the claim is given back", || task(&lab, "b")["fence"] == 1 && task(&lab, "b")["status"] == "open");
    let log = lab.line("log --task b").ok();
    assert!(log.contains("granted") && log.contains("released"), "{log}");
    assert_eq!((&task(&lab, "b")["attempts"], &task(&lab, "a")["status"]), (&0.into(), &"done".into()));
}
