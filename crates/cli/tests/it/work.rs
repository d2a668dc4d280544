//! `rota work`: outcomes by exit code, leases that are kept, signals that are passed on, and what a kill leaves behind.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use expect_test::expect;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

use crate::support::{Lab, ROTA, Ran, hangup_is_ignored};

/// A backlog of tasks.
fn backlog(ids: &[&str]) -> Lab {
    let lab = Lab::new();
    for id in ids {
        lab.run(&["task", "create", id, &format!("Do {id}")]).ok();
    }
    lab
}

/// Works with a shell script as the command, to which `$0` is the binary.
fn work(lab: &Lab, flags: &[&str], script: &str) -> Ran {
    lab.run(&[&["work", "--agent", "w"], flags, &["--", "sh", "-c", script, ROTA]].concat())
}

fn publish(lab: &Lab, tasks: Value) {
    let policy = json!({"schemaVersion": 1, "queues": {"tasks": tasks}});
    std::fs::write(lab.path().join("policy.json"), policy.to_string()).unwrap();
    assert_eq!(lab.line("policy apply policy.json").code, 0);
}

fn shown(lab: &Lab, id: &str) -> Value {
    serde_json::from_str(&lab.run(&["task", "show", id, "--json"]).ok()).unwrap()
}

/// Each attempt's outcome and reason.
fn attempts(lab: &Lab, id: &str) -> Vec<String> {
    let told: Value = serde_json::from_str(&lab.run(&["task", "attempts", id, "--json"]).ok()).unwrap();
    let words = |attempt: &Value| {
        let word = |key: &str| attempt[key].as_str().unwrap_or("-").to_owned();
        format!("{}: {}", word("outcome"), word("reason"))
    };
    told["attempts"].as_array().unwrap().iter().map(words).collect()
}

/// A `rota work` under way.
struct Working {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
}

