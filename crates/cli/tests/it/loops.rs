//! `rota loop`, `rota debug scheduler`, and `rota why` for loops.

use async_trait::async_trait;
use expect_test::expect;
use rota_core::transition::Command;
use rota_core::{Caller, UnixMillis};
use rota_store::intents::Call;
use rota_store::intents::claim::{Claim, Wanted};
use rota_store::intents::iterate::Begin;
use rota_store::intents::settle::Settle;
use rota_store::sqlite::SqliteStore;
use rota_store::{AnyTx, BlockRow, Intent, Outcome, Store, Tx};
use rota_testbed::block_on;

use crate::support::{Lab, at, check};

/// Begins the next iteration of the named loop at a time, as the daemon does, and returns the lease.
fn begin(lab: &Lab, seconds: u32, kind: &str) -> String {
    let claim = Claim {
        call: Call::in_scope("default").at(time(seconds)),
        queue: "loops".into(),
        limit: 1,
        agent: None,
        ttl_ms: None,
        wanted: Wanted::default(),
        host: Some("test-host".into()),
    };
    let begin = Begin::new(claim, vec![kind.into()], true);
    let granted = block_on(store(lab).perform(&begin)).unwrap();
    granted.granted[0].task.lease().unwrap().to_string()
}

fn step(lab: &Lab, seconds: u32, lease: &str, command: impl FnOnce(Caller) -> Command) {
    let lease = rota_core::LeaseId::parse(lease).unwrap();
    let call = Call::in_scope("default").at(time(seconds));
    let settle = Settle::one(call, lease.task.clone(), command(Caller::lease(lease)));
    block_on(store(lab).perform(&settle)).unwrap().steps.remove(0).unwrap();
}

fn store(lab: &Lab) -> SqliteStore {
    SqliteStore::open(&lab.database()).unwrap()
}

fn time(seconds: u32) -> UnixMillis {
    at(seconds).parse().unwrap()
}

fn done(caller: Caller) -> Command {
    Command::Done { caller, result: None }
}

/// The gate's block on an upstream.
struct Block(BlockRow);

#[async_trait]
impl Intent for Block {
    type Output = ();

    async fn run(&self, tx: &mut AnyTx) -> Outcome<()> {
        Ok(tx.set_block(&self.0).await?)
    }
}

