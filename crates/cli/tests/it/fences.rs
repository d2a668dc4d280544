//! The fences around a held task: `update --status`, callers that name nobody, late workers (DESIGN 4, 13.9, 13.11, 13.28).

use expect_test::expect;
use serde_json::Value;

use crate::daemon::everywhere;
use crate::support::{Lab, check};

/// Everything a late worker or a stranger may try against the holder's lease, by `update --status` too.
const ATTACKS: &[&str] = &[
    "--lease-id lease-a-1 task done a",
    "--lease-id lease-a-1 task update a --status done",
    "--lease-id lease-a-1 task update a --status open",
    "--lease-id lease-a-1 task update a --status paused",
    "--lease-id lease-a-1 task update a --status deleted",
    "--lease-id lease-a-1 task update a --status done --force",
    "--agent slow task update a --status done",
    "--agent slow task update a --status open --title Mine",
    "task update a --status done",
    "task update a --status open",
    "task update a --status paused",
    "task update a --status deleted",
    "ROTA_LEASE=lease-a-1 task update a --status done",
    "ROTA_LEASE=lease-a-1 task update a --status done --force",
    "ROTA_LEASE=lease-a-2 task update a --status done --force",
    "ROTA_LEASE=lease-other-1 task update a --status paused --force",
    "task update a --force",
    "task update a --force --title T",
    "task renew a",
    "task done a",
    "task fail a",
    "task release a",
];

/// On both stores, by the command line and over HTTP: each is refused and changes nothing.
#[test]
fn nobody_but_the_holder_changes_a_held_task() {
    everywhere(attack);
    attack(&Lab::new().served());
}

fn attack(lab: &Lab) {
    lab.line("task create a A").ok();
    lab.line("@0 task claim a --agent slow").ok();
    lab.line("task claim a --agent fast").ok();
    let before = lab.export();
    for line in ATTACKS {
        let ran = lab.line(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{line}: {}", ran.stderr);
        assert_eq!(lab.export(), before, "{line}");
    }
    for (line, status) in [
        ("--agent fast task update a --status open", "open"),
        ("--lease-id lease-a-3 task update a --status paused", "paused"),
        ("ROTA_LEASE=lease-a-4 task update a --status deleted", "deleted"),
        ("task update a --status open --force", "open"),
        ("task update a --status paused --force", "paused"),
        ("task update a --status done --force", "done"),
    ] {
        lab.line(line).ok();
        let shown: Value = serde_json::from_str(&lab.line("task show a --json").ok()).unwrap();
        assert_eq!(shown["status"], status, "{line}");
        if status == "paused" || status == "deleted" {
            lab.line("task update a --status open").ok();
        }
        if status != "done" {
            lab.line("task claim a --agent fast").ok();
        }
    }
    let log = lab.line("log --task a --json").ok();
    assert_eq!(log.matches("a person's override (--force)").count(), 3, "{log}");
}

#[test]
fn a_forced_status_is_journalled() {
    check(
        r#"
        @0 task create a A
        @0 task claim a --agent x
        @1 task update a --status done
        @1 ROTA_LEASE=lease-a-1 task update a --status done --force
        @2 task update a --status paused --force
        @3 task attempts a
        @4 task done a --agent x
        "#,
        expect![[r#"
            $ @0 task create a A
            a
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
            $ @1 task update a --status done
            ! error: task 'a' is held by 'x': name the holder (--agent) or its lease (--lease-id)
            [1]
            $ @1 ROTA_LEASE=lease-a-1 task update a --status done --force
            ! error: --force is a person's override: it cannot be used under a lease
            [1]
            $ @2 task update a --status paused --force
            updated a
            $ @3 task attempts a
            LEASE        AGENT    STARTED              ENDED                OUTCOME  REASON
            lease-a-1    x        2026-01-01T00:00:00Z 2026-01-01T00:00:02Z released a person's override (--force)
            $ @4 task done a --agent x
            ! error: task 'a' is not active (status: paused)
            [1]
        "#]],
    );
}

/// `requireHolder: false` restores the behaviour of `002_…`: a caller that names nobody is accepted.
#[test]
fn a_queue_may_let_callers_through_that_name_nobody() {
    everywhere(|lab| {
        for id in ["a", "b"] {
            lab.line(&format!("task create {id} T")).ok();
            lab.line(&format!("task claim {id} --agent x")).ok();
        }
        let refused = lab.line("task done a");
        let wanted = "error: task 'a' is held by 'x': name the holder (--agent) or its lease (--lease-id)\n";
        assert_eq!((refused.code, refused.stderr.as_str()), (1, wanted));
        std::fs::write(lab.path().join("p.json"), r#"{"queues":{"tasks":{"requireHolder":false}}}"#).unwrap();
        assert_eq!(lab.line("policy apply p.json").code, 0);
        lab.line("task renew a").ok();
        lab.line("task done a").ok();
        lab.line("task update b --status open").ok();
    });
}

/// A worker whose lease expired, was reclaimed and not granted again is told so, and when.
#[test]
fn a_late_worker_that_nobody_replaced_is_told_when_its_lease_expired() {
    for lab in [Lab::new(), Lab::new().served()] {
        lab.line("task create a A").ok();
        lab.line("@0 task claim a --agent slow --lease 10").ok();
        lab.line("@8 task renew a --agent slow --lease 10").ok();
        lab.line("@30 sched reclaim --queue tasks").ok();
        let said = "error: task 'a' is not active (status: open)\n  lease-a-1 expired at 2026-01-01T00:00:18Z and was \
                    reclaimed; nobody has claimed 'a' since\n";
        for line in
            ["@40 task done a --agent slow", "@40 --lease-id lease-a-1 task renew a", "@40 task fail a"]
        {
            let ran = lab.line(line);
            assert_eq!((ran.code, ran.stderr.as_str()), (1, said), "{line}");
        }
        let other = lab.line("@40 task done a --agent other").stderr;
        assert!(other.contains("claim it first"), "{other}");
    }
}
