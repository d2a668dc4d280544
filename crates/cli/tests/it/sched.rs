//! `rota sched`: the life of a lease by policy, every payload and message of the contract.

use expect_test::expect;
use serde_json::Value;

use crate::support::{Lab, at, check};

fn json(lab: &Lab, line: &str) -> Value {
    serde_json::from_str(&lab.line(line).ok()).unwrap()
}

/// The payloads, byte for byte: plan, lease, renew, release, complete, reclaim, reset.
#[test]
fn every_payload() {
    check(
        r#"
        @0 queue add --id a --app review --repo /r
        @1 queue add --id b --repo /r --priority 5
        @2 sched plan
        @2 sched lease
        @3 sched plan --limit 5
        @4 sched renew lease-b-1
        @5 sched release lease-b-1
        @5 sched lease --limit 0
        @5 sched lease --limit 1
        @6 sched complete lease-b-2
        @7 sched lease
        @8 sched release lease-a-1 --failed --reason "no network"
        @8 queue show a
        @308 sched reclaim
        "#,
        expect![[r#"
            $ @0 queue add --id a --app review --repo /r
            {
              "schemaVersion": 1,
              "id": "a",
              "appId": "review",
              "repo": "/r",
              "priority": 100,
              "enqueuedAt": "2026-01-01T00:00:00.000Z",
              "status": "pending",
              "attempts": 0
            }
            $ @1 queue add --id b --repo /r --priority 5
            {
              "schemaVersion": 1,
              "id": "b",
              "repo": "/r",
              "priority": 5,
              "enqueuedAt": "2026-01-01T00:00:01.000Z",
              "status": "pending",
              "attempts": 0
            }
            $ @2 sched plan
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:02.000Z",
              "maxConcurrent": 1,
              "inFlight": 0,
              "available": 1,
              "leases": [
                {
                  "id": "b",
                  "leaseId": "lease-b-1",
                  "leaseExpiresAt": "2026-01-01T00:05:02.000Z",
                  "attempts": 0,
                  "priority": 5
                }
              ],
              "skipped": [
                {
                  "id": "a",
                  "reason": "concurrency-ceiling"
                }
              ]
            }
            $ @2 sched lease
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:02.000Z",
              "granted": 1,
              "leases": [
                {
                  "id": "b",
                  "leaseId": "lease-b-1",
                  "leaseExpiresAt": "2026-01-01T00:05:02.000Z",
                  "attempts": 0,
                  "priority": 5
                }
              ]
            }
            $ @3 sched plan --limit 5
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:03.000Z",
              "maxConcurrent": 1,
              "inFlight": 1,
              "available": 0,
              "leases": [],
              "skipped": [
                {
                  "id": "a",
                  "reason": "concurrency-ceiling"
                }
              ]
            }
            $ @4 sched renew lease-b-1
            {
              "schemaVersion": 1,
              "renewed": "lease-b-1",
              "leaseExpiresAt": "2026-01-01T00:05:04.000Z"
            }
            $ @5 sched release lease-b-1
            {
              "schemaVersion": 1,
              "released": "lease-b-1",
              "failed": false
            }
            $ @5 sched lease --limit 0
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:05.000Z",
              "granted": 0,
              "leases": []
            }
            $ @5 sched lease --limit 1
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:05.000Z",
              "granted": 1,
              "leases": [
                {
                  "id": "b",
                  "leaseId": "lease-b-2",
                  "leaseExpiresAt": "2026-01-01T00:05:05.000Z",
                  "attempts": 0,
                  "priority": 5
                }
              ]
            }
            $ @6 sched complete lease-b-2
            {
              "schemaVersion": 1,
              "completed": "lease-b-2"
            }
            $ @7 sched lease
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:07.000Z",
              "granted": 1,
              "leases": [
                {
                  "id": "a",
                  "leaseId": "lease-a-1",
                  "leaseExpiresAt": "2026-01-01T00:05:07.000Z",
                  "attempts": 0,
                  "priority": 100
                }
              ]
            }
            $ @8 sched release lease-a-1 --failed --reason "no network"
            {
              "schemaVersion": 1,
              "released": "lease-a-1",
              "failed": true
            }
            $ @8 queue show a
            {
              "schemaVersion": 1,
              "id": "a",
              "appId": "review",
              "repo": "/r",
              "priority": 100,
              "enqueuedAt": "2026-01-01T00:00:00.000Z",
              "status": "ready",
              "attempts": 1,
              "nextEligibleAt": "2026-01-01T00:00:09.000Z"
            }
            $ @308 sched reclaim
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:05:08.000Z",
              "reclaimed": []
            }
        "#]],
    );
}

