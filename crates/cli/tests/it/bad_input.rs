//! What comes from outside and cannot be used: a clear `error:` line, the right exit code, nothing changed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use expect_test::expect;

use crate::support::{Lab, check};

fn some_tasks() -> Lab {
    let lab = Lab::new();
    lab.transcript(
        r#"
        @0 task create a A
        @0 task create b B --deps a
        @1 task claim a --agent x
        "#,
    );
    lab
}

/// Ids with control characters, `../`, a leading dash, on every verb that takes one.
#[test]
fn ids_that_cannot_be() {
    some_tasks().check_refused(
        r#"
        task create "a\nb" T
        task create "a\e[2Jb" T
        task create ../etc T
        task create a/../b T
        task create -- -x T
        task create x T --deps "a\tb"
        task create x T --deps ../a
        task show "a\nb"
        task claim "a\nb"
        task done ../a
        task block a --by "\e"
        task update "\n" --title T
        task delete "\n"
        task deps "\n"
        task attempts "\n"
        why "\n"
        log --task "\n"
        "#,
        expect![[r#"
            $ task create "a\nb" T
            ! error: task id has the control character \n in 'a\nb'
            [1]
            $ task create "a\e[2Jb" T
            ! error: task id has the control character \u{1b} in 'a\u{1b}[2Jb'
            [1]
            $ task create ../etc T
            ! error: task id '../etc' has the path step '..'
            [1]
            $ task create a/../b T
            ! error: task id 'a/../b' has the path step '..'
            [1]
            $ task create -- -x T
            ! error: task id '-x' begins with '-'
            [1]
            $ task create x T --deps "a\tb"
            ! error: task id has the control character \t in 'a\tb'
            [1]
            $ task create x T --deps ../a
            ! error: task id '../a' has the path step '..'
            [1]
            $ task show "a\nb"
            ! error: task id has the control character \n in 'a\nb'
            [1]
            $ task claim "a\nb"
            ! error: task id has the control character \n in 'a\nb'
            [1]
            $ task done ../a
            ! error: task id '../a' has the path step '..'
            [1]
            $ task block a --by "\e"
            ! error: task id has the control character \u{1b} in '\u{1b}'
            [1]
            $ task update "\n" --title T
            ! error: task id has the control character \n in '\n'
            [1]
            $ task delete "\n"
            ! error: task id has the control character \n in '\n'
            [1]
            $ task deps "\n"
            ! error: task id has the control character \n in '\n'
            [1]
            $ task attempts "\n"
            ! error: task id has the control character \n in '\n'
            [1]
            $ why "\n"
            ! error: task id has the control character \n in '\n'
            [1]
            $ log --task "\n"
            ! error: task id has the control character \n in '\n'
            [1]
        "#]],
    );
}

/// Unknown ids, wrong holders, states that do not allow it, cycles.
#[test]
fn refusals_change_nothing() {
    some_tasks().check_refused(
        r#"
        task show nobody
        task done nobody
        task done a --agent y
        task renew a --agent y
        task fail a --lease-id lease-a-2
        task release a --lease-id lease-b-1
        task done b
        task create a Again
        task block a --by b
        task block b --by b
        task unblock a --by b
        task resume a
        task reset a
        task undelete a
        task update a --status failed
        task agent deregister ffff
        task list --queue nope
        task done a --result '{"commit":'
        task done a --result '{}'
        "#,
        expect![[r#"
            $ task show nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ task done nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ task done a --agent y
            ! error: agent 'y' is not the assignee of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:01Z
            [1]
            $ task renew a --agent y
            ! error: agent 'y' is not the assignee of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:01Z
            [1]
            $ task fail a --lease-id lease-a-2
            ! error: lease 'lease-a-2' is not the current lease of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:01Z
            [1]
            $ task release a --lease-id lease-b-1
            ! error: lease 'lease-b-1' is not the current lease of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:01Z
            [1]
            $ task done b
            ! error: task 'b' is not active (status: open)
            !   claim it first: rota task claim b
            [1]
            $ task create a Again
            ! error: task 'a' already exists
            !   see it: rota task show a
            [1]
            $ task block a --by b
            ! error: a -> b -> a would be a cycle
            [1]
            $ task block b --by b
            ! error: b -> b would be a cycle
            [1]
            $ task unblock a --by b
            ! error: dependency not found
            [2]
            $ task resume a
            ! error: task 'a' cannot be resumed (status: active); only paused tasks can
            [1]
            $ task reset a
            ! error: task 'a' cannot be reset (status: active); only parked, failed and invalidated tasks can
            [1]
            $ task undelete a
            ! error: task 'a' cannot be undeleted (status: active); only deleted tasks can
            [1]
            $ task update a --status failed
            ! error: --status takes open, paused, done or deleted, got: failed
            [1]
            $ task agent deregister ffff
            ! error: agent 'ffff' not found
            [2]
            $ task list --queue nope
            ! error: unknown queue 'nope' (known: issues, loops, runs, tasks)
            [1]
            $ task done a --result '{"commit":'
            ! error: --result is not JSON: EOF while parsing a value at line 1 column 10
            [1]
            $ task done a --result '{}'
            ! error: result JSON must include a 'commit' key
            [1]
        "#]],
    );
}

/// Times are RFC 3339 and nothing else.
#[test]
fn times_that_are_none() {
    some_tasks().check_refused(
        r#"
        task list --now tomorrow
        task create x X --now 2026-01-01
        task claim --now "2026-01-01T00:00:00"
        task done a --now 1767225600
        task peek --now ""
        task create x X --after "2026-13-01T00:00:00Z"
        why a --now "\e[31mred"
        log --now never
        "#,
        expect![[r#"
            $ task list --now tomorrow
            ! error: --now: 'tomorrow' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)
            ! Usage: rota task list [OPTIONS]
            [1]
            $ task create x X --now 2026-01-01
            ! error: --now: '2026-01-01' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task claim --now "2026-01-01T00:00:00"
            ! error: --now: '2026-01-01T00:00:00' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)
            ! Usage: rota task claim [OPTIONS] [id]
            [1]
            $ task done a --now 1767225600
            ! error: --now: '1767225600' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)
            ! Usage: rota task done [OPTIONS] <id>
            [1]
            $ task peek --now ""
            ! error: --now: '' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)
            ! Usage: rota task peek [OPTIONS]
            [1]
            $ task create x X --after "2026-13-01T00:00:00Z"
            ! error: --after: '2026-13-01T00:00:00Z' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ why a --now "\e[31mred"
            ! error: --now: '\u{1b}[31mred' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)
            ! Usage: rota why [OPTIONS] <id>
            [1]
            $ log --now never
            ! error: --now: 'never' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)
            ! Usage: rota log [OPTIONS]
            [1]
        "#]],
    );
}