#[test]
fn adding_and_listing() {
    let lab = Lab::new();
    std::fs::write(lab.path().join("idea.md"), "\n# A better wheel\nRound.\n").unwrap();
    lab.check(
        r#"
        @0 loop add --kind plan --id p/1 --prompt @idea.md
        @1 loop add --kind spec --id s --parent p/1 --title "The \e[1mspec" --priority high
        @2 loop add --kind ralph --id r --parent s --triggered-by artifacts/spec.md --priority 7 --prompt "do it"
        @2 loop add --kind odd --id "ünï.lock"
        @3 loop list
        @3 loop list --status pending --kind spec,ralph
        @3 loop list --status complete
        @3 loop list --kind spec --json
        @3 loop tree
        @3 loop tree s
        @3 loop show r
        @3 loop show p/1 --json
        "#,
        expect![[r##"
            $ @0 loop add --kind plan --id p/1 --prompt @idea.md
            p/1
            $ @1 loop add --kind spec --id s --parent p/1 --title "The \e[1mspec" --priority high
            s
            $ @2 loop add --kind ralph --id r --parent s --triggered-by artifacts/spec.md --priority 7 --prompt "do it"
            r
            $ @2 loop add --kind odd --id "ünï.lock"
            ünï.lock
            $ @3 loop list
            ID                   KIND   STATUS      P DEPTH ITER TITLE
            s                    spec   pending     1 1     0    The \u{1b}[1mspec
            ünï.lock             odd    pending     - 0     0    ünï.lock
            p/1                  plan   pending     - 0     0    # A better wheel
            r                    ralph  pending     7 2     0    do it
            $ @3 loop list --status pending --kind spec,ralph
            ID                   KIND   STATUS      P DEPTH ITER TITLE
            s                    spec   pending     1 1     0    The \u{1b}[1mspec
            r                    ralph  pending     7 2     0    do it
            $ @3 loop list --status complete
            $ @3 loop list --kind spec --json
            {
              "schemaVersion": 1,
              "total": 1,
              "loops": [
                {
                  "id": "s",
                  "scope": "default",
                  "queue": "loops",
                  "kind": "spec",
                  "title": "The \u001b[1mspec",
                  "status": "pending",
                  "priority": 1,
                  "parent": "p/1",
                  "depth": 1,
                  "fence": 0,
                  "attempts": 0,
                  "createdAt": "2026-01-01T00:00:01.000Z",
                  "updatedAt": "2026-01-01T00:00:01.000Z"
                }
              ]
            }
            $ @3 loop tree
            p/1 plan [pending] # A better wheel
              s spec [pending] The \u{1b}[1mspec
                r ralph [pending] do it
            ünï.lock odd [pending]
            $ @3 loop tree s
            s spec [pending] The \u{1b}[1mspec
              r ralph [pending] do it
            $ @3 loop show r
            ID:           r
            Title:        do it
            Kind:         ralph
            Status:       pending
            Priority:     7
            Parent:       s
            Depth:        2
            Triggered by: artifacts/spec.md
            Prompt:       do it
            Created:      2026-01-01T00:00:02Z
            Updated:      2026-01-01T00:00:02Z
            $ @3 loop show p/1 --json
            {
              "schemaVersion": 1,
              "id": "p/1",
              "scope": "default",
              "queue": "loops",
              "kind": "plan",
              "title": "# A better wheel",
              "status": "pending",
              "description": "\n# A better wheel\nRound.\n",
              "fence": 0,
              "attempts": 0,
              "readyAt": "2026-01-01T00:00:00.000Z",
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:00.000Z",
              "children": [
                {
                  "id": "s",
                  "kind": "spec",
                  "status": "pending",
                  "title": "The \u001b[1mspec"
                }
              ],
              "iterations": []
            }
        "##]],
    );
    let made_up = lab.line("loop add --kind ralph").ok();
    assert!(made_up.starts_with("ralph-") && made_up.len() == "ralph-0123456789abcdef\n".len(), "{made_up}");
    assert_ne!(lab.line("loop add --kind ralph").ok(), made_up);
    let fed = lab.feed("loop add --kind ralph --id fed --prompt @-", b"from a pipe\n");
    assert_eq!((fed.code, fed.stdout.as_str()), (0, "fed\n"), "{}", fed.stderr);
    assert!(lab.line("loop show fed").ok().contains("Title:        from a pipe\n"));
}

#[test]
fn what_cannot_be_added() {
    let lab = Lab::new();
    lab.line("loop add --kind plan --id p").ok();
    lab.check_refused(
        r#"
        loop add
        loop add --kind ""
        loop add --kind plan --id p
        loop add --kind plan --id a/../b
        loop add --kind spec --parent nobody
        loop add --kind spec --triggered-by /etc/passwd
        loop add --kind spec --triggered-by a/../../b
        loop add --kind spec --priority urgent
        loop add --kind spec --priority -1
        loop add --kind spec --prompt @nowhere.md
        loop add --kind spec extra
        loop list --status done
        loop list --status ,
        loop tree nobody
        loop show nobody
        loop cancel nobody
        loop reiterate p
        loop resume p
        loop move nobody
        loop config nobody
        loop
        loop fly
        debug
        debug everything
        "#,
        expect![[r#"
            $ loop add
            ! error: missing --kind
            ! Usage: rota loop add [OPTIONS] --kind <K>
            [1]
            $ loop add --kind ""
            ! error: kind is empty
            [1]
            $ loop add --kind plan --id p
            ! error: task 'p' already exists
            !   see it: rota task show p
            [1]
            $ loop add --kind plan --id a/../b
            ! error: task id 'a/../b' has the path step '..'
            [1]
            $ loop add --kind spec --parent nobody
            ! error: parent task 'nobody' not found
            [1]
            $ loop add --kind spec --triggered-by /etc/passwd
            ! error: --triggered-by must be a relative path without '..', got: /etc/passwd
            [1]
            $ loop add --kind spec --triggered-by a/../../b
            ! error: --triggered-by must be a relative path without '..', got: a/../../b
            [1]
            $ loop add --kind spec --priority urgent
            ! error: --priority must be critical, high, normal, low or a non-negative integer, got: urgent
            [1]
            $ loop add --kind spec --priority -1
            ! error: --priority must be critical, high, normal, low or a non-negative integer, got: -1
            [1]
            $ loop add --kind spec --prompt @nowhere.md
            ! error: --prompt @nowhere.md: No such file or directory (os error 2)
            [1]
            $ loop add --kind spec extra
            ! error: unexpected argument 'extra'
            ! Usage: rota loop add [OPTIONS] --kind <K>
            [1]
            $ loop list --status done
            ! error: unknown status 'done' (known: pending, running, paused, complete, failed, parked, invalidated, deleted)
            [1]
            $ loop list --status ,
            ! error: --status is empty
            [1]
            $ loop tree nobody
            ! error: task 'nobody' not found
            !   see what there is: rota loop list
            [2]
            $ loop show nobody
            ! error: task 'nobody' not found
            !   see what there is: rota loop list
            [2]
            $ loop cancel nobody
            ! error: task 'nobody' not found
            !   see what there is: rota loop list
            [2]
            $ loop reiterate p
            ! error: task 'p' cannot be reiterated (status: open); only done, parked, failed and invalidated tasks can
            [1]
            $ loop resume p
            ! error: task 'p' cannot be resumed (status: open); only paused tasks can
            [1]
            $ loop move nobody
            ! error: task 'nobody' not found
            !   see what there is: rota loop list
            [2]
            $ loop config nobody
            ! error: task 'nobody' not found
            !   see what there is: rota loop list
            [2]
            $ loop
            ! error: missing command
            ! Add loops, look at their trees, start over, give up, move
            ! 
            ! Usage: rota loop [OPTIONS] [COMMAND]
            ! 
            ! Commands:
            !   add        Add a loop
            !   list       List loops in the order they would run
            !   tree       Show loops below their parents
            !   show       Show one loop with its children and iterations
            !   reiterate  Start a finished or parked loop over; what is unfinished below it is invalidated
            !   cancel     Give up a loop and all below it that has not finished
            !   pause      Hold a loop back; a lease on it ends
            !   resume     Let a paused loop go on
            !   move       Hand the whole tree of a loop to a host that has its folders
            !   logs       Print what an iteration's agent and validation printed
            !   config     Show the settings of a loop, and where each comes from
            ! 
            ! Options:
            !   -h, --help  Print help
            ! 
            ! Common options:
            !       --store <STORE>     Where tasks are kept: sqlite:PATH, postgres://… or the http://… of a rota serve [env: ROTA_STORE] [default: <git root>/.rota/rota.db]
            !       --scope <SCOPE>     Namespace of tasks, queues and policy [env: ROTA_SCOPE] [default: default]
            !       --agent <NAME>      Who asks [env: ROTA_AGENT]
            !       --lease-id <LEASE>  The lease this call speaks for [env: ROTA_LEASE]
            !       --now <TIME>        Decide as if it were this time (RFC 3339)
            !       --config <FILE>     The configuration file [env: ROTA_CONFIG] [default: <git root>/rota.yml]
            !       --policy <FILE>     Where the copy of the policy is written [env: ROTA_POLICY] [default: rota.policy.json beside rota.yml]
            !       --json              Print JSON
            [1]
            $ loop fly
            ! error: unknown command 'fly'
            ! Usage: rota loop [OPTIONS] [COMMAND]
            [1]
            $ debug
            ! error: missing command
            ! Look inside
            ! 
            ! Usage: rota debug [OPTIONS] [COMMAND]
            ! 
            ! Commands:
            !   scheduler  List pending loops with their scores and what stands in their way
            ! 
            ! Options:
            !   -h, --help  Print help
            ! 
            ! Common options:
            !       --store <STORE>     Where tasks are kept: sqlite:PATH, postgres://… or the http://… of a rota serve [env: ROTA_STORE] [default: <git root>/.rota/rota.db]
            !       --scope <SCOPE>     Namespace of tasks, queues and policy [env: ROTA_SCOPE] [default: default]
            !       --agent <NAME>      Who asks [env: ROTA_AGENT]
            !       --lease-id <LEASE>  The lease this call speaks for [env: ROTA_LEASE]
            !       --now <TIME>        Decide as if it were this time (RFC 3339)
            !       --config <FILE>     The configuration file [env: ROTA_CONFIG] [default: <git root>/rota.yml]
            !       --policy <FILE>     Where the copy of the policy is written [env: ROTA_POLICY] [default: rota.policy.json beside rota.yml]
            !       --json              Print JSON
            [1]
            $ debug everything
            ! error: unknown command 'everything'
            ! Usage: rota debug [OPTIONS] [COMMAND]
            [1]
        "#]],
    );
}

/// An agent adds below its own loop with nothing but its environment; a late one adds nothing.
#[test]
fn children_of_an_iteration() {
    let lab = Lab::new();
    lab.line(&format!("--now {} loop add --kind plan --id p", at(0))).ok();
    let lease = begin(&lab, 1, "plan");
    assert_eq!(lease, "lease-p-1");
    lab.check(
        "
        @2 ROTA_LEASE=lease-p-1 loop add --kind spec --id s1 --parent p
        @2 loop add --kind spec --id by-hand --parent p
        @2 ROTA_LEASE=lease-p-2 loop add --kind spec --id late --parent p
        @2 ROTA_LEASE=lease-other-1 loop add --kind spec --id elsewhere --parent p
        @3 loop show s1
        @3 loop show p
        @3 debug scheduler
        ",
        expect![[r#"
            $ @2 ROTA_LEASE=lease-p-1 loop add --kind spec --id s1 --parent p
            s1
            $ @2 loop add --kind spec --id by-hand --parent p
            by-hand
            $ @2 ROTA_LEASE=lease-p-2 loop add --kind spec --id late --parent p
            ! error: lease 'lease-p-2' is not the current lease of task 'p'
            !   it is held by an agent without a name under lease-p-1 until 2026-01-01T00:02:01Z
            [1]
            $ @2 ROTA_LEASE=lease-other-1 loop add --kind spec --id elsewhere --parent p
            elsewhere
            $ @3 loop show s1
            ID:           s1
            Title:        s1
            Kind:         spec
            Status:       pending
            Parent:       p
            From:         iteration 1 of its parent
            Depth:        1
            Host:         test-host
            Created:      2026-01-01T00:00:02Z
            Updated:      2026-01-01T00:00:02Z
            $ @3 loop show p
            ID:           p
            Title:        p
            Kind:         plan
            Status:       running
            Depth:        0
            Host:         test-host
            Iteration:    1
            Tries:        1
            Lease:        lease-p-1
            Created:      2026-01-01T00:00:00Z
            Updated:      2026-01-01T00:00:01Z
            Children:
              s1 spec [pending] s1
              by-hand spec [pending] by-hand
              elsewhere spec [pending] elsewhere
            Iterations:
              1. 2026-01-01T00:00:01Z
            $ @3 debug scheduler
            ID          TYPE    PRIORITY  AGE    DEPTH  ITER  RUNNABLE
            s1          spec    70        0m     1      1     no (parent incomplete)
            by-hand     spec    70        0m     1      1     no (parent incomplete)
            elsewhere   spec    70        0m     1      1     no (parent incomplete)
        "#]],
    );
    step(&lab, 4, &lease, |caller| Command::Iterate { caller, reason: "exit code 1".into() });
    lab.check(
        "
        @5 loop tree
        @5 task reset s1
        @5 ROTA_LEASE=lease-p-1 loop add --kind spec --id s1 --parent p --title again
        @6 loop tree
        ",
        expect![[r#"
            $ @5 loop tree
            p plan [running]
              s1 spec [invalidated]
              by-hand spec [pending]
              elsewhere spec [pending]
            $ @5 task reset s1
            ! error: task 's1' cannot be reopened: it came from iteration 1 of its parent, which is now at 2
            [1]
            $ @5 ROTA_LEASE=lease-p-1 loop add --kind spec --id s1 --parent p --title again
            s1
            $ @6 loop tree
            p plan [running]
              s1 spec [pending] again
              by-hand spec [pending]
              elsewhere spec [pending]
        "#]],
    );
    step(&lab, 7, &lease, done);
    lab.check(
        "@8 loop show p\n@8 loop list",
        expect![[r#"
            $ @8 loop show p
            ID:           p
            Title:        p
            Kind:         plan
            Status:       complete
            Depth:        0
            Host:         test-host
            Iteration:    2
            Tries:        2
            Created:      2026-01-01T00:00:00Z
            Updated:      2026-01-01T00:00:07Z
            Children:
              s1 spec [pending] again
              by-hand spec [pending] by-hand
              elsewhere spec [pending] elsewhere
            Iterations:
              1. 2026-01-01T00:00:01Z to 2026-01-01T00:00:04Z (exit code 1)
              2. 2026-01-01T00:00:04Z to 2026-01-01T00:00:07Z done
            $ @8 loop list
            ID                   KIND   STATUS      P DEPTH ITER TITLE
            s1                   spec   pending     - 1     0    again
            by-hand              spec   pending     - 1     0    by-hand
            elsewhere            spec   pending     - 1     0    elsewhere
            p                    plan   complete    - 0     2    p
        "#]],
    );
}

#[test]
fn starting_over_giving_up_and_deleting() {
    let lab = Lab::new();
    lab.line(&format!("--now {} loop add --kind plan --id plan", at(0))).ok();
    let lease = begin(&lab, 1, "plan");
    for (id, parent) in [("s1", "plan"), ("s2", "plan"), ("p1", "s1")] {
        lab.line(&format!("--now {} loop add --kind spec --id {id} --parent {parent}", at(2))).ok();
    }
    step(&lab, 3, &lease, done);
    let running = begin(&lab, 4, "spec");
    lab.check(
        r#"
        @5 loop tree
        @5 loop move plan --host elsewhere
        @6 loop reiterate plan --reason "not good enough"
        @6 loop tree
        @7 loop reiterate plan
        @7 log --task plan -n 1
        @8 loop add --kind spec --id s3 --parent plan
        @8 loop add --kind phase --id p3 --parent s3
        @9 loop pause s3
        @9 loop resume s3
        @10 loop cancel s3 --json
        @11 loop cancel s3
        @12 loop move p3 --host elsewhere
        @12 why plan
        @13 task delete plan
        @13 loop tree
        @14 loop add --kind spec --id s4 --parent plan
        "#,
        expect![[r#"
            $ @5 loop tree
            plan plan [complete]
              s1 spec [running]
                p1 spec [pending]
              s2 spec [pending]
            $ @5 loop move plan --host elsewhere
            ! error: the tree of 'plan' cannot be moved while 's1' is running
            !   pause it first: rota loop pause s1
            [1]
            $ @6 loop reiterate plan --reason "not good enough"
            reiterated plan
            invalidated s1
            invalidated s2
            invalidated p1
            $ @6 loop tree
            plan plan [pending]
              s1 spec [invalidated]
                p1 spec [invalidated]
              s2 spec [invalidated]
            $ @7 loop reiterate plan
            ! error: task 'plan' cannot be reiterated (status: open); only done, parked, failed and invalidated tasks can
            [1]
            $ @7 log --task plan -n 1
            2026-01-01T00:00:06.000Z     10  reiterated plan  done -> open  "not good enough"
            $ @8 loop add --kind spec --id s3 --parent plan
            s3
            $ @8 loop add --kind phase --id p3 --parent s3
            p3
            $ @9 loop pause s3
            paused s3
            $ @9 loop resume s3
            resumed s3
            $ @10 loop cancel s3 --json
            {
              "schemaVersion": 1,
              "id": "s3",
              "scope": "default",
              "queue": "loops",
              "kind": "spec",
              "title": "s3",
              "status": "invalidated",
              "parent": "plan",
              "depth": 1,
              "fence": 0,
              "attempts": 0,
              "createdAt": "2026-01-01T00:00:08.000Z",
              "updatedAt": "2026-01-01T00:00:10.000Z",
              "finishedAt": "2026-01-01T00:00:10.000Z",
              "host": "test-host",
              "below": [
                "p3"
              ]
            }
            $ @11 loop cancel s3
            ! error: task 's3' cannot be cancelled (status: invalidated); only open, active, paused and parked tasks can
            [1]
            $ @12 loop move p3 --host elsewhere
            moved p3
            moved plan
            moved s3
            moved s2
            moved s1
            moved p1
            $ @12 why plan
            plan (loops, open) is not runnable

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way
              no  host      its folders are on host 'elsewhere'

            score:    40 (base +40, age +0, depth +0, retries +0)
            freed by: the daemon on 'elsewhere', or rota loop move plan
            $ @13 task delete plan
            deleted plan
            $ @13 loop tree
            plan plan [deleted]
              s1 spec [invalidated]
                p1 spec [invalidated]
              s2 spec [invalidated]
              s3 spec [invalidated]
                p3 phase [invalidated]
            $ @14 loop add --kind spec --id s4 --parent plan
            ! error: parent task 'plan' not found
            [1]
        "#]],
    );
    let late = rota_core::LeaseId::parse(&running).unwrap();
    let call = Call::in_scope("default").at(time(15));
    let settle = Settle::one(call, late.task.clone(), done(Caller::lease(late)));
    assert!(block_on(store(&lab).perform(&settle)).unwrap().steps.remove(0).is_err());
}

/// The rows of the table of 000, worked out by the binary.
#[test]
fn the_scheduler_table() {
    let lab = Lab::new();
    let minutes = |minutes: u32| 3_600 - minutes * 60;
    let add = |id: &str, kind: &str, age: u32, parent: &str| {
        let parent = if parent.is_empty() { String::new() } else { format!(" --parent {parent}") };
        lab.line(&format!("--now {} loop add --kind {kind} --id {id}{parent}", at(minutes(age)))).ok();
    };
    for (id, kind, parent) in [("plan", "plan", ""), ("spec", "spec", "plan"), ("phase", "phase", "spec")] {
        add(id, kind, 59, parent);
        let lease = begin(&lab, minutes(59) + 1, kind);
        step(&lab, minutes(59) + 2, &lease, done);
    }
    add("1737802000", "plan", 50, "");
    add("waiting", "spec", 50, "1737802000");
    add("1737802500", "phase", 30, "spec");
    add("1737802800", "ralph", 5, "phase");
    add("1737802700", "ralph", 2, "phase");
    // Four iterations that failed; the fifth waits.
    lab.line(&format!("--now {} task pause 1737802800", at(minutes(2)))).ok();
    let lease = begin(&lab, minutes(2) + 1, "ralph");
    let reason = || "exit code 1".to_owned();
    for _ in 0..3 {
        step(&lab, minutes(2) + 20, &lease, |caller| Command::Iterate { caller, reason: reason() });
    }
    step(&lab, minutes(2) + 40, &lease, |caller| Command::Yield { caller, reason: reason() });
    lab.line(&format!("--now {} task resume 1737802800", at(minutes(2) + 41))).ok();
    lab.check(
        "@3600 debug scheduler
        @3600 debug scheduler --json",
        expect![[r#"
            $ @3600 debug scheduler
            ID          TYPE    PRIORITY  AGE    DEPTH  ITER  RUNNABLE
            1737802800  ralph   135       5m     3      1     yes
            1737802500  phase   130       30m    2      1     yes
            waiting     spec    120       50m    1      1     no (parent incomplete)
            1737802700  ralph   112       2m     3      5     yes
            1737802000  plan    90        50m    0      1     yes
            $ @3600 debug scheduler --json
            {
              "schemaVersion": 1,
              "total": 5,
              "loops": [
                {
                  "id": "1737802800",
                  "kind": "ralph",
                  "priority": 135,
                  "terms": [
                    {
                      "name": "base",
                      "value": 100
                    },
                    {
                      "name": "age",
                      "value": 5
                    },
                    {
                      "name": "depth",
                      "value": 30
                    },
                    {
                      "name": "retries",
                      "value": 0
                    }
                  ],
                  "ageMs": 300000,
                  "depth": 3,
                  "iteration": 1,
                  "tries": 0,
                  "runnable": true,
                  "obstacles": []
                },
                {
                  "id": "1737802500",
                  "kind": "phase",
                  "priority": 130,
                  "terms": [
                    {
                      "name": "base",
                      "value": 80
                    },
                    {
                      "name": "age",
                      "value": 30
                    },
                    {
                      "name": "depth",
                      "value": 20
                    },
                    {
                      "name": "retries",
                      "value": 0
                    }
                  ],
                  "ageMs": 1800000,
                  "depth": 2,
                  "iteration": 1,
                  "tries": 0,
                  "runnable": true,
                  "obstacles": []
                },
                {
                  "id": "waiting",
                  "kind": "spec",
                  "priority": 120,
                  "terms": [
                    {
                      "name": "base",
                      "value": 60
                    },
                    {
                      "name": "age",
                      "value": 50
                    },
                    {
                      "name": "depth",
                      "value": 10
                    },
                    {
                      "name": "retries",
                      "value": 0
                    }
                  ],
                  "ageMs": 3000000,
                  "depth": 1,
                  "iteration": 1,
                  "tries": 0,
                  "runnable": false,
                  "obstacles": [
                    {
                      "reason": "parent_not_done",
                      "parent": "1737802000",
                      "status": "open"
                    }
                  ]
                },
                {
                  "id": "1737802700",
                  "kind": "ralph",
                  "priority": 112,
                  "terms": [
                    {
                      "name": "base",
                      "value": 100
                    },
                    {
                      "name": "age",
                      "value": 2
                    },
                    {
                      "name": "depth",
                      "value": 30
                    },
                    {
                      "name": "retries",
                      "value": -20
                    }
                  ],
                  "ageMs": 120000,
                  "depth": 3,
                  "iteration": 5,
                  "tries": 4,
                  "runnable": true,
                  "obstacles": []
                },
                {
                  "id": "1737802000",
                  "kind": "plan",
                  "priority": 90,
                  "terms": [
                    {
                      "name": "base",
                      "value": 40
                    },
                    {
                      "name": "age",
                      "value": 50
                    },
                    {
                      "name": "depth",
                      "value": 0
                    },
                    {
                      "name": "retries",
                      "value": 0
                    }
                  ],
                  "ageMs": 3000000,
                  "depth": 0,
                  "iteration": 1,
                  "tries": 0,
                  "runnable": true,
                  "obstacles": []
                }
              ]
            }
        "#]],
    );
}

/// What the configuration says bears on `why` and on the table: runners, hosts, upstreams, ceilings.
#[test]
fn why_knows_the_configuration() {
    let lab = Lab::new();
    lab.line(&format!("--now {} loop add --kind ralph --id r", at(0))).ok();
    lab.line(&format!("--now {} loop add --kind odd --id o", at(0))).ok();
    lab.check(
        "@60 why o\n@60 debug scheduler",
        expect![[r#"
            $ @60 why o
            o (loops, open) is runnable, but has to wait

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way
              ok  ceiling   nothing in the way
              no  order     it is number 2 in line, 'r' is next

            score:    61 (base +60, age +1, depth +0, retries +0)
            position: 2
            ahead:    r
            freed by: the tasks ahead being claimed
            earliest: 2026-01-01T00:01:00.000Z
            $ @60 debug scheduler
            ID          TYPE    PRIORITY  AGE    DEPTH  ITER  RUNNABLE
            r           ralph   101       1m     0      1     yes
            o           odd     61        1m     0      1     yes
        "#]],
    );
    let config = "loops: {ralph: {run: [agent], uses_api: anthropic}, odd: {max_iterations: 3}}\n";
    std::fs::write(lab.path().join("rota.yml"), config).unwrap();
    let block = |seconds: Option<u32>| {
        let row = BlockRow {
            upstream: "anthropic".into(),
            blocked_until: seconds.map(time),
            hits: 1,
            reason: None,
            updated_at: time(1),
        };
        block_on(store(&lab).perform(&Block(row))).unwrap();
    };
    block(Some(90));
    lab.check(
        "@60 why o
        @60 why r
        @90 why r --json
        @60 debug scheduler",
        expect![[r#"
            $ @60 why o
            o (loops, open) is not runnable

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way
              no  runner    nothing is configured to run kind 'odd'

            score:    61 (base +60, age +1, depth +0, retries +0)
            freed by: loops.odd.run in rota.yml
            $ @60 why r
            r (loops, open) is runnable, but has to wait

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way
              ok  ceiling   nothing in the way
              no  outside   'anthropic' is rate limited until 2026-01-01T00:01:30.000Z
              ok  order     nothing in the way

            score:    101 (base +100, age +1, depth +0, retries +0)
            position: 1
            freed by: time, or rota gate unblock
            earliest: 2026-01-01T00:01:30.000Z
            $ @90 why r --json
            {
              "schemaVersion": 1,
              "id": "r",
              "queue": "loops",
              "status": "open",
              "runnable": true,
              "checks": [
                {
                  "check": "status",
                  "ok": true,
                  "detail": "open"
                },
                {
                  "check": "queue",
                  "ok": true
                },
                {
                  "check": "blockers",
                  "ok": true
                },
                {
                  "check": "cooldown",
                  "ok": true
                },
                {
                  "check": "ceiling",
                  "ok": true
                },
                {
                  "check": "order",
                  "ok": true
                }
              ],
              "obstacles": [],
              "waits": [],
              "score": {
                "total": 101,
                "terms": [
                  {
                    "name": "base",
                    "value": 100
                  },
                  {
                    "name": "age",
                    "value": 1
                  },
                  {
                    "name": "depth",
                    "value": 0
                  },
                  {
                    "name": "retries",
                    "value": 0
                  }
                ]
              },
              "position": 1,
              "ahead": [],
              "earliest": "2026-01-01T00:01:30.000Z"
            }
            $ @60 debug scheduler
            ID          TYPE    PRIORITY  AGE    DEPTH  ITER  RUNNABLE
            r           ralph   101       1m     0      1     yes
            o           odd     61        1m     0      1     no (no runner)
        "#]],
    );
    block(None);
    lab.check(
        "@60 why r",
        expect![[r#"
        $ @60 why r
        r (loops, open) is runnable, but has to wait

          ok  status    open
          ok  queue     nothing in the way
          ok  blockers  nothing in the way
          ok  cooldown  nothing in the way
          ok  ceiling   nothing in the way
          no  outside   'anthropic' is blocked until somebody unblocks it
          ok  order     nothing in the way

        score:    101 (base +100, age +1, depth +0, retries +0)
        position: 1
        freed by: rota gate unblock
    "#]],
    );
    begin(&lab, 100, "ralph");
    lab.check(
        "@101 loop pause r
        @102 loop move r --host elsewhere
        @103 loop resume r
        @104 why r",
        expect![[r#"
            $ @101 loop pause r
            paused r
            $ @102 loop move r --host elsewhere
            moved r
            $ @103 loop resume r
            resumed r
            $ @104 why r
            r (loops, open) is not runnable

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way
              no  host      its folders are on host 'elsewhere'

            score:    101 (base +100, age +1, depth +0, retries +0)
            freed by: the daemon on 'elsewhere', or rota loop move r
        "#]],
    );
}

#[test]
fn settings_say_where_they_come_from() {
    let lab = Lab::new();
    let config = "concurrency: {max-loops: 4}\nrate_limit: {burst: 3}\n\
                  loops: {ralph: {run: [agent, '{prompt}'], validate: make test, env: {TOKEN: hunter2}}}\n";
    std::fs::write(lab.path().join("rota.yml"), config).unwrap();
    lab.line("loop add --kind ralph --id r").ok();
    let policy = r#"{"queues":{"loops":{"maxConcurrent":4}},"gate":{"recoveryPeriodSecs":9}}"#;
    std::fs::write(lab.path().join("policy.json"), policy).unwrap();
    lab.line("policy apply policy.json").ok();
    let shown = lab.line("loop config r").ok();
    assert!(!shown.contains("hunter2") && !lab.line("loop config r --json").ok().contains("hunter2"));
    expect![[r#"
        SETTING                                        VALUE                                                             FROM
        loops.ralph.run                                ["agent","{prompt}"]                                              rota.yml
        loops.ralph.validate                           "make test"                                                       rota.yml
        loops.ralph.max_iterations                     100                                                               default
        loops.ralph.timeout_secs                       3600                                                              default
        loops.ralph.worktree                           false                                                             default
        loops.ralph.keep_worktree_on_failure           false                                                             default
        loops.ralph.uses_api                           false                                                             default
        loops.ralph.env                                ["TOKEN"]                                                         rota.yml
        loops.ralph.pass_env                           ["PATH","HOME","USER","SHELL","LANG","LC_*","TERM","TMPDIR","TZ"] default
        loops.ralph.commits                            "required"                                                        default
        scheduler.poll_interval_secs                   1                                                                 default
        concurrency.max_worktrees                      50                                                                default
        disk.min_free_gb                               5                                                                 default
        shared_folder                                  false                                                             default
        scheduler.priority.ralph                       100                                                               default
        concurrency.per_type.ralph                     false                                                             default
        scheduler.priority.age_boost_per_minute        1                                                                 default
        scheduler.priority.age_boost_max               50                                                                default
        scheduler.priority.depth_boost_per_level       10                                                                default
        scheduler.priority.retry_penalty_per_iteration 5                                                                 default
        scheduler.priority.retry_penalty_max           30                                                                default
        scheduler.priority.starvation_guard_minutes    60                                                                default
        concurrency.max_loops                          4                                                                 rota.yml
        concurrency.max_api_calls                      10                                                                default
        rate_limit.max_requests_per_window             50                                                                default
        rate_limit.rate_window_secs                    60                                                                default
        rate_limit.burst                               10                                                                default (rota.yml says 3)
        rate_limit.priority_spread_secs                60                                                                default
        rate_limit.initial_backoff_secs                5                                                                 default
        rate_limit.max_backoff_secs                    120                                                               default
        rate_limit.recovery_period_secs                9                                                                 policy
        rate_limit.default_priority                    "normal"                                                          default
    "#]].assert_eq(&shown);
}

/// Nothing of a loop's words steers a terminal.
#[test]
fn hostile_words() {
    check(
        r#"
        @0 loop add --kind "k\bx" --id "a b" --title "\e[2J" --prompt "line\nline"
        @0 loop list
        @0 loop tree
        @0 loop show "a b"
        @0 debug scheduler
        "#,
        expect![[r#"
            $ @0 loop add --kind "k\bx" --id "a b" --title "\e[2J" --prompt "line\nline"
            a b
            $ @0 loop list
            ID                   KIND       STATUS      P DEPTH ITER TITLE
            a b                  k\u{202e}x pending     - 0     0    \u{1b}[2J
            $ @0 loop tree
            a b k\u{202e}x [pending] \u{1b}[2J
            $ @0 loop show "a b"
            ID:           a b
            Title:        \u{1b}[2J
            Kind:         k\u{202e}x
            Status:       pending
            Depth:        0
            Prompt:       line\nline
            Created:      2026-01-01T00:00:00Z
            Updated:      2026-01-01T00:00:00Z
            $ @0 debug scheduler
            ID          TYPE       PRIORITY  AGE    DEPTH  ITER  RUNNABLE
            a b         k\u{202e}x 60        0m     0      1     yes
        "#]],
    );
}