/// Backoff 1, 2, 4, 8, 16, 32, 60, 60 s; the plan says `backoff` until the very end of each.
#[test]
fn waits_double_up_to_the_cap() {
    let lab = Lab::new();
    lab.line("queue add --id a --repo /r").ok();
    lab.line("sched policy set --maxAttempts 100").ok();
    let mut now = 0;
    for (attempt, wait) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
        let attempt = attempt + 1;
        let granted = json(&lab, &format!("@{now} sched lease"));
        assert_eq!(granted["leases"][0]["leaseId"], format!("lease-a-{attempt}"));
        assert_eq!(granted["leases"][0]["attempts"], attempt - 1);
        lab.line(&format!("@{now} sched release lease-a-{attempt} --failed")).ok();
        let entry = json(&lab, "queue show a");
        assert_eq!(entry["status"], "ready");
        assert_eq!(entry["nextEligibleAt"], at(now + wait).replace('Z', ".000Z"));
        let cooling = json(&lab, &format!("@{} sched plan", now + wait - 1));
        assert_eq!(cooling["skipped"][0]["reason"], "backoff", "attempt {attempt}");
        now += wait;
    }
}

/// Three failures park, with the reason and the count; only reset leads back, to ready and 0.
#[test]
fn the_budget_parks_and_reset_leads_back() {
    check(
        r#"
        queue add --id a --repo /r --now 2026-01-01T00:00:00Z
        @0 sched lease
        @0 sched release lease-a-1 --failed
        @1 sched lease
        @1 sched release lease-a-2 --failed
        @3 sched lease
        @3 sched release lease-a-3 --failed
        @3 queue show a
        @9999 sched plan
        @9999 sched lease
        @9999 sched reset a
        @9999 queue show a
        @9999 sched reset a
        @9999 sched reset nobody
        "#,
        expect![[r#"
            $ queue add --id a --repo /r --now 2026-01-01T00:00:00Z
            {
              "schemaVersion": 1,
              "id": "a",
              "repo": "/r",
              "priority": 100,
              "enqueuedAt": "2026-01-01T00:00:00.000Z",
              "status": "pending",
              "attempts": 0
            }
            $ @0 sched lease
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:00.000Z",
              "granted": 1,
              "leases": [
                {
                  "id": "a",
                  "leaseId": "lease-a-1",
                  "leaseExpiresAt": "2026-01-01T00:05:00.000Z",
                  "attempts": 0,
                  "priority": 100
                }
              ]
            }
            $ @0 sched release lease-a-1 --failed
            {
              "schemaVersion": 1,
              "released": "lease-a-1",
              "failed": true
            }
            $ @1 sched lease
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:01.000Z",
              "granted": 1,
              "leases": [
                {
                  "id": "a",
                  "leaseId": "lease-a-2",
                  "leaseExpiresAt": "2026-01-01T00:05:01.000Z",
                  "attempts": 1,
                  "priority": 100
                }
              ]
            }
            $ @1 sched release lease-a-2 --failed
            {
              "schemaVersion": 1,
              "released": "lease-a-2",
              "failed": true
            }
            $ @3 sched lease
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:03.000Z",
              "granted": 1,
              "leases": [
                {
                  "id": "a",
                  "leaseId": "lease-a-3",
                  "leaseExpiresAt": "2026-01-01T00:05:03.000Z",
                  "attempts": 2,
                  "priority": 100
                }
              ]
            }
            $ @3 sched release lease-a-3 --failed
            {
              "schemaVersion": 1,
              "released": "lease-a-3",
              "failed": true
            }
            $ @3 queue show a
            {
              "schemaVersion": 1,
              "id": "a",
              "repo": "/r",
              "priority": 100,
              "enqueuedAt": "2026-01-01T00:00:00.000Z",
              "status": "parked",
              "attempts": 3,
              "parkedReason": "released as failed (attempt 3/3)"
            }
            $ @9999 sched plan
            {
              "schemaVersion": 1,
              "now": "2026-01-01T02:46:39.000Z",
              "maxConcurrent": 1,
              "inFlight": 0,
              "available": 1,
              "leases": [],
              "skipped": [
                {
                  "id": "a",
                  "reason": "parked"
                }
              ]
            }
            $ @9999 sched lease
            {
              "schemaVersion": 1,
              "now": "2026-01-01T02:46:39.000Z",
              "granted": 0,
              "leases": []
            }
            $ @9999 sched reset a
            {
              "schemaVersion": 1,
              "reset": "a"
            }
            $ @9999 queue show a
            {
              "schemaVersion": 1,
              "id": "a",
              "repo": "/r",
              "priority": 100,
              "enqueuedAt": "2026-01-01T00:00:00.000Z",
              "status": "ready",
              "attempts": 0
            }
            $ @9999 sched reset a
            ! error: No parked entry to reset: a
            [1]
            $ @9999 sched reset nobody
            ! error: No parked entry to reset: nobody
            [1]
        "#]],
    );
}