/// Other forms of RFC 3339 are fine, and the time of a verb is the one given.
#[test]
fn times_that_are() {
    check(
        r#"
        --now 2026-01-01T02:00:00+02:00 task create a A
        --now "2026-01-01 00:00:01.5z" task create b B
        task list --json --now 1999-12-31T23:59:59Z
        --now 1999-12-31T23:59:59Z task claim a
        "#,
        expect![[r#"
            $ --now 2026-01-01T02:00:00+02:00 task create a A
            a
            $ --now "2026-01-01 00:00:01.5z" task create b B
            b
            $ task list --json --now 1999-12-31T23:59:59Z
            {
              "schemaVersion": 1,
              "total": 2,
              "tasks": [
                {
                  "id": "a",
                  "scope": "default",
                  "queue": "tasks",
                  "title": "A",
                  "status": "open",
                  "priority": 2,
                  "fence": 0,
                  "attempts": 0,
                  "readyAt": "2026-01-01T00:00:00.000Z",
                  "createdAt": "2026-01-01T00:00:00.000Z",
                  "updatedAt": "2026-01-01T00:00:00.000Z"
                },
                {
                  "id": "b",
                  "scope": "default",
                  "queue": "tasks",
                  "title": "B",
                  "status": "open",
                  "priority": 2,
                  "fence": 0,
                  "attempts": 0,
                  "readyAt": "2026-01-01T00:00:01.500Z",
                  "createdAt": "2026-01-01T00:00:01.500Z",
                  "updatedAt": "2026-01-01T00:00:01.500Z"
                }
              ]
            }
            $ --now 1999-12-31T23:59:59Z task claim a
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            lease_expires_at: 2000-01-01T00:09:59Z
            lease_id: lease-a-1
            retry_count: 0
        "#]],
    );
}

/// Far beyond the limits: refused by length, the message does not repeat it.
#[test]
fn too_long() {
    let lab = some_tasks();
    let before = lab.export();
    let long = "x".repeat(10_000);
    let title = "x".repeat(100_000);
    for arguments in [
        ["task", "create", &long, "T"],
        ["task", "create", "x", &title],
        ["task", "show", &long, "--json"],
        ["task", "list", "--scope", &long],
        ["task", "claim", "--agent", &long],
        ["task", "claim", "--category", &long],
        ["task", "create", "--queue", &long],
    ] {
        let ran = lab.run(&arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.len() < 300, "{}", ran.stderr);
    }
    expect![[r#"
        error: task id is 10000 bytes long, at most 256 are allowed
    "#]]
    .assert_eq(&lab.run(&["task", "create", &long, "T"]).stderr);
    let longest = "y".repeat(256);
    assert_eq!(lab.run(&["task", "done", &longest]).code, 2, "256 bytes may be an id");
    assert_eq!(lab.export(), before);
}

/// Arguments and variables that are no UTF-8.
#[test]
fn invalid_utf8_in_arguments_and_variables() {
    let lab = some_tasks();
    let before = lab.export();
    let broken = OsString::from_vec(b"a\xff".to_vec());
    for position in 1..7 {
        let mut arguments: Vec<OsString> =
            ["task", "create", "x", "T", "-d", "text", "--category"].iter().map(OsString::from).collect();
        arguments.push("c".into());
        arguments[position] = broken.clone();
        let ran = lab.run(&arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{position}");
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    }
    for name in ["ROTA_STORE", "ROTA_SCOPE", "ROTA_AGENT", "ROTA_LEASE", "ROTA_CONFIG", "ROTA_HOST"] {
        let output = lab.command().args(["task", "claim", "b"]).env(name, &broken).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {stderr}");
        assert_eq!(
            stderr,
            format!("error: {name} is not valid UTF-8\nUsage: rota task claim [OPTIONS] [id]\n")
        );
    }
    assert_eq!(lab.export(), before);
}

/// Z8: titles, reasons and results are shown on one line, escaped, and never interpreted.
#[test]
fn hostile_texts_are_shown_escaped() {
    let lab = Lab::new();
    lab.check(
        r#"
        @0 task create esc "\e[2Jcleared\n## Task fake" -c "c$(id)" -d "`rm`\b\t" -s '["$(reboot)","; rm -rf /"]'
        @0 task create bidi "\bdesrever"
        @0 task create flag "F" --ref "--upload-pack=x"
        @0 task create ref "R" --ref "<!-- do this -->"
        @1 task list
        @1 task peek
        @1 task claim esc --agent "$(whoami)"
        @2 task fail esc --agent "$(whoami)" --reason "\e]0;title\n! error: forged"
        @3 task claim esc --agent "\e"
        @3 task show esc
        @3 task deps esc
        @3 task block ref --by esc
        @3 task block ref --by bidi
        @3 task deps ref
        @3 task park esc --reason "\bx"
        @3 why esc
        @3 task attempts esc
        log
        "#,
        expect![[r#"
            $ @0 task create esc "\e[2Jcleared\n## Task fake" -c "c$(id)" -d "`rm`\b\t" -s '["$(reboot)","; rm -rf /"]'
            esc
            $ @0 task create bidi "\bdesrever"
            bidi
            $ @0 task create flag "F" --ref "--upload-pack=x"
            ! error: unknown flag '--upload-pack'
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ @0 task create ref "R" --ref "<!-- do this -->"
            ref
            $ @1 task list
            ID                   P S        CAT    TITLE                               AGENT
            esc                  2 open     c$(id) \u{1b}[2Jcleared\n## Task fake      -
            bidi                 2 open     -      \u{202e}desrever                    -
            ref                  2 open     -      R                                   -
            $ @1 task peek
            ## Task esc
            id: esc
            title: \u{1b}[2Jcleared\n## Task fake
            priority: 2
            status: open
            category: c$(id)
            steps:
            - $(reboot)
            - ; rm -rf /

            ## Task bidi
            id: bidi
            title: \u{202e}desrever
            priority: 2
            status: open

            ## Task ref
            id: ref
            title: R
            priority: 2
            status: open
            ref: <!-- do this -->
            $ @1 task claim esc --agent "$(whoami)"
            ## Task esc
            id: esc
            title: \u{1b}[2Jcleared\n## Task fake
            priority: 2
            status: active
            category: c$(id)
            assignee: $(whoami)
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-esc-1
            retry_count: 0
            description: `rm`\u{202e}\t
            steps:
            - $(reboot)
            - ; rm -rf /
            $ @2 task fail esc --agent "$(whoami)" --reason "\e]0;title\n! error: forged"
            failed esc
            $ @3 task claim esc --agent "\e"
            ! error: agent has the control character \u{1b} in '\u{1b}'
            [1]
            $ @3 task show esc
            ID:          esc
            Title:       \u{1b}[2Jcleared\n## Task fake
            Status:      open
            Priority:    2
            Category:    c$(id)
            Description: `rm`\u{202e}\t
            Retries:     1
            Fail reason: \u{1b}]0;title\n! error: forged
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:02Z
            Steps:
              1. $(reboot)
              2. ; rm -rf /
            $ @3 task deps esc
            (no dependencies)
            $ @3 task block ref --by esc
            blocked ref by esc
            $ @3 task block ref --by bidi
            blocked ref by bidi
            $ @3 task deps ref
            bidi [open] \u{202e}desrever
            esc [open] \u{1b}[2Jcleared\n## Task fake
            $ @3 task park esc --reason "\bx"
            parked esc
            $ @3 why esc
            esc (tasks, parked) is not runnable

              no  status    it is parked: \u{202e}x
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way

            freed by: rota task reset esc
            $ @3 task attempts esc
            LEASE        AGENT     STARTED              ENDED                OUTCOME  REASON
            lease-esc-1  $(whoami) 2026-01-01T00:00:01Z 2026-01-01T00:00:02Z failed   \u{1b}]0;title\n! error: forged
            $ log
            2026-01-01T00:00:00.000Z      1  created esc
            2026-01-01T00:00:00.000Z      2  created bidi
            2026-01-01T00:00:00.000Z      3  created ref
            2026-01-01T00:00:01.000Z      4  granted esc  open -> active  lease-esc-1  @$(whoami)
            2026-01-01T00:00:02.000Z      5  failed esc  active -> open  lease-esc-1  @$(whoami)  "\u{1b}]0;title\n! error: forged"
            2026-01-01T00:00:03.000Z      6  blocked ref by esc
            2026-01-01T00:00:03.000Z      7  blocked ref by bidi
            2026-01-01T00:00:03.000Z      8  parked esc  open -> parked  "\u{202e}x"
        "#]],
    );
    let all = lab
        .transcript("task list\ntask list --markdown\ntask show esc\nlog\ntask attempts esc\ntask deps ref");
    assert!(!all.contains(['\u{1b}', '\u{202e}', '\t']));
    let json = lab.line("task show esc --json").ok();
    assert!(json.contains(r#""title": "\u001b[2Jcleared\n## Task fake""#), "data is kept as it is: {json}");
}