impl Working {
    fn start(lab: &Lab, flags: &[&str], script: &str) -> Self {
        let mut command = lab.command();
        command.args(["work", "--agent", "w"]).args(flags).args(["--", "sh", "-c", script, ROTA]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    /// Waits for the next line of the command.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits until it says something that begins so.
    fn wait_for(&mut self, start: &str) {
        let mut line = String::new();
        while !line.starts_with(start) {
            line.clear();
            assert_ne!(self.stderr.read_line(&mut line).unwrap(), 0, "it ended without '{start}'");
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap(), signal).unwrap();
    }

    /// Waits for its end; what the command and what it said since.
    fn end(mut self) -> Ran {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        Ran { code: self.child.wait().unwrap().code().unwrap_or(-1), stdout, stderr }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            // Twice, so that commands that a failed test left behind end too.
            self.signal(Signal::TERM);
            self.signal(Signal::TERM);
            self.child.wait().unwrap();
        }
    }
}

/// What the exit code means, with the last words of the command.
#[test]
fn outcomes_by_exit_code() {
    let cases: [(&str, &[&str], &str); 8] = [
        ("true", &["done: -"], "done"),
        ("echo so; exit 3", &["failed: exit code 3", GIVEN_UP_3], "parked"),
        ("echo no >&2; echo 'no disk' >&2; exit 1", &["failed: exit code 1: no disk", GIVEN_UP_1], "parked"),
        ("kill -9 $$", &["failed: killed by signal 9", GIVEN_UP_9], "parked"),
        ("exit 77", &["needs_person: the command asks for a person (exit code 77)"], "parked"),
        ("echo 'which one?' >&2; exit 77", &["needs_person: which one?"], "parked"),
        ("\"$0\" task done $ROTA_TASK > said", &["done: -"], "done"),
        ("\"$0\" task park $ROTA_TASK --reason mine > said; exit 1", &["needs_person: mine"], "parked"),
    ];
    for (script, expected, status) in cases {
        let lab = backlog(&["a"]);
        let ran = work(&lab, &["--until-empty", "--give-up", "2"], script);
        assert_eq!(ran.code, 0, "{script}: {}", ran.stderr);
        assert_eq!(attempts(&lab, "a"), expected, "{script}");
        assert_eq!(shown(&lab, "a")["status"], status, "{script}");
    }
}

const GIVEN_UP_1: &str = "needs_person: failed 2 times under one rota work, last: exit code 1: no disk";
const GIVEN_UP_3: &str = "needs_person: failed 2 times under one rota work, last: exit code 3";
const GIVEN_UP_9: &str = "needs_person: failed 2 times under one rota work, last: killed by signal 9";

/// The last line is the result if it is a JSON object; it needs no `commit`.
#[test]
fn results() {
    let cases = [
        (r#"echo noise; echo '{"tests": 12}'"#, json!({"tests": 12})),
        (r#"printf '{"a":1}\n{"b":2}\n\n'"#, json!({"b": 2})),
        (r#"printf '{"no":"newline"}'"#, json!({"no": "newline"})),
        (r#"echo '{"a":1}'; echo bye"#, Value::Null),
        ("echo '[1]'", Value::Null),
        ("echo '{broken'", Value::Null),
        (r#"echo '{"a":1}' >&2"#, Value::Null),
    ];
    for (script, expected) in cases {
        let lab = backlog(&["a"]);
        assert_eq!(work(&lab, &["--until-empty"], script).code, 0, "{script}");
        assert_eq!(shown(&lab, "a")["result"], expected, "{script}");
        assert_eq!(shown(&lab, "a")["status"], "done", "{script}");
    }
}

#[test]
fn a_rate_limit_costs_no_attempt_and_waits() {
    let lab = backlog(&["a"]);
    let mut working = Working::start(&lab, &["--until-empty"], "exit 75");
    working.wait_for("rate_limited a");
    working.signal(Signal::TERM);
    let ran = working.end();
    assert_eq!(ran.code, 1, "it was to empty the queue and did not: {}", ran.stderr);
    assert_eq!(attempts(&lab, "a"), ["rate_limited: -"]);
    let task = shown(&lab, "a");
    assert_eq!((&task["status"], &task["attempts"]), (&json!("open"), &json!(0)));
    assert!(task["nextEligibleAt"].is_string(), "{task}");
}

/// A task that only fails is given up; a policy with a limit is left to decide, and its backoff is waited for.
#[test]
fn a_task_that_only_fails() {
    let lab = backlog(&["a"]);
    assert_eq!(work(&lab, &["--until-empty"], "exit 1").code, 0);
    let parked = "needs_person: failed 3 times under one rota work, last: exit code 1";
    assert_eq!(attempts(&lab, "a"), ["failed: exit code 1", "failed: exit code 1", parked]);
    let lab = backlog(&["a"]);
    let backoff = json!({"baseMs": 20, "factor": 2, "capMs": 100});
    publish(&lab, json!({"maxAttempts": 4, "backoff": backoff}));
    assert_eq!(work(&lab, &["--until-empty"], "exit 1").code, 0);
    assert_eq!(attempts(&lab, "a"), ["failed: exit code 1"; 4]);
    assert_eq!(shown(&lab, "a")["parkedReason"], "exit code 1 (attempt 4/4)");
    // One that says so itself and ends well.
    let lab = backlog(&["a"]);
    let ran = work(&lab, &["--until-empty"], "\"$0\" task fail $ROTA_TASK --reason mine > said");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let parked = "needs_person: failed 3 times under one rota work, last: mine";
    assert_eq!(attempts(&lab, "a"), ["failed: mine", "failed: mine", "failed: mine", parked]);
}

#[test]
fn the_task_is_on_the_input_and_in_the_environment() {
    let lab = backlog(&["a"]);
    lab.line("task create b 'Then b' --deps a -d 'more words' --queue tasks").ok();
    let script = "grep -v -e lease_exp -e '^result'; env | grep '^ROTA_' | grep -v -e '^ROTA_RUN=' -e '^ROTA_TOKEN=' | sed 's/:[0-9]*$/:PORT/' | sort; echo '{\"n\":1}'";
    let ran = work(&lab, &["--until-empty", "--scope", "default"], script);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let said = ran.stdout.replace(lab.path().canonicalize().unwrap().to_str().unwrap(), "<folder>");
    let said = said.replace(lab.path().to_str().unwrap(), "<folder>");
    expect![[r###"
        ## Task a
        id: a
        title: Do a
        priority: 2
        status: active
        assignee: w
        lease_id: lease-a-1
        retry_count: 0
        ROTA_AGENT=w
        ROTA_LEASE=lease-a-1
        ROTA_QUEUE=tasks
        ROTA_SCOPE=default
        ROTA_STORE=http://127.0.0.1:PORT
        ROTA_TASK=a
        {"n":1}
        ## Task b
        id: b
        title: Then b
        priority: 2
        status: active
        assignee: w
        lease_id: lease-b-1
        retry_count: 0
        description: more words
        deps: a
        blocker_results:
        - a: {"n":1}
        ROTA_AGENT=w
        ROTA_LEASE=lease-b-1
        ROTA_QUEUE=tasks
        ROTA_SCOPE=default
        ROTA_STORE=http://127.0.0.1:PORT
        ROTA_TASK=b
        {"n":1}
    "###]]
    .assert_eq(&said);
}

#[test]
fn dependencies_become_ready_by_our_own_work() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    lab.line("task create b B --deps a").ok();
    lab.line("task create c C --deps b").ok();
    lab.line("task create d D").ok();
    let ran = work(&lab, &["--until-empty", "--jobs", "2"], "echo $ROTA_TASK >> order");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let order = std::fs::read_to_string(lab.path().join("order")).unwrap();
    let chain: String = order.lines().filter(|id| *id != "d").collect();
    assert_eq!((chain.as_str(), order.lines().count()), ("abc", 4));
    assert_eq!(lab.line("task plan-status").ok(), "0 open, 0 active, 4 done, 0 blocked, 0 deleted\n");
}

/// Each settlement of the worker is refused, because the command has made it already: the worker goes on all the same.
#[test]
fn commands_that_settle_by_themselves_do_not_end_the_work() {
    let lab = backlog(&["a", "b", "c", "d", "e"]);
    let ran = work(&lab, &["--until-empty", "--jobs", "2"], "\"$0\" task done $ROTA_TASK");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(lab.line("task plan-status").ok(), "0 open, 0 active, 5 done, 0 blocked, 0 deleted\n");
}

/// Three workers with four jobs each: a folder can be made only once.
#[test]
fn no_task_is_worked_on_twice() {
    let ids: Vec<String> = (0..40).map(|number| format!("t{number}")).collect();
    let lab = backlog(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    let flags = ["--until-empty", "--jobs", "4", "--give-up", "1"];
    let workers: Vec<Working> =
        (0..3).map(|_| Working::start(&lab, &flags, "mkdir seen-$ROTA_TASK")).collect();
    for worker in workers {
        assert_eq!(worker.end().code, 0);
    }
    assert_eq!(lab.line("task plan-status").ok(), "0 open, 0 active, 40 done, 0 blocked, 0 deleted\n");
}

/// The command waits until its lease was renewed three times, which is longer than it lasts.
#[test]
fn a_lease_is_kept_while_the_command_runs() {
    let lab = backlog(&["a"]);
    // On a busy machine a renewal may be seconds late.
    publish(&lab, json!({"leaseTtlMs": 9_000}));
    // The journal is not for a lease token: the script looks into the database itself.
    let store = lab.database();
    let script = format!(
        "until [ $(ROTA_STORE=sqlite:{} ROTA_TOKEN= \"$0\" log --task a | grep -c renewed) -ge 3 ]; do sleep 0.2; done",
        store.display()
    );
    let ran = work(&lab, &["--until-empty"], &script);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(attempts(&lab, "a"), ["done: -"]);
}

/// Blocks until it is asked to end, and then claims to have done it.
const STUBBORN: &str = "trap 'echo stopped; exit 0' TERM; echo ready; sleep 600 & wait";

#[test]
fn a_lease_that_was_taken_away_stops_the_command() {
    let lab = backlog(&["a"]);
    publish(&lab, json!({"leaseTtlMs": 6_000}));
    let mut working = Working::start(&lab, &["--until-empty"], STUBBORN);
    assert_eq!(working.line(), "ready");
    lab.line("ROTA_ALLOW_NOW=1 task claim a --agent thief --now 2099-01-01T00:00:00Z").ok();
    assert_eq!(working.line(), "stopped");
    let ran = working.end();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.ends_with("1 late\n"), "{}", ran.stderr);
    let task = shown(&lab, "a");
    assert_eq!((&task["status"], &task["assignee"]), (&json!("active"), &json!("thief")));
    assert_eq!(attempts(&lab, "a"), ["lost: lease expired (host did not complete)", "-: -"]);

    let lab = backlog(&["a"]);
    publish(&lab, json!({"leaseTtlMs": 6_000}));
    let mut working = Working::start(&lab, &["--until-empty"], STUBBORN);
    assert_eq!(working.line(), "ready");
    lab.line("task pause a").ok();
    assert_eq!(working.line(), "stopped");
    let ran = working.end();
    assert!(ran.stderr.ends_with("1 released\n"), "{}", ran.stderr);
    assert_eq!(shown(&lab, "a")["status"], "paused");
}

/// A command that settled its own task as done may finish what it is at.
#[test]
fn a_command_may_settle_its_task_and_go_on() {
    let lab = backlog(&["a"]);
    publish(&lab, json!({"leaseTtlMs": 6_000}));
    let result = r#"{"commit":"abc"}"#;
    let script =
        format!("\"$0\" task done a --result '{result}'; echo settled; read line < go; echo \"$line\"");
    let fifo = lab.path().join("go");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut working = Working::start(&lab, &["--until-empty"], &script);
    assert_eq!((working.line(), working.line()), ("done a".to_owned(), "settled".to_owned()));
    working.wait_for("done a");
    std::fs::write(&fifo, "finished\n").unwrap();
    let ran = working.end();
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "finished\n"), "{}", ran.stderr);
    assert_eq!(shown(&lab, "a")["result"], json!({"commit": "abc"}));
}

#[test]
fn signals_are_passed_on_and_tasks_go_back() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let lab = backlog(&["a", "b", "c"]);
        let mut working = Working::start(&lab, &["--jobs", "2"], STUBBORN);
        let mut lines = vec![working.line(), working.line()];
        lines.sort();
        assert_eq!(lines, ["[a] ready", "[b] ready"]);
        working.signal(signal);
        if signal == Signal::HUP && hangup_is_ignored() {
            // Whoever started the tests had it ignored, and so it is for what they start.
            working.signal(Signal::TERM);
        }
        let ran = working.end();
        assert_eq!(ran.code, 0, "that is how it ends: {}", ran.stderr);
        assert_eq!(ran.stdout.matches("stopped").count(), 2, "{}", ran.stdout);
        for id in ["a", "b"] {
            let task = shown(&lab, id);
            assert_eq!((&task["status"], &task["attempts"]), (&json!("open"), &json!(0)));
            assert_eq!(attempts(&lab, id), ["interrupted: -"]);
        }
        assert_eq!(attempts(&lab, "c"), Vec::<String>::new());
    }
}

#[test]
fn the_second_signal_kills() {
    let lab = backlog(&["a"]);
    let script = "trap 'echo asked' TERM; echo ready; while :; do sleep 600 & wait; done";
    let mut working = Working::start(&lab, &[], script);
    assert_eq!(working.line(), "ready");
    working.signal(Signal::TERM);
    assert_eq!(working.line(), "asked");
    working.signal(Signal::TERM);
    assert_eq!(working.end().code, 0);
    assert_eq!(attempts(&lab, "a"), ["interrupted: -"]);
}

/// Signals are heard while the store keeps the outcome of a command waiting.
#[test]
fn a_busy_store_holds_up_no_signal() {
    let lab = backlog(&["a", "b"]);
    let fifo = lab.path().join("go");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let script = "case $ROTA_TASK in a) echo ready; read line < go;; \
                  b) trap 'echo stopped; exit 0' TERM; echo ready; sleep 600 & wait;; esac";
    let mut working = Working::start(&lab, &["--jobs", "2"], script);
    working.line();
    working.line();
    let other = rusqlite::Connection::open(lab.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::fs::write(&fifo, "go\n").unwrap();
    working.signal(Signal::TERM);
    assert_eq!(working.line(), "[b] stopped");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(working.end().code, 0);
    assert_eq!(attempts(&lab, "b"), ["interrupted: -"]);
    assert_eq!(shown(&lab, "a")["fence"], 1);
}

#[test]
fn a_kill_loses_nothing() {
    let lab = backlog(&["a"]);
    let mut working = Working::start(&lab, &[], "echo $$; exec sleep 600");
    let command = Pid::from_raw(working.line().parse().unwrap()).unwrap();
    working.child.kill().unwrap();
    working.child.wait().unwrap();
    kill_process_group(command, Signal::KILL).unwrap();
    assert_eq!(shown(&lab, "a")["status"], "active");
    let granted = lab.line("ROTA_ALLOW_NOW=1 task claim --agent next --now 2099-01-01T00:00:00Z").ok();
    assert!(granted.contains("lease_id: lease-a-2\nretry_count: 1\n"), "{granted}");
}

#[test]
fn the_summary_as_json() {
    let lab = backlog(&["a", "b"]);
    let script = "echo said; [ $ROTA_TASK = a ] || exit 77";
    let ran = work(&lab, &["--until-empty", "--json"], script);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    let expected = json!({"schemaVersion": 1, "outcomes": {"done": 1, "parked": 1}, "interrupted": false});
    assert_eq!(summary, expected);
    assert!(ran.stderr.contains("said\n"), "what commands print is not in the way: {}", ran.stderr);
    let empty: Value =
        serde_json::from_str(&work(&lab, &["--until-empty", "--json"], "true").stdout).unwrap();
    assert_eq!(empty, json!({"schemaVersion": 1, "outcomes": {}, "interrupted": false}));
}

#[test]
fn bad_input() {
    let lab = backlog(&["a"]);
    std::fs::write(lab.path().join("plain"), "no program").unwrap();
    lab.check_refused(
        "work --until-empty
         work --until-empty --
         work --until-empty --jobs 0 -- true
         work --until-empty --jobs -1 -- true
         work --until-empty --jobs abc -- true
         work --until-empty --jobs 1001 -- true
         work --until-empty --give-up many -- true
         work --until-empty --queue nope -- true
         work --until-empty --now 2026-01-01T00:00:00Z -- true
         work --until-empty -- no-such-command
         work --until-empty -- ./no-such-file
         work --until-empty -- ./plain
         work --until-empty true",
        expect![[r#"
            $ work --until-empty
            ! error: missing command after -- (e.g. rota work -- ./agent.sh)
            ! Usage: rota work [OPTIONS] [-- <CMD>...]
            [1]
            $ work --until-empty --
            ! error: missing command after -- (e.g. rota work -- ./agent.sh)
            ! Usage: rota work [OPTIONS] [-- <CMD>...]
            [1]
            $ work --until-empty --jobs 0 -- true
            ! error: --jobs must be from 1 to 1000, got: 0
            ! Usage: rota work [OPTIONS] [-- <CMD>...]
            [1]
            $ work --until-empty --jobs -1 -- true
            ! error: --jobs must be a non-negative integer, got: -1
            ! Usage: rota work [OPTIONS] [-- <CMD>...]
            [1]
            $ work --until-empty --jobs abc -- true
            ! error: --jobs must be a non-negative integer, got: abc
            ! Usage: rota work [OPTIONS] [-- <CMD>...]
            [1]
            $ work --until-empty --jobs 1001 -- true
            ! error: --jobs must be from 1 to 1000, got: 1001
            ! Usage: rota work [OPTIONS] [-- <CMD>...]
            [1]
            $ work --until-empty --give-up many -- true
            ! error: --give-up must be a non-negative integer, got: many
            ! Usage: rota work [OPTIONS] [-- <CMD>...]
            [1]
            $ work --until-empty --queue nope -- true
            ! error: unknown queue 'nope' (known: issues, loops, runs, tasks)
            [1]
            $ work --until-empty --now 2026-01-01T00:00:00Z -- true
            ! error: --now: `rota work` goes by the store's clock
            ! Usage: rota work [OPTIONS] [-- <CMD>...]
            [1]
            $ work --until-empty -- no-such-command
            ! error: 'no-such-command' cannot be run: no such file, and none of that name in PATH
            [1]
            $ work --until-empty -- ./no-such-file
            ! error: './no-such-file' cannot be run: no such file, and none of that name in PATH
            [1]
            $ work --until-empty -- ./plain
            ! error: './plain' cannot be run: not a file that may be executed (try chmod +x)
            [1]
            $ work --until-empty true
            ! error: unexpected argument 'true'
            ! Usage: rota work [OPTIONS] [-- <CMD>...]
            [1]
        "#]],
    );
}

/// What cannot be started once cannot be started for the rest of the backlog: it ends with the first.
#[test]
fn a_command_that_cannot_be_started_ends_the_work() {
    use std::os::unix::fs::PermissionsExt;
    let lab = backlog(&["a", "b"]);
    let program = lab.path().join("agent");
    std::fs::write(&program, "#!/no/such/shell\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran = lab.run(&["work", "--until-empty", "--", "./agent"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("agent' cannot be run: No such file"), "{}", ran.stderr);
    assert_eq!((attempts(&lab, "a").len(), attempts(&lab, "b").len()), (1, 0));
}
