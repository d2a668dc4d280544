//! Processes never leak: every way an agent can end or refuse to, and every way in which those who look after it can go.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::daemon::{
    Daemon, configure, everywhere, kill_all, read, record, runs, show, signal, started_for, states, until,
    up_until_idle, wait_for,
};
use crate::support::Lab;

/// A fake agent: its first argument says what it does.
const AGENT: &str = r#"#!/bin/sh
case $1 in
success) echo fine ;;
fail) echo 'cannot do it'; exit 3 ;;
hang) sleep 1000 ;;
ignore) trap '' TERM; while :; do sleep 0.05; done ;;
away) (setsid sh -c 'trap "" TERM HUP INT; echo $$ > away; exec sleep 1000' &) ; until test -s away; do sleep 0.01; done ;;
forks) for i in $(seq 100); do sleep 1000 & done ;;
flood) head -c 1000000000 /dev/zero ;;
closed) exec >&- 2>&-; sleep 0.1 ;;
holds) sleep 1000 & echo held ;;
core) ulimit -c unlimited; kill -ABRT $$; sleep 1000 ;;
esac
"#;

fn with_agent(lab: &Lab, rest: &str) {
    std::fs::write(lab.path().join("agent.sh"), AGENT).unwrap();
    configure(lab, &format!("  ralph: {{run: [sh, agent.sh, '{{task}}'], max_iterations: 1, {rest}}}\n"));
}

fn one_attempt(lab: &Lab) {
    std::fs::write(lab.path().join("p.json"), r#"{"queues":{"loops":{"maxAttempts":1}}}"#).unwrap();
    lab.line("policy apply p.json").ok();
}

/// What is on the disk below a folder.
fn bytes_below(folder: &std::path::Path) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let about = std::fs::symlink_metadata(entry.path()).unwrap();
        bytes += if about.is_dir() { bytes_below(&entry.path()) } else { about.blocks() * 512 };
    }
    bytes
}

/// X2, on both stores.
#[test]
fn every_way_an_agent_can_end() {
    everywhere(|lab| {
        with_agent(lab, "timeout_secs: 20");
        one_attempt(lab);
        for mode in ["success", "fail", "away", "forks", "flood", "closed", "holds", "core"] {
            lab.line(&format!("loop add --kind ralph --id {mode}")).ok();
        }
        let ran = up_until_idle(lab);
        assert_eq!(
            states(lab),
            [
                "away complete",
                "closed complete",
                "core failed",
                "fail failed",
                "flood complete",
                "forks complete",
                "holds complete",
                "success complete"
            ],
            "{}",
            ran.stderr
        );
        assert_eq!(started_for(lab), Vec::<u32>::new());
        assert!(bytes_below(&lab.path().join(".rota")) < 100_000_000);
        assert_eq!(lab.line("loop logs holds").ok(), "held\n");
        let exit = |id: &str| -> serde_json::Value {
            serde_json::from_str(&read(record(lab, id, 1, "exit.json"))).unwrap()
        };
        assert_eq!((&exit("fail")["why"], &exit("fail")["steps"][0]["code"]), (&"ended".into(), &3.into()));
        assert_eq!(exit("core")["steps"][0]["signal"], 6);
        assert!(show(lab, "core")["failReason"].as_str().unwrap().contains("killed by signal 6"));
        for id in ["away", "closed", "flood", "forks", "holds", "success"] {
            let tries = show(lab, id);
            assert_eq!((tries["attempts"].as_u64(), tries["tries"].as_u64()), (Some(0), Some(1)), "{id}");
        }
        assert!(runs(lab).is_empty());
    });
}

/// X2: those that do not want to end take too long, and are ended with all that they started.
#[test]
fn agents_that_do_not_end_are_ended() {
    let lab = Lab::new();
    with_agent(&lab, "timeout_secs: 1");
    one_attempt(&lab);
    for mode in ["hang", "ignore"] {
        lab.line(&format!("loop add --kind ralph --id {mode}")).ok();
    }
    up_until_idle(&lab);
    assert_eq!(states(&lab), ["hang parked", "ignore parked"]);
    for id in ["hang", "ignore"] {
        assert_eq!(show(&lab, id)["parkedReason"], "timed out after 1 s (attempt 1/1)");
    }
    assert_eq!(started_for(&lab), Vec::<u32>::new());
}

/// Waits for its name to be called, and says which attempt it is.
const WAITING: &str = "  ralph: {run: 'echo $$ >> began.$ROTA_TASK; until test -e go.$ROTA_TASK; do sleep 0.02; done; echo over'}\n";

fn begun(lab: &Lab, id: &str) -> usize {
    std::fs::read_to_string(lab.path().join(format!("began.{id}"))).map_or(0, |text| text.lines().count())
}