/// A given reason is kept with the count, a lost lease has its own words.
#[test]
fn why_an_entry_is_parked() {
    let lab = Lab::new();
    lab.line("sched policy set --maxAttempts 1 --maxConcurrent 9 --leaseTtlMs 1000").ok();
    for id in ["said", "silent", "lost"] {
        lab.line(&format!("@0 queue add --id {id} --repo /r")).ok();
    }
    assert_eq!(json(&lab, "@0 sched lease")["granted"], 3);
    lab.line("@0 sched release lease-said-1 --failed --reason 'tests fail'").ok();
    lab.line("@0 sched release lease-silent-1 --failed").ok();
    let reclaimed = json(&lab, "@1 sched reclaim");
    assert_eq!(reclaimed["reclaimed"], serde_json::json!(["lost"]));
    for (id, reason) in [
        ("said", "tests fail (attempt 1/1)"),
        ("silent", "released as failed (attempt 1/1)"),
        ("lost", "lease expired (host did not complete) (attempt 1/1)"),
    ] {
        let entry = json(&lab, &format!("queue show {id}"));
        assert_eq!((&entry["status"], &entry["parkedReason"]), (&"parked".into(), &reason.into()));
    }
}

/// An expired lease counts and is skipped as `leased` until it is reclaimed; that counts one attempt, a clean release
/// none.
#[test]
fn expired_leases_count_until_reclaimed() {
    let lab = Lab::new();
    for id in ["a", "b"] {
        lab.line(&format!("@0 queue add --id {id} --repo /r")).ok();
    }
    lab.line("@0 sched lease").ok();
    lab.line("@1 sched release lease-a-1").ok();
    assert_eq!(json(&lab, "queue show a")["attempts"], 0);
    lab.line("@1 sched lease").ok();
    let plan = json(&lab, "@301 sched plan");
    assert_eq!(
        (&plan["inFlight"], &plan["available"], &plan["leases"]),
        (&1.into(), &0.into(), &Value::Array(vec![]))
    );
    assert_eq!(plan["skipped"][0], serde_json::json!({"id": "a", "reason": "leased"}));
    assert_eq!(plan["skipped"][1], serde_json::json!({"id": "b", "reason": "concurrency-ceiling"}));
    assert_eq!(json(&lab, "@301 sched lease")["granted"], 0);
    assert_eq!(json(&lab, "@301 sched reclaim")["reclaimed"], serde_json::json!(["a"]));
    assert_eq!(json(&lab, "@301 sched reclaim")["reclaimed"], serde_json::json!([]));
    let entry = json(&lab, "queue show a");
    assert_eq!((&entry["status"], &entry["attempts"]), (&"ready".into(), &1.into()));
    // b is free, a cools down for a second.
    assert_eq!(json(&lab, "@301 sched lease")["leases"][0]["id"], "b");
}

