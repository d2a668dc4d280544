//! Many processes at once, on a file and on a server: ceilings, adds, rules, and leases that have ended.

use std::collections::BTreeSet;
use std::process::Stdio;

use rota_testbed::Server;
use serde_json::{Value, json};

use crate::support::Lab;

/// A folder, and a store of its own.
struct Stage {
    lab: Lab,
    store: String,
}

/// What a process said.
struct Said {
    code: i32,
    answer: Value,
    error: String,
}

impl Stage {
    /// All at once; the answers in the order of the commands.
    fn at_once(&self, commands: &[Vec<String>]) -> Vec<Said> {
        let start = |words: &Vec<String>| {
            let mut command = self.lab.command();
            command.args(["--store", &self.store]).args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let children: Vec<_> = commands.iter().map(start).collect();
        let ends = children.into_iter().map(|child| child.wait_with_output().unwrap());
        let said = |output: std::process::Output| Said {
            code: output.status.code().unwrap(),
            answer: serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
            error: String::from_utf8(output.stderr).unwrap(),
        };
        ends.map(said).collect()
    }

    #[track_caller]
    fn one(&self, line: &str) -> Value {
        let words = line.split(' ').map(str::to_owned).collect();
        let said = self.at_once(&[words]).pop().unwrap();
        assert_eq!((said.code, said.error.as_str()), (0, ""), "{line}");
        said.answer
    }

    #[track_caller]
    fn refused(&self, line: &str, message: &str) {
        let words = line.split(' ').map(str::to_owned).collect();
        let said = self.at_once(&[words]).pop().unwrap();
        assert_eq!((said.code, said.error), (1, format!("error: {message}\n")), "{line}");
    }

    /// Entries e0, e1, … in one go.
    fn fill(&self, count: usize) {
        let entries: Vec<Value> = (0..count).map(|number| json!({"id": format!("e{number}")})).collect();
        let file = json!({"schemaVersion": 1, "entries": entries}).to_string();
        std::fs::write(self.lab.path().join("queue.json"), file).unwrap();
        assert_eq!(self.one("queue import queue.json")["total"], count);
    }
}

/// Runs a case on both stores.
fn on_both(case: impl Fn(&Stage)) {
    for store in ["sqlite:races.db".to_owned(), Server::shared().fresh_url()] {
        case(&Stage { lab: Lab::new(), store });
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// 16 processes lease one each at a ceiling of 16: 16 leases of 16 entries, and not one more.
#[test]
fn sixteen_processes_at_a_ceiling_of_sixteen() {
    on_both(|stage| {
        stage.one("sched policy set --maxConcurrent 16");
        stage.fill(40);
        let said = stage.at_once(&vec![words("sched lease --limit 1"); 16]);
        let leases: Vec<&Value> = said.iter().map(|said| &said.answer["leases"][0]).collect();
        assert!(said.iter().all(|said| said.code == 0 && said.answer["granted"] == 1), "{leases:?}");
        let distinct =
            |key: &str| leases.iter().map(|lease| lease[key].to_string()).collect::<BTreeSet<_>>().len();
        assert_eq!((distinct("id"), distinct("leaseId")), (16, 16));
        let more = stage.at_once(&vec![words("sched lease --limit 1"); 8]);
        assert!(more.iter().all(|said| said.code == 0 && said.answer["granted"] == 0));
        assert_eq!(stage.one("sched plan")["inFlight"], 16);
    });
}

/// 8 adds at once are 8 entries.
#[test]
fn eight_adds_at_once() {
    on_both(|stage| {
        let said = stage.at_once(&vec![words("queue add --repo /r"); 8]);
        let ids: BTreeSet<String> = said.iter().map(|said| said.answer["id"].to_string()).collect();
        assert_eq!((ids.len(), said.iter().filter(|said| said.code == 0).count()), (8, 8));
        assert_eq!(stage.one("queue list --json")["total"], 8);
    });
}

/// Six rules set at once by six processes: each that was acknowledged is kept, and the mirror is what is in force.
#[test]
fn six_rules_at_once() {
    const RULES: [(&str, u64); 6] = [
        ("maxConcurrent", 7),
        ("maxAttempts", 9),
        ("leaseTtlMs", 1_234),
        ("backoffBaseMs", 17),
        ("backoffFactor", 3),
        ("backoffCapMs", 99_000),
    ];
    on_both(|stage| {
        let said =
            stage.at_once(&RULES.map(|(rule, value)| words(&format!("sched policy set --{rule} {value}"))));
        let policy = stage.one("sched policy")["policy"].clone();
        for ((rule, value), said) in RULES.into_iter().zip(&said) {
            assert_eq!((said.code, said.error.as_str()), (0, ""), "{rule}");
            assert_eq!(policy[rule], value, "{rule} was acknowledged and lost");
        }
        let mirror = std::fs::read_to_string(stage.lab.path().join("rota.policy.json")).unwrap();
        let mirror: Value = serde_json::from_str(&mirror).unwrap();
        assert_eq!(mirror["basedOn"], stage.one("policy show")["version"]);
        assert_eq!(stage.one("policy history")["total"], 6);
    });
}

/// A lease that has ended settles nothing, also when the entry was granted again within the same millisecond; of many
/// who complete one lease at once, one does.
#[test]
fn a_lease_that_has_ended() {
    on_both(|stage| {
        stage.fill(1);
        let now = "--now 2026-01-01T00:00:00.001Z";
        assert_eq!(stage.one(&format!("sched lease {now}"))["leases"][0]["leaseId"], "lease-e0-1");
        stage.one(&format!("sched release lease-e0-1 {now}"));
        assert_eq!(stage.one(&format!("sched lease {now}"))["leases"][0]["leaseId"], "lease-e0-2");
        for (verb, word) in [("renew", "renew"), ("complete", "complete"), ("release", "release")] {
            let message = format!("No active lease to {word}: lease-e0-1");
            stage.refused(&format!("sched {verb} lease-e0-1 {now}"), &message);
        }
        stage.refused(
            &format!("sched release lease-e0-1 --failed {now}"),
            "No active lease to release: lease-e0-1",
        );
        let entry = stage.one("queue show e0");
        assert_eq!((&entry["status"], &entry["leaseId"]), (&json!("leased"), &json!("lease-e0-2")));
        assert_eq!(entry["attempts"], 0);
        let said = stage.at_once(&vec![words("sched complete lease-e0-2"); 8]);
        assert_eq!(said.iter().filter(|said| said.code == 0).count(), 1);
        let message = "error: No active lease to complete: lease-e0-2\n";
        assert!(
            said.iter().filter(|said| said.code != 0).all(|said| said.code == 1 && said.error == message)
        );
    });
}