fn call(lab: &Lab, id: &str) {
    std::fs::write(lab.path().join(format!("go.{id}")), "").unwrap();
}

/// X3: a daemon is killed; the next one goes on with what runs, and settles what ended meanwhile.
#[test]
fn a_killed_daemon_is_followed_by_one_that_goes_on() {
    everywhere(|lab| {
        configure(lab, WAITING);
        for id in ["meanwhile", "later"] {
            lab.line(&format!("loop add --kind ralph --id {id}")).ok();
        }
        let mut daemon = Daemon::start(lab);
        until("both run", || begun(lab, "meanwhile") == 1 && begun(lab, "later") == 1);
        daemon.kill9();
        call(lab, "meanwhile");
        let exit = record(lab, "meanwhile", 1, "exit.json");
        until("one ends without a daemon", || exit.exists());
        assert_eq!(states(lab), ["later running", "meanwhile running"]);
        let daemon = Daemon::start(lab);
        until("it is settled", || states(lab) == ["later running", "meanwhile complete"]);
        call(lab, "later");
        until("the other one is too", || states(lab) == ["later complete", "meanwhile complete"]);
        daemon.down(lab);
        assert_eq!((begun(lab, "meanwhile"), begun(lab, "later")), (1, 1), "nothing ran twice");
        assert!(read(lab.path().join("up.log")).contains("Iteration taken over"));
        assert_eq!(lab.line("loop logs later").ok(), "over\n");
        assert_eq!(started_for(lab), Vec::<u32>::new());
        assert!(runs(lab).is_empty());
    });
}

/// Shims, agents, and both are killed, under a daemon and without one.
#[test]
fn killed_shims_leave_nothing_behind() {
    for with_daemon in [true, false] {
        let lab = Lab::new();
        configure(
            &lab,
            "  ralph: {run: 'setsid sleep 1000 & echo $$ >> began.$ROTA_TASK; sleep 1000', max_iterations: 1}\n",
        );
        one_attempt(&lab);
        for id in ["shim", "agent", "both"] {
            lab.line(&format!("loop add --kind ralph --id {id}")).ok();
        }
        let mut daemon = Daemon::start(&lab);
        let of = |id: &str| runs(&lab).into_iter().find(|run| run.run["lease"] == format!("lease-{id}-1"));
        for id in ["shim", "agent", "both"] {
            until("it runs", || begun(&lab, id) == 1 && of(id).is_some_and(|run| run.agent().is_some()));
        }
        let (shim, agent, both) = (of("shim").unwrap(), of("agent").unwrap(), of("both").unwrap());
        if !with_daemon {
            daemon.kill9();
        }
        signal("KILL", shim.shim());
        signal("KILL", agent.agent().unwrap());
        signal("KILL", both.shim());
        signal("KILL", both.agent().unwrap());
        if !with_daemon {
            daemon = Daemon::start(&lab);
        }
        let wanted = ["agent failed", "both parked", "shim parked"];
        until("each is accounted for", || states(&lab) == wanted);
        until("nothing is left", || started_for(&lab).is_empty());
        assert!(
            show(&lab, "shim")["parkedReason"].as_str().unwrap().starts_with("lost: its shim was killed")
        );
        assert!(show(&lab, "agent")["failReason"].as_str().unwrap().contains("killed by signal 9"));
        daemon.down(&lab);
        assert!(runs(&lab).is_empty());
    }
}

/// The machine was started anew: all processes are gone, and the numbers on record are somebody else's.
#[test]
fn somebody_elses_process_is_left_alone() {
    let lab = Lab::new();
    configure(&lab, WAITING);
    lab.line("loop add --kind ralph --id r").ok();
    let mut daemon = Daemon::start(&lab);
    until("it runs", || runs(&lab).first().is_some_and(|run| run.agent().is_some()));
    daemon.kill9();
    let run = runs(&lab).remove(0);
    let record = run.record.clone();
    kill_all(&lab);
    let mut stranger = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let boots = ["another-boot", run.began["shim"]["bootId"].as_str().unwrap()];
    let forge = |boot: &str| {
        let us = serde_json::json!({"pid": stranger.id(), "startTime": 1, "bootId": boot});
        let run = serde_json::json!({"run": run.run});
        let began = serde_json::json!({"began": {"shim": us, "cgroup": null}});
        let agent = serde_json::json!({"agent": us});
        std::fs::write(&record, format!("{run}\n{began}\n{agent}\n")).unwrap();
    };
    // With another start of the machine, then under the same one with another start of the process.
    forge(boots[0]);
    let mut daemon = Daemon::start(&lab);
    until("the lost one is told of", || {
        read(lab.path().join("up.log")).contains("lost: its shim was killed")
    });
    daemon.kill9();
    forge(boots[1]);
    let daemon = Daemon::start(&lab);
    until("it is put away", || !record.exists());
    assert!(stranger.try_wait().unwrap().is_none(), "it was not signalled");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    call(&lab, "r");
    daemon.down(&lab);
}

