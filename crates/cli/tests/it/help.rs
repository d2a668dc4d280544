//! Help, usage and unknown words. None of it needs or makes a store.

use expect_test::expect;

use crate::support::{Lab, check};

/// `rota task --help` and `-h` begin with the usage, list every verb, and say where the database is.
#[test]
fn help_of_task() {
    let lab = Lab::new();
    let help = lab.line("task --help").ok();
    assert_eq!(lab.line("task -h").ok(), help);
    expect![[r#"
        Usage: rota task <command> [options]

        Plan, claim and settle tasks

        Commands:
          create       Add an open task
          peek         Show the top claimable tasks, then all active ones; reads only
          claim        Claim the next task, or one by id
          renew        Extend the lease of a task
          done         Settle a task as done; --next also claims the next one
          fail         Settle a task as failed: an attempt is counted
          release      Give a task back; nothing is counted
          park         Park a task for a person
          reset        Open a parked, failed or invalidated task with its attempts forgotten
          pause        Hold a task back; a lease on it ends
          resume       Let a paused task go on
          undelete     Open a deleted task again
          block        Make a task wait for another
          unblock      Remove such an edge
          plan-sync    Make the backlog agree with a plan: JSONL on standard input, one transaction
          plan-status  Count tasks by state
          list         List tasks in the order they would run
          show         Show one task in full
          deps         Show a task's blockers as a tree
          attempts     Show every attempt at a task
          update       Change fields of a task that is not done
          delete       Delete one task, or many

          agent register    Register this process as an agent and print its id
          agent list        List running agents
          agent deregister  Say that an agent stopped

        Database: <git root>/.rota/rota.db (no repository: ./.rota/rota.db), or --store / ROTA_STORE

        Options:
              --store <STORE>     Where tasks are kept: sqlite:PATH, postgres://… or the http://… of a rota serve [env: ROTA_STORE] [default: <git root>/.rota/rota.db]
              --scope <SCOPE>     Namespace of tasks, queues and policy [env: ROTA_SCOPE] [default: default]
              --agent <NAME>      Who asks [env: ROTA_AGENT]
              --lease-id <LEASE>  The lease this call speaks for [env: ROTA_LEASE]
              --now <TIME>        Decide as if it were this time (RFC 3339)
              --config <FILE>     The configuration file [env: ROTA_CONFIG] [default: <git root>/rota.yml]
              --policy <FILE>     Where the copy of the policy is written [env: ROTA_POLICY] [default: rota.policy.json beside rota.yml]
              --json              Print JSON
          -h, --help              Print help
    "#]].assert_eq(&help);
    assert!(help.starts_with("Usage: rota task <command>"));
    assert!(help.contains("<git root>/.rota/rota.db"));
    for verb in [
        "create",
        "peek",
        "claim",
        "renew",
        "done",
        "fail",
        "release",
        "park",
        "reset",
        "pause",
        "resume",
        "undelete",
        "block",
        "unblock",
        "plan-sync",
        "plan-status",
        "list",
        "show",
        "deps",
        "attempts",
        "update",
        "delete",
        "agent register",
        "agent list",
        "agent deregister",
    ] {
        assert!(help.contains(&format!("\n  {verb} ")), "{verb}");
        let own = lab.line(&format!("task {verb} --help")).ok();
        assert!(own.contains(&format!("Usage: rota task {verb}")), "{own}");
    }
    assert_eq!(std::fs::read_dir(lab.path()).unwrap().count(), 0, "help made something");
}

/// `rota task` alone prints the help to standard error and exits 1.
#[test]
fn task_alone() {
    let lab = Lab::new();
    let ran = lab.line("task");
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert_eq!(ran.stderr, format!("error: missing command\n{}", lab.line("task --help").ok()));
    let alone = lab.run::<&str>(&[]);
    assert_eq!((alone.code, alone.stdout.as_str()), (1, ""));
    assert_eq!(alone.stderr, format!("error: missing command\n{}", lab.line("--help").ok()));
    assert_eq!(std::fs::read_dir(lab.path()).unwrap().count(), 0);
}

/// Usage is 1, never clap's 2; the words of the contract, and the usage line of the command meant.
#[test]
fn unknown_words() {
    let lab = Lab::new();
    lab.check(
        r#"
        bogus
        task bogus
        task plan-export
        task "bo\ngus"
        task agent bogus
        task list --bogus
        task list --bogus=1
        task list -x
        task --bogus list
        --bogus
        --store task task claim --lease
        task claim a b
        task list --store
        task list --now
        task list --queue a --queue b
        task help
        completions
        completions tcsh
        "#,
        expect![[r#"
            $ bogus
            ! error: unknown command 'bogus'
            ! Usage: rota [OPTIONS] [COMMAND]
            [1]
            $ task bogus
            ! error: unknown command 'bogus'
            ! Usage: rota task <command> [options]
            [1]
            $ task plan-export
            ! error: unknown command 'plan-export': use `rota task list --all`
            ! Usage: rota task <command> [options]
            [1]
            $ task "bo\ngus"
            ! error: unknown command 'bo\ngus'
            ! Usage: rota task <command> [options]
            [1]
            $ task agent bogus
            ! error: unknown agent subcommand 'bogus'
            ! Usage: rota task agent [OPTIONS] [COMMAND]
            [1]
            $ task list --bogus
            ! error: unknown flag '--bogus'
            ! Usage: rota task list [OPTIONS]
            [1]
            $ task list --bogus=1
            ! error: unknown flag '--bogus'
            ! Usage: rota task list [OPTIONS]
            [1]
            $ task list -x
            ! error: unknown flag '-x'
            ! Usage: rota task list [OPTIONS]
            [1]
            $ task --bogus list
            ! error: unknown flag '--bogus'
            ! Usage: rota task list [OPTIONS]
            [1]
            $ --bogus
            ! error: unknown flag '--bogus'
            ! Usage: rota [OPTIONS] [COMMAND]
            [1]
            $ --store task task claim --lease
            ! error: --lease requires a value
            ! Usage: rota task claim [OPTIONS] [id]
            [1]
            $ task claim a b
            ! error: unexpected argument 'b'
            ! Usage: rota task claim [OPTIONS] [id]
            [1]
            $ task list --store
            ! error: --store requires a value
            ! Usage: rota task list [OPTIONS]
            [1]
            $ task list --now
            ! error: --now requires a value
            ! Usage: rota task list [OPTIONS]
            [1]
            $ task list --queue a --queue b
            ! error: --queue is given twice
            ! Usage: rota task list [OPTIONS]
            [1]
            $ task help
            ! error: unknown command 'help'
            ! Usage: rota task <command> [options]
            [1]
            $ completions
            ! error: missing shell
            ! Usage: rota completions [OPTIONS] <shell>
            [1]
            $ completions tcsh
            ! error: unknown shell 'tcsh' (known: bash, elvish, fish, powershell, zsh)
            ! Usage: rota completions [OPTIONS] <shell>
            [1]
        "#]],
    );
    assert_eq!(std::fs::read_dir(lab.path()).unwrap().count(), 0, "a usage error made something");
}

/// A script for every shell, from the same definition.
#[test]
fn completions() {
    let lab = Lab::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = lab.line(&format!("completions {shell}")).ok();
        assert!(script.contains("plan-sync"), "{shell}");
    }
    assert_eq!(lab.line("--version").ok(), concat!("rota ", env!("CARGO_PKG_VERSION"), "\n"));
}

/// A value that looks like a flag is still the value of the flag before it.
#[test]
fn hyphens_in_values() {
    check(
        r#"
        @0 task create a A -d "--not-a-flag" -s '["-x"]'
        @0 task claim a --agent x
        @1 task fail a --agent x --reason "-1 of 3 passed"
        @1 task update a --title "-dashing"
        @1 task create -- b -B
        @1 task create -- -b B
        @1 task show a
        "#,
        expect![[r#"
            $ @0 task create a A -d "--not-a-flag" -s '["-x"]'
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
            description: --not-a-flag
            steps:
            - -x
            $ @1 task fail a --agent x --reason "-1 of 3 passed"
            failed a
            $ @1 task update a --title "-dashing"
            updated a
            $ @1 task create -- b -B
            b
            $ @1 task create -- -b B
            ! error: task id '-b' begins with '-'
            [1]
            $ @1 task show a
            ID:          a
            Title:       -dashing
            Status:      open
            Priority:    2
            Description: --not-a-flag
            Retries:     1
            Fail reason: -1 of 3 passed
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:01Z
            Steps:
              1. -x
        "#]],
    );
}
