//! kill -9 of `rota up` at random moments under load (X1, X3): what it said is so, every loop ends once, none runs twice
//! at a time. `ROTA_DAEMON_KILLS` sets how often, `ROTA_KILL9_SEED` repeats a run.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::daemon::{Daemon, configure, read, runs, started_for, states, until, up_until_idle};
use crate::kill9::{Random, variable};
use crate::support::Lab;

/// How many loops for each kill: there is always more to do.
const LOOPS: u64 = 3;

/// Takes a lock for as long as it runs: who cannot have it runs twice. Some ask for another iteration first.
const AGENT: &str = "exec 9>>lock.$ROTA_TASK; flock -n 9 || echo $ROTA_TASK >> twice; sleep 0.0$(( $$ % 8 + 1 )); \
                     echo $ROTA_LEASE >> ran; case $ROTA_TASK in *7) test $ROTA_ITERATION -gt 1;; esac";

#[test]
fn a_daemon_is_killed_at_random_moments() {
    let kills = variable("ROTA_DAEMON_KILLS", 200);
    let seed = variable("ROTA_KILL9_SEED", RandomState::new().hash_one(kills));
    println!("ROTA_KILL9_SEED={seed} ROTA_DAEMON_KILLS={kills}");
    let mut random = Random(seed);
    let lab = Lab::new();
    let children: String =
        (0..kills * LOOPS).map(|n| format!("{{\"id\":\"r{n}\",\"t\":\"R\",\"kind\":\"ralph\"}}\n")).collect();
    std::fs::write(lab.path().join("children"), children).unwrap();
    configure(
        &lab,
        &format!(
            "  plan: {{run: 'cp children $ROTA_ARTIFACTS/children.jsonl'}}\n  ralph: {{run: '{AGENT}'}}\nconcurrency: {{max_loops: 8}}\n"
        ),
    );
    lab.line("loop add --kind plan --id plan").ok();
    for round in 0..kills {
        let mut daemon = Daemon::launch(&lab, &[]);
        std::thread::sleep(Duration::from_millis(20 + random.below(220)));
        if round % 10 == 9 {
            kill_some(&lab, &mut random);
        }
        assert!(daemon.0.try_wait().unwrap().is_none(), "{}", read(lab.path().join("up.log")));
        daemon.kill9();
        // A child that it forked and that is not yet another program has its files for a moment longer. No file, no lock.
        let lock = std::fs::File::open(lab.path().join(".rota/run/rota.lock"));
        until("its lock is free", || lock.as_ref().map_or(true, |lock| lock.try_lock().is_ok()));
    }
    until("what was left ends or is ended", || up_until_idle(&lab).code >= 0);
    judge(&lab, kills * LOOPS);
}

/// A shim or an agent or both, of one run.
fn kill_some(lab: &Lab, random: &mut Random) {
    for run in runs(lab).into_iter().take(2) {
        let which = random.below(3);
        let pids = [(which != 1).then(|| run.shim()), (which != 0).then(|| run.agent()).flatten()];
        for pid in pids.into_iter().flatten().filter(|pid| started_for(lab).contains(pid)) {
            // It may end by itself in this moment.
            let _sent = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).output();
        }
    }
}

fn judge(lab: &Lab, loops: u64) {
    assert!(!lab.path().join("twice").exists(), "ran twice at a time: {}", read(lab.path().join("twice")));
    assert_eq!(started_for(lab), Vec::<u32>::new());
    assert!(runs(lab).is_empty());
    let states = states(lab);
    assert_eq!(states.len() as u64, loops + 1);
    let is = |id: &str, word: &str| states.contains(&format!("{id} {word}"));
    for line in read(lab.path().join("up.log")).lines().filter(|line| line.contains("Loop ended")) {
        let field = |name: &str| {
            let rest = line.split(&format!("{name}=")).nth(1).unwrap();
            rest.split(' ').next().unwrap().to_owned()
        };
        if field("outcome") == "complete" {
            assert!(is(&field("loop_id"), "complete"), "{line}");
        }
    }
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    let journal: serde_json::Value = serde_json::from_str(&lab.line("log --json").ok()).unwrap();
    for event in journal["events"].as_array().unwrap() {
        if event["data"]["outcome"] == "done" {
            *ends.entry(event["task"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    let complete = states.iter().filter(|state| state.ends_with(" complete")).count();
    assert_eq!(ends.len(), complete);
    assert!(ends.values().all(|count| *count == 1), "{ends:?}");
    assert!(complete as u64 > loops * 9 / 10, "{complete} of {loops}");
    assert_eq!(lab.line("doctor").code, 0);
}
