//! kill -9 after each of the twelve steps: the next start goes on, the state file is old or new, nothing is claimed
//! twice. A request that the tracker keeps waiting holds the supervisor between two steps; where nothing is asked of
//! the tracker, the line that a step prints says that it is over.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use rota_supervise::cycle::State;
use rota_testbed::tracker::{Dialect, TOKEN, Tracker, When};

use super::{line, repository, write};
use crate::support::{Lab, Ran};

const LABEL: &str = "in-progress";
const STATE: &str = "agents/state/scheduler_state.json";

/// Where the supervisor is when it is killed.
enum At {
    /// It waits for the answer to this request; so many of the kind go by first.
    Request(&'static str, &'static str, When, usize),
    /// It has printed a line that begins like this, so many times.
    Line(&'static str, usize),
}

/// The steps, in their order, and where each is over.
const STEPS: [(&str, At); 14] = [
    ("supervisor start", At::Line("CYCLE_START", 1)),
    ("governance context load", At::Line("STATE", 1)),
    ("governance validation", At::Request("GET", "/repos/acme/shop", When::Before, 0)),
    ("environment validation", At::Request("GET", "/issues", When::Before, 0)),
    ("scheduler cycle start", At::Request("GET", "/issues", When::After, 0)),
    ("task selection", At::Request("GET", "/issues/1", When::Before, 0)),
    ("pre-dispatch governance gate", At::Request("POST", "/issues/1/labels", When::Before, 0)),
    ("claim task: the label is set", At::Request("POST", "/issues/1/labels", When::After, 0)),
    ("claim task: before it is read back", At::Request("GET", "/issues/1", When::Before, 1)),
    ("claim task", At::Line("CLAIMED", 1)),
    ("dispatch task", At::Line("- governance_compliant", 1)),
    ("compliance report", At::Line("- enforcement_actions", 1)),
    ("scheduler sleep", At::Line("SLEEP", 1)),
    ("next cycle", At::Line("CYCLE_START", 2)),
];

fn lab(tracker: &Tracker) -> Lab {
    let lab = repository("source: local");
    let text = format!(
        "supervisor: {{source: gitea, api_base: '{}', owner: acme, repo: shop, token_env: TRACKER_TOKEN, \
         cycle_interval_seconds: 1, dispatch: {{kind: ralph}}}}\n",
        tracker.api_base()
    );
    write(&lab, "rota.yml", &text);
    lab
}

fn supervise(lab: &Lab, arguments: &[&str]) -> std::process::Command {
    let mut command = lab.command();
    command.arg("supervise").args(arguments).env("TRACKER_TOKEN", TOKEN).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

fn once(lab: &Lab) -> Ran {
    super::ended(supervise(lab, &["--once"]).spawn().unwrap())
}

/// Kills it where it should be.
fn kill_at(lab: &Lab, tracker: &Tracker, at: &At) {
    if let At::Request(method, path, when, spared) = at {
        tracker.hold(method, path, *when, *spared);
    }
    let mut child: Child = supervise(lab, &[]).spawn().unwrap();
    match at {
        At::Request(..) => tracker.wait_until_held(),
        At::Line(head, times) => {
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let found = lines.map_while(Result::ok).filter(|line| line.starts_with(head)).nth(times - 1);
            assert!(found.is_some(), "{head} never came");
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    tracker.let_go();
}

#[test]
fn kill_9_after_each_step() {
    for (step, at) in &STEPS {
        let tracker = Tracker::start(Dialect::Gitea);
        tracker.with(|world| {
            world.add("first");
            world.add("second");
        });
        let lab = lab(&tracker);
        kill_at(&lab, &tracker, at);
        if let Ok(text) = std::fs::read_to_string(lab.path().join(STATE)) {
            State::parse(&text).unwrap_or_else(|error| panic!("{step}: torn: {error}: {text}"));
        }
        let ran = once(&lab);
        assert!(ran.code == 0, "{step}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(line(&ran, "GOVERNANCE_VALID"), "GOVERNANCE_VALID=true", "{step}");
        // Claimed now, or claimed before and still held.
        let held = lab.line("task list --queue issues --status active --json").ok();
        let held: serde_json::Value = serde_json::from_str(&held).unwrap();
        assert_eq!(held["total"], 1, "{step}: {held}");
        assert_eq!(held["tasks"][0]["id"], "gitea/acme/shop#1", "{step}");
        tracker.with(|world| {
            assert!(world.has_label(1, LABEL), "{step}: the label is the lease's mirror");
            assert!(!world.has_label(2, LABEL), "{step}: one at a time");
        });
        // The loop is there once, for the lease that is held.
        let again = once(&lab);
        assert_eq!((again.code, line(&again, "CLAIMED")), (0, "CLAIMED none"), "{step}: {}", again.stdout);
        let loops: serde_json::Value = serde_json::from_str(&lab.line("loop list --json").ok()).unwrap();
        assert_eq!(loops["total"], 1, "{step}: {loops}");
        let fence = held["tasks"][0]["fence"].as_u64().unwrap();
        assert_eq!(loops["loops"][0]["id"], format!("gitea/acme/shop#1-{fence}"), "{step}");
        assert!(fence <= 2, "{step}");
        assert_eq!(lab.line("doctor").code, 0, "{step}");
    }
}

/// Wherever a token could show itself, it does not.
#[test]
fn the_token_is_never_shown() {
    let tracker = Tracker::start(Dialect::Gitea);
    tracker.with(|world| {
        world.add("first");
        world.only_answer = Some((500, "text/plain", "tok-3f9c1e came with the request"));
    });
    let lab = lab(&tracker);
    let mut shown = String::new();
    let mut command = supervise(&lab, &["check", "--json"]);
    let checked = super::ended(command.spawn().unwrap());
    assert_eq!(checked.code, 1);
    let failed = once(&lab);
    tracker.with(|world| world.only_answer = None);
    let claimed = once(&lab);
    assert_eq!(line(&claimed, "CLAIMED"), "CLAIMED #1 label=in-progress verified=true");
    let mut wrong = supervise(&lab, &["--once"]);
    let wrong = super::ended(wrong.env("TRACKER_TOKEN", format!("{TOKEN}\nx")).spawn().unwrap());
    assert_eq!(wrong.code, 1);
    for ran in [checked, failed, claimed, wrong] {
        shown.push_str(&ran.stdout);
        shown.push_str(&ran.stderr);
    }
    shown.push_str(&lab.line("log --json").ok());
    shown.push_str(&String::from_utf8_lossy(&std::fs::read(lab.database()).unwrap()));
    assert!(!shown.contains(TOKEN), "{shown}");
}
