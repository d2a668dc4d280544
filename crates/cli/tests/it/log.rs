//! `rota log`: the journal, readable, and followed as it grows.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use expect_test::expect;

use crate::support::{Lab, check};

/// Every change is an event; refusals and reads are none.
#[test]
fn every_change() {
    check(
        r#"
        log
        @0 task create a A
        @1 task create b B --deps a
        @2 task claim --agent x
        @3 task renew a --agent x
        @3 task done a --agent y
        @4 task fail a --agent x --reason "no\nluck"
        @5 task claim a --agent x --lease 5
        @20 task claim --agent y
        @21 task done a --agent y
        @22 task update b --title "New title"
        @23 task unblock b --by a
        @24 task park b --reason "needs a key"
        @25 task list
        log
        log --task b
        log -n 2
        log -n 0
        log -n 18446744073709551615 --task a
        log -n x
        log --task nobody
        log extra
        "#,
        expect![[r#"
            $ log
            $ @0 task create a A
            a
            $ @1 task create b B --deps a
            b
            $ @2 task claim --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:02Z
            lease_id: lease-a-1
            retry_count: 0
            $ @3 task renew a --agent x
            renewed a
            $ @3 task done a --agent y
            ! error: agent 'y' is not the assignee of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:03Z
            [1]
            $ @4 task fail a --agent x --reason "no\nluck"
            failed a
            $ @5 task claim a --agent x --lease 5
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:00:10Z
            lease_id: lease-a-2
            retry_count: 1
            last_failure: no\nluck
            $ @20 task claim --agent y
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: y
            lease_expires_at: 2026-01-01T00:10:20Z
            lease_id: lease-a-3
            retry_count: 2
            last_failure: lease expired (host did not complete)
            $ @21 task done a --agent y
            done a
            $ @22 task update b --title "New title"
            updated b
            $ @23 task unblock b --by a
            unblocked b from a
            $ @24 task park b --reason "needs a key"
            parked b
            $ @25 task list
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 done     -     A                                   y
            b                    2 parked   -     New title                           -
            $ log
            2026-01-01T00:00:00.000Z      1  created a
            2026-01-01T00:00:01.000Z      2  created b
            2026-01-01T00:00:01.000Z      3  blocked b by a
            2026-01-01T00:00:02.000Z      4  granted a  open -> active  lease-a-1  @x
            2026-01-01T00:00:03.000Z      5  renewed a  lease-a-1  @x
            2026-01-01T00:00:04.000Z      6  failed a  active -> open  lease-a-1  @x  "no\nluck"
            2026-01-01T00:00:05.000Z      7  granted a  open -> active  lease-a-2  @x
            2026-01-01T00:00:20.000Z      8  lost a  active -> open  lease-a-2  @y
            2026-01-01T00:00:20.000Z      9  granted a  open -> active  lease-a-3  @y
            2026-01-01T00:00:21.000Z     10  done a  active -> done  lease-a-3  @y
            2026-01-01T00:00:21.000Z     11  readied b  @y
            2026-01-01T00:00:22.000Z     12  edited b
            2026-01-01T00:00:23.000Z     13  unblocked b by a
            2026-01-01T00:00:24.000Z     14  parked b  open -> parked  "needs a key"
            $ log --task b
            2026-01-01T00:00:01.000Z      2  created b
            2026-01-01T00:00:01.000Z      3  blocked b by a
            2026-01-01T00:00:21.000Z     11  readied b  @y
            2026-01-01T00:00:22.000Z     12  edited b
            2026-01-01T00:00:23.000Z     13  unblocked b by a
            2026-01-01T00:00:24.000Z     14  parked b  open -> parked  "needs a key"
            $ log -n 2
            2026-01-01T00:00:23.000Z     13  unblocked b by a
            2026-01-01T00:00:24.000Z     14  parked b  open -> parked  "needs a key"
            $ log -n 0
            $ log -n 18446744073709551615 --task a
            2026-01-01T00:00:00.000Z      1  created a
            2026-01-01T00:00:02.000Z      4  granted a  open -> active  lease-a-1  @x
            2026-01-01T00:00:03.000Z      5  renewed a  lease-a-1  @x
            2026-01-01T00:00:04.000Z      6  failed a  active -> open  lease-a-1  @x  "no\nluck"
            2026-01-01T00:00:05.000Z      7  granted a  open -> active  lease-a-2  @x
            2026-01-01T00:00:20.000Z      8  lost a  active -> open  lease-a-2  @y
            2026-01-01T00:00:20.000Z      9  granted a  open -> active  lease-a-3  @y
            2026-01-01T00:00:21.000Z     10  done a  active -> done  lease-a-3  @y
            $ log -n x
            ! error: -n must be a non-negative integer, got: x
            ! Usage: rota log [OPTIONS]
            [1]
            $ log --task nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ log extra
            ! error: unexpected argument 'extra'
            ! Usage: rota log [OPTIONS]
            [1]
        "#]],
    );
}

struct Follower {
    child: Child,
    lines: Receiver<String>,
}

impl Follower {
    fn start(lab: &Lab, arguments: &[&str]) -> Self {
        let mut child = lab.command().args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(240)).unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// `-f` prints what there is, then each new event once, in order.
#[test]
fn follows() {
    let lab = Lab::new();
    lab.line("@0 task create a A").ok();
    let all = Follower::start(&lab, &["log", "-f"]);
    let as_json = Follower::start(&lab, &["log", "-f", "-n", "1", "--json"]);
    assert_eq!(all.next(), "2026-01-01T00:00:00.000Z      1  created a");
    let newest = as_json.next();
    assert!(newest.starts_with(r#"{"schemaVersion":1,"seq":1,"#), "{newest}");
    for (line, wanted) in [
        ("@1 task create b B", "2026-01-01T00:00:01.000Z      2  created b"),
        (
            "@2 task claim b --agent x",
            "2026-01-01T00:00:02.000Z      3  granted b  open -> active  lease-b-1  @x",
        ),
        (
            "@3 task done b --agent x",
            "2026-01-01T00:00:03.000Z      4  done b  active -> done  lease-b-1  @x",
        ),
    ] {
        lab.line(line).ok();
        assert_eq!(all.next(), wanted);
        assert!(as_json.next().starts_with(r#"{"schemaVersion":1,"seq":"#));
    }
}
