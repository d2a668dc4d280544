//! `rota task agent`: register, list, deregister.

use expect_test::expect;

use crate::support::{Lab, check};

/// Missing and unknown words, each with its message.
#[test]
fn messages() {
    check(
        r#"
        task agent
        task agent bogus
        task agent deregister
        task agent deregister zzzz
        task agent deregister ""
        task agent register extra
        task agent list --bogus
        task agent list
        "#,
        expect![[r#"
            $ task agent
            ! error: missing agent subcommand
            ! Usage: rota task agent [OPTIONS] [COMMAND]
            [1]
            $ task agent bogus
            ! error: unknown agent subcommand 'bogus'
            ! Usage: rota task agent [OPTIONS] [COMMAND]
            [1]
            $ task agent deregister
            ! error: missing agent ID
            ! Usage: rota task agent deregister [OPTIONS] <agent>
            [1]
            $ task agent deregister zzzz
            ! error: agent 'zzzz' not found
            [2]
            $ task agent deregister ""
            ! error: missing agent ID
            ! Usage: rota task agent deregister [OPTIONS] <agent>
            [1]
            $ task agent register extra
            ! error: unexpected argument 'extra'
            ! Usage: rota task agent register [OPTIONS]
            [1]
            $ task agent list --bogus
            ! error: unknown flag '--bogus'
            ! Usage: rota task agent list [OPTIONS]
            [1]
            $ task agent list
        "#]],
    );
}

/// Four hex digits; newest first; stopped ones left out; deregistering again is fine.
#[test]
fn register_list_deregister() {
    let lab = Lab::new();
    let register = |line: &str| {
        let id = lab.line(line).ok();
        let id = id.strip_suffix('\n').unwrap().to_owned();
        assert!(
            id.len() == 4 && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        );
        id
    };
    let first = register("@0 task agent register");
    let second = register("@60 ROTA_HOST= HOSTNAME=other-host task agent register");
    assert_ne!(first, second);
    let pid = std::process::id();
    let shown = |script: &str| {
        let text = lab.transcript(script).replace(&first, "<1st>").replace(&second, "<2nd>");
        let column = format!("{pid:<7}");
        text.replace(&column, "<pid>  ").replace(&pid.to_string(), "<pid>")
    };
    expect![[r#"
        $ task agent list
        ID   PID     HOSTNAME     STARTED              STATUS
        <2nd> <pid>   other-host   2026-01-01T00:01:00Z active
        <1st> <pid>   test-host    2026-01-01T00:00:00Z active
        $ task agent list --json
        {
          "schemaVersion": 1,
          "total": 2,
          "agents": [
            {
              "id": "<2nd>",
              "pid": <pid>,
              "host": "other-host",
              "startedAt": "2026-01-01T00:01:00.000Z",
              "status": "active"
            },
            {
              "id": "<1st>",
              "pid": <pid>,
              "host": "test-host",
              "startedAt": "2026-01-01T00:00:00.000Z",
              "status": "active"
            }
          ]
        }
    "#]]
    .assert_eq(&shown("task agent list\ntask agent list --json"));
    let script = format!(
        "task agent deregister {first}\ntask agent deregister {first}\ntask agent deregister {second} --json\n\
         task agent list"
    );
    expect![[r#"
        $ task agent deregister <1st>
        deregistered <1st>
        $ task agent deregister <1st>
        deregistered <1st>
        $ task agent deregister <2nd> --json
        {
          "schemaVersion": 1,
          "id": "<2nd>"
        }
        $ task agent list
    "#]]
    .assert_eq(&shown(&script));
    let json = lab.line("@0 task agent register --json").ok();
    assert!(json.starts_with("{\n  \"schemaVersion\": 1,\n  \"id\": \""), "{json}");
    assert_eq!(lab.line("--scope elsewhere task agent list").ok(), "", "agents are per scope");
}

/// Settling as somebody else is refused, under the id that `register` printed.
#[test]
fn a_registered_agent_settles_its_own_tasks_only() {
    let lab = Lab::new();
    let id = lab.line("@0 task agent register").ok().trim_end().to_owned();
    lab.line("@0 task create a A").ok();
    lab.line(&format!("@0 ROTA_AGENT={id} task claim")).ok();
    assert_eq!(lab.line("@1 ROTA_AGENT=ffff0 task done a").code, 1);
    assert_eq!(lab.line(&format!("@1 ROTA_AGENT={id} task done a")).ok(), "done a\n");
}
