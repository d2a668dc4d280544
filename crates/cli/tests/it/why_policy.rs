//! Rules of a policy on queues that have none by default: `rota task` keeps them, and `rota why` tells each in words.

use expect_test::expect;

use crate::support::Lab;

fn publish(lab: &Lab, document: &str) {
    std::fs::write(lab.path().join("p.json"), document).unwrap();
    lab.line("@0 policy apply p.json").ok();
}

/// Backoff, ceiling, budget and park on queue `tasks`: claims go by them, and why says until when.
#[test]
fn tasks_by_a_policy() {
    let lab = Lab::new();
    publish(
        &lab,
        r#"{"queues":{"tasks":{"maxConcurrent":1,"maxAttempts":2,"leaseTtlMs":60000,
            "backoff":{"baseMs":10000,"factor":3,"capMs":60000}}}}"#,
    );
    lab.check(
        r#"
        @0 task create a A
        @0 task create b B
        @1 task claim --agent x
        @1 task claim --agent y
        @1 why b
        @2 task fail a --agent x --reason "no network"
        @2 why a
        @3 task claim a --agent x
        @11 task claim --agent y
        @12 task claim a --agent x
        @71 why b
        @71 task claim --agent x
        @71 why b
        @72 task fail a --agent x
        @72 why a
        @72 task claim a
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task create b B
            b
            $ @1 task claim --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:01:01Z
            lease_id: lease-a-1
            retry_count: 0
            $ @1 task claim --agent y
            ! No eligible tasks
            [2]
            $ @1 why b
            b (tasks, open) is runnable, but has to wait

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way
              no  ceiling   its queue is full (1 of 1 leases held)
              ok  order     nothing in the way

            position: 1
            freed by: a lease being settled, or a higher ceiling
            $ @2 task fail a --agent x --reason "no network"
            failed a
            $ @2 why a
            a (tasks, open) is not runnable

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              no  cooldown  it cools down until 2026-01-01T00:00:12Z

            freed by: time
            earliest: 2026-01-01T00:00:12.000Z
            $ @3 task claim a --agent x
            ! Task not eligible
            !   it cools down until 2026-01-01T00:00:12Z
            [2]
            $ @11 task claim --agent y
            ## Task b
            id: b
            title: B
            priority: 2
            status: active
            assignee: y
            lease_expires_at: 2026-01-01T00:01:11Z
            lease_id: lease-b-1
            retry_count: 0
            $ @12 task claim a --agent x
            ! Task not eligible
            !   its queue is full (1 of 1 leases held)
            [2]
            $ @71 why b
            b (tasks, active) is not runnable

              no  status    its lease expired at 2026-01-01T00:01:11Z and was not reclaimed yet
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way

            freed by: rota sched reclaim --queue tasks
            $ @71 task claim --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:02:11Z
            lease_id: lease-a-2
            retry_count: 1
            last_failure: no network
            $ @71 why b
            b (tasks, open) is not runnable

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              no  cooldown  it cools down until 2026-01-01T00:01:21Z

            freed by: time
            earliest: 2026-01-01T00:01:21.000Z
            $ @72 task fail a --agent x
            failed a
            $ @72 why a
            a (tasks, parked) is not runnable

              no  status    it is parked: released as failed (attempt 2/2)
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way

            freed by: rota task reset a
            $ @72 task claim a
            ! Task not eligible
            !   it is parked
            [2]
        "#]],
    );
}

/// Expired leases on a queue that reclaims on demand, counts that are off, and a kind that is full.
#[test]
fn loops_and_others_by_a_policy() {
    let lab = Lab::new();
    publish(
        &lab,
        r#"{"queues":{"loops":{"perKind":{"plan":1},"leaseTtlMs":1000,"reclaim":"explicit"},
            "mine":{"counts":{"failed":true,"lost":false},"maxAttempts":1,"leaseTtlMs":1000}}}"#,
    );
    for (id, kind) in [("p1", "plan"), ("p2", "plan"), ("r1", "ralph")] {
        lab.line(&format!("@0 queue add --id {id} --app {kind} --repo /r --queue loops")).ok();
    }
    lab.line("@0 task create m M --queue mine").ok();
    lab.check(
        r#"
        @0 sched lease --queue loops --limit 2 --json
        @0 why p2
        @9 why r1
        @9 sched plan --queue loops
        @9 sched reclaim --queue loops
        @9 why r1
        @0 task claim --queue mine
        @9 task claim --queue mine
        @9 task fail m --reason "it broke"
        @9 why m
        "#,
        expect![[r#"
            $ @0 sched lease --queue loops --limit 2 --json
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:00.000Z",
              "granted": 2,
              "leases": [
                {
                  "id": "r1",
                  "leaseId": "lease-r1-1",
                  "leaseExpiresAt": "2026-01-01T00:00:01.000Z",
                  "attempts": 0,
                  "priority": 2
                },
                {
                  "id": "p1",
                  "leaseId": "lease-p1-1",
                  "leaseExpiresAt": "2026-01-01T00:00:01.000Z",
                  "attempts": 0,
                  "priority": 2
                }
              ]
            }
            $ @0 why p2
            p2 (loops, open) is runnable, but has to wait

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way
              no  ceiling   kind 'plan' is full (1 of 1 leases held)
              ok  order     nothing in the way

            score:    40 (base +40, age +0, depth +0, retries +0)
            position: 1
            freed by: a lease being settled, or a higher ceiling
            $ @9 why r1
            r1 (loops, active) is not runnable

              no  status    its lease expired at 2026-01-01T00:00:01Z and was not reclaimed yet
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way

            score:    100 (base +100, age +0, depth +0, retries +0)
            freed by: rota sched reclaim --queue loops
            $ @9 sched plan --queue loops
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:09.000Z",
              "maxConcurrent": 50,
              "inFlight": 2,
              "available": 48,
              "leases": [],
              "skipped": [
                {
                  "id": "p1",
                  "reason": "leased"
                },
                {
                  "id": "p2",
                  "reason": "concurrency-ceiling"
                },
                {
                  "id": "r1",
                  "reason": "leased"
                }
              ]
            }
            $ @9 sched reclaim --queue loops
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:09.000Z",
              "reclaimed": [
                "p1",
                "r1"
              ]
            }
            $ @9 why r1
            r1 (loops, open) is not runnable

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              no  cooldown  it cools down until 2026-01-01T00:00:10Z

            score:    100 (base +100, age +0, depth +0, retries +0)
            freed by: time
            earliest: 2026-01-01T00:00:10.000Z
            $ @0 task claim --queue mine
            ## Task m
            id: m
            title: M
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:00:01Z
            lease_id: lease-m-1
            retry_count: 0
            $ @9 task claim --queue mine
            ## Task m
            id: m
            title: M
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:00:10Z
            lease_id: lease-m-2
            retry_count: 0
            last_failure: lease expired (host did not complete)
            $ @9 task fail m --reason "it broke"
            failed m
            $ @9 why m
            m (mine, parked) is not runnable

              no  status    it is parked: it broke (attempt 1/1)
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way

            freed by: rota task reset m
        "#]],
    );
}