/// Priority, then time, then insertion; two plans at one now are equal to the byte and change nothing; a now before
/// everything works.
#[test]
fn plans_are_ordered_deterministic_and_read_only() {
    let lab = Lab::new();
    lab.line("sched policy set --maxConcurrent 3").ok();
    for line in [
        "@9 queue add --id late --repo /r",
        "@5 queue add --id first --repo /r",
        "@5 queue add --id second --repo /r",
        "@9 queue add --id urgent --repo /r --priority 1",
    ] {
        lab.line(line).ok();
    }
    let exported = |lab: &Lab| lab.line("export").ok();
    let before = exported(&lab);
    for now in ["@10", "@0", "--now 1990-01-01T00:00:00+02:00"] {
        let line = format!("{now} sched plan");
        let line = if now.starts_with('@') { line } else { format!("sched plan {now}") };
        let plan = lab.line(&line).ok();
        assert_eq!(plan, lab.line(&line).ok());
        let plan: Value = serde_json::from_str(&plan).unwrap();
        let ids: Vec<&str> =
            plan["leases"].as_array().unwrap().iter().map(|lease| lease["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["urgent", "first", "second"], "{now}");
        assert_eq!(plan["skipped"], serde_json::json!([{"id": "late", "reason": "concurrency-ceiling"}]));
    }
    assert_eq!(exported(&lab), before, "a plan leaves no trace");
    let granted = json(&lab, "@0 sched lease");
    assert_eq!(granted["leases"][0]["leaseExpiresAt"], "2026-01-01T00:05:00.000Z");
}

/// A plan needs no right to write: it runs on a connection that has none.
#[test]
fn a_plan_takes_a_connection_that_cannot_write() {
    let lab = Lab::new();
    lab.line("@0 queue add --id a --repo /r").ok();
    let connection = rusqlite::Connection::open(lab.database()).unwrap();
    // Whoever writes now waits half a minute; a plan does not even queue.
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(json(&lab, "@1 sched plan")["leases"][0]["id"], "a");
    // Any write at all would be an error.
    connection.execute_batch("ROLLBACK").unwrap();
    for table in ["tasks", "journal", "queues", "policies"] {
        for event in ["INSERT", "UPDATE", "DELETE"] {
            let trigger = format!(
                "CREATE TRIGGER no_{event}_{table} BEFORE {event} ON {table} BEGIN SELECT raise(ABORT, 'written'); END"
            );
            connection.execute_batch(&trigger).unwrap();
        }
    }
    assert_eq!(json(&lab, "@1 sched plan")["leases"][0]["id"], "a");
    let refused = lab.line("@1 sched lease");
    assert!(refused.code == 1 && refused.stderr.contains("written"), "{}", refused.stderr);
}

/// Lowering the ceiling revokes nothing and grants nothing until below; lowering the budget parks at the next failure;
/// raising it changes nothing by itself.
#[test]
fn rules_change_under_way() {
    let lab = Lab::new();
    lab.line("sched policy set --maxConcurrent 3").ok();
    for id in ["a", "b", "c", "d"] {
        lab.line(&format!("@0 queue add --id {id} --repo /r")).ok();
    }
    assert_eq!(json(&lab, "@0 sched lease")["granted"], 3);
    lab.line("sched policy set --maxConcurrent 1").ok();
    let plan = json(&lab, "@1 sched plan");
    assert_eq!(
        (&plan["inFlight"], &plan["available"], &plan["maxConcurrent"]),
        (&3.into(), &0.into(), &1.into())
    );
    lab.line("@1 sched renew lease-a-1").ok();
    lab.line("@1 sched complete lease-a-1").ok();
    assert_eq!(json(&lab, "@1 sched lease")["granted"], 0, "two are held");
    lab.line("@1 sched complete lease-b-1").ok();
    assert_eq!(json(&lab, "@1 sched lease")["granted"], 0, "one is held");
    lab.line("@1 sched release lease-c-1 --failed").ok();
    assert_eq!(json(&lab, "@1 sched lease")["leases"][0]["id"], "d");
    // c has one attempt of three; with a budget of one the next failure parks it, not the change.
    lab.line("sched policy set --maxAttempts 1 --maxConcurrent 2").ok();
    assert_eq!(json(&lab, "queue show c")["status"], "ready");
    assert_eq!(json(&lab, "@9 sched lease")["leases"][0]["id"], "c");
    lab.line("@9 sched release lease-c-2 --failed").ok();
    let entry = json(&lab, "queue show c");
    assert_eq!(entry["parkedReason"], "released as failed (attempt 2/1)");
    lab.line("sched policy set --maxAttempts 9").ok();
    assert_eq!(json(&lab, "queue show c")["status"], "parked");
    assert_eq!(json(&lab, "@99 sched lease")["granted"], 0);
}

/// Whatever cannot be done is one line, exit code 1, and changes nothing.
#[test]
fn what_is_refused() {
    let lab = Lab::new();
    lab.line("@0 queue add --id a --repo /r").ok();
    lab.line("@0 queue add --id b --repo /r").ok();
    lab.line("@0 task create t T").ok();
    lab.line("@0 task claim t --agent x").ok();
    lab.line("@0 sched lease").ok();
    lab.line("@0 sched release lease-a-1").ok();
    lab.line("@0 sched lease").ok();
    lab.check_refused(
        r#"
        @1 sched renew lease-a-1
        @1 sched complete lease-a-1
        @1 sched release lease-a-1
        @1 sched release lease-a-1 --failed
        @1 sched complete lease-a-3
        @1 sched complete lease-b-1
        @1 sched complete lease-nobody-1
        @1 sched complete nonsense
        @1 sched release nonsense
        @1 sched complete lease-a-02
        @1 --scope other sched complete lease-a-2
        @1 task done t --lease-id lease-a-2
        @1 sched reset a
        @1 sched plan --queue nope
        @1 sched lease --queue nope
        @1 sched reclaim --queue nope
        sched plan --now tomorrow
        sched lease --now 2026-01-01
        sched plan --limit abc
        sched lease --limit -1
        sched lease --limit 1.5
        sched lease --limit
        sched policy set --maxConcurrent abc
        sched policy set --maxConcurrent
        sched policy set --maxConcurrent --maxAttempts 3
        sched policy set --maxConcurrent 0
        sched policy set --maxConcurrent 1.5
        sched policy set --maxAttempts -1
        sched policy set --leaseTtlMs 0
        sched policy set --backoffFactor 0.5
        sched policy set --backoffCapMs 10
        sched policy set --maxConcurrency 3
        sched policy set
        sched policy sat
        sched complete
        sched reset
        sched
        sched frobnicate
        --json sched lease --limit abc
        "#,
        expect![[r#"
            $ @1 sched renew lease-a-1
            ! error: No active lease to renew: lease-a-1
            [1]
            $ @1 sched complete lease-a-1
            ! error: No active lease to complete: lease-a-1
            [1]
            $ @1 sched release lease-a-1
            ! error: No active lease to release: lease-a-1
            [1]
            $ @1 sched release lease-a-1 --failed
            ! error: No active lease to release: lease-a-1
            [1]
            $ @1 sched complete lease-a-3
            ! error: No active lease to complete: lease-a-3
            [1]
            $ @1 sched complete lease-b-1
            ! error: No active lease to complete: lease-b-1
            [1]
            $ @1 sched complete lease-nobody-1
            ! error: No active lease to complete: lease-nobody-1
            [1]
            $ @1 sched complete nonsense
            ! error: No active lease to complete: nonsense
            [1]
            $ @1 sched release nonsense
            ! error: No active lease to release: nonsense
            [1]
            $ @1 sched complete lease-a-02
            ! error: No active lease to complete: lease-a-02
            [1]
            $ @1 --scope other sched complete lease-a-2
            ! error: No active lease to complete: lease-a-2
            [1]
            $ @1 task done t --lease-id lease-a-2
            ! error: lease 'lease-a-2' is not the current lease of task 't'
            !   it is held by 'x' under lease-t-1 until 2026-01-01T00:10:00Z
            [1]
            $ @1 sched reset a
            ! error: No parked entry to reset: a
            [1]
            $ @1 sched plan --queue nope
            ! error: unknown queue 'nope' (known: issues, loops, runs, tasks)
            [1]
            $ @1 sched lease --queue nope
            ! error: unknown queue 'nope' (known: issues, loops, runs, tasks)
            [1]
            $ @1 sched reclaim --queue nope
            ! error: unknown queue 'nope' (known: issues, loops, runs, tasks)
            [1]
            $ sched plan --now tomorrow
            ! error: --now: 'tomorrow' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)
            [1]
            $ sched lease --now 2026-01-01
            ! error: --now: '2026-01-01' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)
            [1]
            $ sched plan --limit abc
            ! error: Invalid --limit "abc": expected a number (e.g. --limit 4)
            [1]
            $ sched lease --limit -1
            ! error: Invalid --limit "-1": expected a number (e.g. --limit 4)
            [1]
            $ sched lease --limit 1.5
            ! error: Invalid --limit "1.5": expected a number (e.g. --limit 4)
            [1]
            $ sched lease --limit
            ! error: --limit requires a value (e.g. --limit 4)
            [1]
            $ sched policy set --maxConcurrent abc
            ! error: Invalid --maxConcurrent "abc": expected a number (e.g. --maxConcurrent 4)
            [1]
            $ sched policy set --maxConcurrent
            ! error: --maxConcurrent requires a value (e.g. --maxConcurrent 4)
            [1]
            $ sched policy set --maxConcurrent --maxAttempts 3
            ! error: --maxConcurrent requires a value (e.g. --maxConcurrent 4)
            [1]
            $ sched policy set --maxConcurrent 0
            ! error: maxConcurrent: expected a whole number from 1 to 1000000, got 0
            [1]
            $ sched policy set --maxConcurrent 1.5
            ! error: maxConcurrent: expected a whole number from 1 to 1000000, got 1.5
            [1]
            $ sched policy set --maxAttempts -1
            ! error: maxAttempts: expected a whole number from 1 to 1000000, got -1
            [1]
            $ sched policy set --leaseTtlMs 0
            ! error: leaseTtlMs: expected a whole number from 1 to 31536000000, got 0
            [1]
            $ sched policy set --backoffFactor 0.5
            ! error: backoffFactor: expected a number from 1 to 1000 with at most three decimals, got 0.5
            [1]
            $ sched policy set --backoffCapMs 10
            ! error: backoffCapMs: expected at least backoffBaseMs (1000), got 10
            [1]
            $ sched policy set --maxConcurrency 3
            ! error: unknown flag '--maxConcurrency'
            [1]
            $ sched policy set
            ! error: missing a rule to set (e.g. --maxConcurrent 4)
            [1]
            $ sched policy sat
            ! error: unknown command 'sat'
            [1]
            $ sched complete
            ! error: missing lease ID
            [1]
            $ sched reset
            ! error: missing entry ID
            [1]
            $ sched
            ! error: missing command (plan, lease, renew, complete, release, reclaim, reset, policy)
            [1]
            $ sched frobnicate
            ! error: unknown command 'frobnicate'
            [1]
            $ --json sched lease --limit abc
            ! error: Invalid --limit "abc": expected a number (e.g. --limit 4)
            [1]
        "#]],
    );
}