/// A daemon that took agents over renews their leases and can end them.
#[test]
fn what_was_taken_over_hears_orders() {
    let lab = Lab::new();
    std::fs::write(lab.path().join("p.json"), r#"{"queues":{"loops":{"leaseTtlMs":2000}}}"#).unwrap();
    lab.line("policy apply p.json").ok();
    configure(&lab, WAITING);
    for id in ["goes-on", "cancelled"] {
        lab.line(&format!("loop add --kind ralph --id {id}")).ok();
    }
    let mut daemon = Daemon::start(&lab);
    until("both run", || begun(&lab, "goes-on") == 1 && begun(&lab, "cancelled") == 1);
    daemon.kill9();
    let daemon = Daemon::start(&lab);
    let renewals = || lab.line("log --task goes-on --json").ok().matches("\"renewed\"").count();
    until("its lease has been renewed for longer than it lasts", || renewals() >= 5);
    lab.line("loop cancel cancelled").ok();
    until("the other one is ended", || started_for(&lab).len() <= 3);
    call(&lab, "goes-on");
    until("it completes", || states(&lab).contains(&"goes-on complete".to_owned()));
    daemon.down(&lab);
    assert_eq!(begun(&lab, "goes-on"), 1);
    let kept = read(record(&lab, "goes-on", 1, "run.jsonl"));
    assert!(kept.starts_with("{\"run\":") && kept.contains("{\"orders\":"), "{kept}");
}

/// Shims come from a process of their own; if that is killed, the next shim comes from another one.
#[test]
fn a_killed_nursery_is_replaced() {
    let lab = Lab::new();
    configure(&lab, WAITING);
    let daemon = Daemon::start(&lab);
    let nursery = || {
        let listed = std::fs::read_dir("/proc").unwrap();
        let pids = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let is_ours = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_else(|_| String::new());
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_else(|_| Vec::new());
            let parent =
                stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)).map(str::to_owned);
            parent == Some(daemon.0.id().to_string()) && command.ends_with(b"\0nursery\0")
        };
        pids.filter(is_ours).collect::<Vec<u32>>()
    };
    lab.line("loop add --kind ralph --id before").ok();
    until("it runs", || begun(&lab, "before") == 1);
    let first = nursery();
    assert_eq!(first.len(), 1);
    signal("KILL", first[0]);
    lab.line("loop add --kind ralph --id after").ok();
    until("the next one runs too", || begun(&lab, "after") == 1);
    let second = nursery();
    assert!(second.len() == 1 && second != first, "{first:?} {second:?}");
    for id in ["before", "after"] {
        call(&lab, id);
    }
    until("both complete", || states(&lab) == ["after complete", "before complete"]);
    daemon.down(&lab);
}

/// A run that an earlier version wrote down, with a shim that only knows that version: it is ended, and begun again.
#[test]
fn runs_of_an_earlier_version_are_ended() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: ['true']}\n");
    let written = |marker: &str, run: &str| {
        let folder = lab.path().join(".rota/run/agents").join(marker);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("run.json"), run).unwrap();
        let shim = std::process::Command::new("sleep").arg("1000").env("ROTA_RUN", marker).spawn().unwrap();
        (folder, shim)
    };
    let (folder, mut shim) = written("1-2-3", r#"{"iteration":1}"#);
    let (others, mut somebody_else) = written("1-2-4", r#"{"iteration":null}"#);
    let daemon = Daemon::start(&lab);
    until("its folder is gone", || !folder.exists());
    assert!(!shim.wait().unwrap().success());
    assert!(
        others.exists() && somebody_else.try_wait().unwrap().is_none(),
        "that of a `rota work` is left alone"
    );
    somebody_else.kill().unwrap();
    somebody_else.wait().unwrap();
    daemon.down(&lab);
}

/// X4: a daemon that is stopped for two leases: its agent ends in time, and the other attempt stands.
#[test]
fn a_stopped_daemon_does_not_count() {
    let store = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", store.path().join("rota.db").display());
    let (one, other) = (Lab::on(url.clone()), Lab::on(url));
    std::fs::write(one.path().join("p.json"), r#"{"queues":{"loops":{"leaseTtlMs":2000}}}"#).unwrap();
    one.line("policy apply p.json").ok();
    configure(
        &one,
        "  ralph: {run: 'echo $$ > pid.$ROTA_TASK; until test -e go.$ROTA_TASK; do sleep 0.02; done'}\n",
    );
    configure(&other, "  ralph: {run: 'echo other'}\n");
    // One ends while nobody listens, one would go on for ever.
    one.line("loop add --kind ralph --id r").ok();
    one.line("loop add --kind ralph --id h").ok();
    let daemon = Daemon::start(&one);
    let runs = |id: &str| {
        std::fs::read_to_string(one.path().join(format!("pid.{id}"))).is_ok_and(|pid| pid.ends_with('\n'))
    };
    until("both run", || runs("r") && runs("h"));
    signal("STOP", daemon.0.id());
    std::fs::write(one.path().join("go.r"), "").unwrap();
    let second = Daemon::start(&other);
    until("the other attempt completes", || states(&other) == ["h complete", "r complete"]);
    assert_eq!(started_for(&one), Vec::<u32>::new(), "the first one has ended before");
    signal("CONT", daemon.0.id());
    until("the first one says so", || {
        let log = read(one.path().join("up.log"));
        log.contains("outcome=lapsed") || log.contains("Lease is gone")
    });
    assert_eq!(states(&one), ["h complete", "r complete"]);
    for id in ["h", "r"] {
        assert_eq!(show(&one, id)["attempts"], 1, "the lost one");
    }
    let journal = one.line("log --json").ok();
    assert_eq!(journal.matches("\"outcome\": \"done\"").count(), 2, "{journal}");
    daemon.down(&one);
    second.down(&other);
}

/// X4 without anybody else: nobody renews the lease, and the agent ends by itself before it runs out.
#[test]
fn an_agent_ends_with_its_lease() {
    let lab = Lab::new();
    std::fs::write(
        lab.path().join("p.json"),
        r#"{"queues":{"loops":{"leaseTtlMs":2000},"tasks":{"leaseTtlMs":2000}}}"#,
    )
    .unwrap();
    lab.line("policy apply p.json").ok();
    configure(&lab, "  ralph: {run: 'setsid sleep 1000 & sleep 1000'}\n");
    lab.line("loop add --kind ralph --id r").ok();
    let mut daemon = Daemon::start(&lab);
    until("it runs", || started_for(&lab).len() >= 4);
    daemon.kill9();
    until("all have ended", || started_for(&lab).is_empty());
    let exit = read(record(&lab, "r", 1, "exit.json"));
    assert!(exit.contains("\"why\":\"lease_lost\""), "{exit}");
    // The same under `rota work`.
    lab.line("task create t T").ok();
    let mut work = lab
        .command()
        .args(["work", "--", "sh", "-c", "export ROTA_ARTIFACTS=$PWD; sleep 1000"])
        .spawn()
        .unwrap();
    until("it runs", || !started_for(&lab).is_empty());
    work.kill().unwrap();
    work.wait().unwrap();
    until("all have ended", || started_for(&lab).is_empty());
}

/// X6: fifty agents, one TERM: asked, and given back; two: told.
#[test]
fn fifty_agents_are_stopped() {
    for (script, signals) in [("sleep 1000", 1), ("trap \"\" TERM; while :; do sleep 1; done", 2)] {
        let lab = Lab::new();
        configure(
            &lab,
            &format!(
                "  plan: {{run: 'cp children $ROTA_ARTIFACTS/children.jsonl'}}\n  ralph: {{run: 'echo $$ > began.$ROTA_TASK; {script}'}}\n"
            ),
        );
        let child = |n| format!("{{\"id\":\"r{n}\",\"t\":\"R\",\"kind\":\"ralph\"}}\n");
        std::fs::write(lab.path().join("children"), (0..50).map(child).collect::<String>()).unwrap();
        lab.line("loop add --kind plan --id plan").ok();
        let mut daemon = Daemon::start(&lab);
        until("all run", || (0..50).all(|n| begun(&lab, &format!("r{n}")) == 1));
        let asked = Instant::now();
        for _ in 0..signals {
            signal("TERM", daemon.0.id());
            until("it is heard", || read(lab.path().join("up.log")).contains("Stopping"));
        }
        wait_for(&mut daemon.0);
        // Many times what it may take, because the machine may do other things too; for ever would be longer.
        assert!(asked.elapsed() < Duration::from_secs(150), "{:?}", asked.elapsed());
        let pending = states(&lab).iter().filter(|state| state.ends_with(" pending")).count();
        assert_eq!(pending, 50, "{:?}", states(&lab));
        assert_eq!(show(&lab, "r0")["attempts"], 0);
        assert_eq!(started_for(&lab), Vec::<u32>::new());
        assert!(runs(&lab).is_empty());
    }
}
