//! Loops that fail, loops that are limited, and what `rota up` does between two iterations. Each case runs the real binary.

use std::collections::BTreeMap;

use crate::daemon::{Daemon, configure, everywhere, read, show, states, until, up_until_idle};
use crate::support::Lab;

/// A configuration with other settings than those of `configure`.
fn configure_all(lab: &Lab, text: &str) {
    std::fs::write(lab.path().join("rota.yml"), format!("disk: {{min_free_gb: 0}}\n{text}")).unwrap();
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

/// Milliseconds that agents wrote down, by task.
fn starts(lab: &Lab) -> Vec<(String, i64)> {
    let text = read(lab.path().join("starts"));
    let start = |line: &str| {
        let (task, at) = line.split_once(' ')?;
        Some((task.to_owned(), at.parse().ok()?))
    };
    text.lines().filter_map(start).collect()
}

/// 000, scenario 3: with one slot a loop that keeps failing does not hold it; a fresh loop runs after its next failure.
#[test]
fn a_failing_loop_lets_a_fresh_one_go_first() {
    everywhere(|lab| {
        configure_all(
            lab,
            "scheduler: {poll_interval_secs: 1}\nconcurrency: {max_loops: 1}\nloops:\n  ralph: {run: 'echo $ROTA_TASK >> order; case $ROTA_TASK in bad) until test -e go; do sleep 0.02; done; exit 1;; esac', max_iterations: 4}\n",
        );
        let daemon = Daemon::start(lab);
        lab.line("loop add --kind ralph --id bad").ok();
        let order = || std::fs::read_to_string(lab.path().join("order")).unwrap_or_default();
        until("it runs", || order() == "bad\n");
        lab.line("loop add --kind ralph --id fresh").ok();
        std::fs::write(lab.path().join("go"), "").unwrap();
        until("both have ended", || states(lab) == ["bad failed", "fresh complete"]);
        assert_eq!(order(), "bad\nfresh\nbad\nbad\nbad\n");
        daemon.down(lab);
        let bad = show(lab, "bad");
        assert_eq!((bad["iteration"].as_u64(), bad["tries"].as_u64()), (Some(4), Some(4)));
        let first = &bad["iterations"][0];
        assert_eq!(first["outcome"], "released", "{bad}");
        assert_eq!(first["reason"], "the agent ended with exit code 1", "{bad}");
        let log = read(lab.path().join("up.log"));
        assert!(
            log.contains(
                "Loop ended loop_id=bad loop_type=ralph outcome=\"gave way\" reason=\"'fresh' goes first\""
            ),
            "{log}"
        );
        let shown = lab.line("loop show bad").ok();
        assert!(shown.contains("released (the agent ended with exit code 1)"), "{shown}");
    });
}

/// The penalty counts failed iterations, and `debug scheduler` shows the next iteration's number.
#[test]
fn a_waiting_loop_shows_its_penalty() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'exit 1', max_iterations: 40}\n");
    lab.line("loop add --kind ralph --id r").ok();
    let lines = || lab.line("debug scheduler").ok();
    assert!(lines().contains("r           ralph   100       0m     0      1     yes"), "{}", lines());
    let daemon = Daemon::start(&lab);
    until("it failed a few times", || show(&lab, "r")["iteration"].as_u64() >= Some(3));
    lab.line("queue pause loops").ok();
    until("it gave its lease back", || show(&lab, "r")["status"] == "pending");
    daemon.down(&lab);
    let tries = show(&lab, "r")["tries"].as_i64().unwrap();
    let row = json(&lab.line("debug scheduler --json").ok())["loops"][0].clone();
    assert_eq!(row["terms"][3]["value"].as_i64(), Some(-(tries * 5).min(30)), "{row}");
    assert_eq!(row["iteration"].as_i64(), Some(tries + 1), "{row}");
}

/// No iteration starts inside a block, neither of waiting nor of running loops; one line tells of the burst.
#[test]
fn a_block_holds_running_loops_too() {
    everywhere(|lab| {
        configure_all(
            lab,
            "scheduler: {poll_interval_secs: 1}\nrate_limit: {initial_backoff_secs: 3, recovery_period_secs: 1}\nloops:\n  ralph: {run: 'echo $ROTA_TASK $(date +%s%3N) >> starts; case $ROTA_TASK-$ROTA_ITERATION in limited-1) sleep 0.3; exit 75;; limited-*) exit 0;; esac; sleep 0.05; test -e go', uses_api: example, max_iterations: 1000}\n",
        );
        let daemon = Daemon::start(lab);
        for id in ["limited", "a", "b", "c"] {
            lab.line(&format!("loop add --kind ralph --id {id}")).ok();
        }
        let log = || read(lab.path().join("up.log"));
        until("it is limited", || log().contains("backing off globally"));
        until("it came back", || show(lab, "limited")["status"] == "complete");
        std::fs::write(lab.path().join("go"), "").unwrap();
        until("all complete", || states(lab).iter().all(|state| state.ends_with("complete")));
        daemon.down(lab);
        let limited = show(lab, "limited");
        let ended: i64 = millis(&limited["iterations"][0]["endedAt"]);
        let inside: Vec<_> =
            starts(lab).into_iter().filter(|(_, at)| *at > ended + 500 && *at < ended + 2_900).collect();
        assert_eq!(inside, [], "started inside the block that began at {ended}");
        assert_eq!(log().matches("backing off globally").count(), 1, "{}", log());
    });
}

fn millis(value: &serde_json::Value) -> i64 {
    value.as_str().unwrap().parse::<rota_core::UnixMillis>().unwrap().get()
}

/// An agent says how long to wait, in its output or in a file; above 300 s it is a quota.
#[test]
fn a_limited_agent_says_how_long_to_wait() {
    let lab = Lab::new();
    configure_all(
        &lab,
        "rate_limit: {initial_backoff_secs: 1, max_backoff_secs: 2}\nloops:\n  line: {run: 'echo Retry-After: 40 >&2; exit 75'}\n  file: {run: 'echo 50 > $ROTA_ARTIFACTS/retry-after; exit 75'}\n  quota: {run: 'echo retry-after: 3600; exit 75'}\n  silent: {run: 'exit 75'}\n",
    );
    for kind in ["line", "file", "quota", "silent"] {
        lab.line(&format!("loop add --kind {kind} --id {kind}")).ok();
    }
    let ran = lab.line("up --once");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let waits: BTreeMap<&str, i64> = ["line", "file", "quota", "silent"]
        .into_iter()
        .map(|kind| {
            let task = show(&lab, kind);
            (kind, millis(&task["nextEligibleAt"]) - millis(&task["updatedAt"]))
        })
        .collect();
    assert_eq!(waits, [("file", 50_000), ("line", 40_000), ("quota", 3_600_000), ("silent", 1_000)].into());
    assert!(ran.stderr.contains("kind:quota: its quota is used up"), "{}", ran.stderr);
    let why = json(&lab.line("why line --json").ok());
    assert_eq!(why["obstacles"][0]["reason"], "cooling_down", "{why}");
    // The block is that of the kind alone.
    lab.line("loop add --kind line --id second").ok();
    let why = json(&lab.line("why second --json").ok());
    assert_eq!(
        (&why["waits"][0]["reason"], &why["waits"][0]["upstream"]),
        (&"rate_limited".into(), &"kind:line".into())
    );
}

/// After a block loops return one by one, and `max_api_calls` bounds those of an upstream where no gateway runs.
#[test]
fn loops_of_an_upstream_return_by_a_ramp() {
    let lab = Lab::new();
    configure_all(
        &lab,
        "concurrency: {max_api_calls: 3}\nrate_limit: {initial_backoff_secs: 1, recovery_period_secs: 6}\nloops:\n  ralph: {run: 'test $ROTA_TASK-$ROTA_ITERATION = first-1 && exit 75; echo $ROTA_TASK $(date +%s%3N) >> starts; until test -e go; do sleep 0.02; done', uses_api: example}\n",
    );
    lab.line("loop add --kind ralph --id first").ok();
    let daemon = Daemon::start(&lab);
    until("it is limited", || {
        show(&lab, "first")["iteration"].as_u64() == Some(1) && show(&lab, "first")["status"] == "pending"
    });
    for number in 1..=6 {
        lab.line(&format!("loop add --kind ralph --id r{number}")).ok();
    }
    let block_ends = millis(&show(&lab, "first")["nextEligibleAt"]);
    let running = || states(&lab).iter().filter(|state| state.ends_with("running")).count();
    until("as many run as may", || running() == 3);
    let why = json(&lab.line("why r6 --json").ok());
    let full =
        why["waits"].as_array().unwrap().iter().find(|wait| wait["reason"] == "upstream_full").cloned();
    assert_eq!(
        full.unwrap(),
        serde_json::json!({"reason": "upstream_full", "upstream": "example", "ceiling": 3, "active": 3})
    );
    for (number, (_, at)) in (0_i64..).zip(starts(&lab)) {
        let least = block_ends + number * 6_000 / 3;
        assert!(at >= least - 5, "loop {number} started {} ms too early", least - at);
    }
    std::fs::write(lab.path().join("go"), "").unwrap();
    until("all complete", || states(&lab).iter().all(|state| state.ends_with("complete")));
    daemon.down(&lab);
}

/// What an agent is told: the reason of a restart, no feedback from before a pass, and refused children as a failure.
#[test]
fn prompts_say_what_happened() {
    let lab = Lab::new();
    configure(
        &lab,
        "  ralph: {run: 'cp $ROTA_PROMPT seen.$ROTA_ITERATION; echo said $ROTA_ITERATION; test $ROTA_ITERATION != 1 -a $ROTA_ITERATION != 4'}\n  plan: {run: 'cp $ROTA_PROMPT plan.$ROTA_ITERATION; test $ROTA_ITERATION = 2 || printf \"{\\\"id\\\":\\\"r\\\",\\\"t\\\":\\\"R\\\",\\\"kind\\\":\\\"ralph\\\"}\\n\" > $ROTA_ARTIFACTS/children.jsonl'}\n",
    );
    lab.line("loop add --kind ralph --id r").ok();
    assert_eq!(up_until_idle(&lab).code, 0);
    assert!(read(lab.path().join("seen.2")).contains("## Feedback of iteration 1"));
    lab.line("loop reiterate r --reason 'The wheel is `square`.'").ok();
    assert_eq!(up_until_idle(&lab).code, 0);
    let third = read(lab.path().join("seen.3"));
    assert!(!third.contains("## Feedback"), "{third}");
    assert!(
        third.contains("## Why it was started over\n\n```text\nThe wheel is `square`.\n```\n"),
        "{third}"
    );
    lab.line("loop reiterate r --reason 'once more'").ok();
    assert_eq!(up_until_idle(&lab).code, 0);
    let fifth = read(lab.path().join("seen.5"));
    assert!(fifth.contains("once more") && fifth.contains("## Feedback of iteration 4"), "{fifth}");
    // A child that is there already is refused: the iteration did not pass, and the next one is told so.
    lab.line("loop add --kind plan --id p").ok();
    assert_eq!(up_until_idle(&lab).code, 0);
    let second = read(lab.path().join("plan.2"));
    assert!(second.contains("- iteration 1: not passed: children.jsonl: "), "{second}");
    let reason = show(&lab, "p")["iterations"][0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("children.jsonl: "), "{reason}");
}

/// A plan with more children than an agent may add does not pass, adds none of them, and is told why.
#[test]
fn too_many_children_are_feedback() {
    let lab = Lab::new();
    let agent = r#"cp $ROTA_PROMPT prompt.$ROTA_ITERATION
most=1001; test $ROTA_ITERATION = 1 || most=2
for number in $(seq $most); do echo "{\"id\":\"c$number\",\"t\":\"C\",\"kind\":\"other\"}"; done > $ROTA_ARTIFACTS/children.jsonl
"#;
    std::fs::write(lab.path().join("agent"), agent).unwrap();
    configure(&lab, "  plan: {run: [sh, agent]}\n");
    lab.line("loop add --kind plan --id p").ok();
    assert_eq!(up_until_idle(&lab).code, 0);
    assert_eq!(states(&lab), ["c1 pending", "c2 pending", "p complete"]);
    let told = "children.jsonl: task 'p' would have 1001 children: its agent may add at most 1000";
    let second = read(lab.path().join("prompt.2"));
    assert!(second.contains(&format!("- iteration 1: not passed: {told}")), "{second}");
    assert_eq!(show(&lab, "p")["iterations"][0]["reason"], told);
}

/// An artifact that is removed before the child starts is noticed by the grant, which journals it.
#[test]
fn an_artifact_that_is_gone_holds_the_child() {
    let lab = Lab::new();
    configure(&lab, "  spec: {run: 'true'}\n  plain: {run: 'until test -e go; do sleep 0.02; done'}\n");
    let text = read(lab.path().join("rota.yml")).replace("loops:", "concurrency: {max_loops: 1}\nloops:");
    std::fs::write(lab.path().join("rota.yml"), text).unwrap();
    let daemon = Daemon::start(&lab);
    lab.line("loop add --kind plain --id holder --priority critical").ok();
    until("it runs", || show(&lab, "holder")["status"] == "running");
    std::fs::write(lab.path().join("spec.md"), "spec").unwrap();
    lab.line("loop add --kind spec --id s --triggered-by spec.md").ok();
    until("its artifact was seen", || lab.line("why s").ok().contains("ok  artifact"));
    std::fs::remove_file(lab.path().join("spec.md")).unwrap();
    std::fs::write(lab.path().join("go"), "").unwrap();
    until("the grant has looked", || lab.line("log --task s").ok().contains("artifact_missing"));
    assert_eq!(show(&lab, "s")["status"], "pending");
    let why = json(&lab.line("why s --json").ok());
    assert_eq!(why["obstacles"][0]["reason"], "artifact_missing", "{why}");
    std::fs::write(lab.path().join("spec.md"), "spec").unwrap();
    until("it runs once the file is back", || show(&lab, "s")["status"] == "complete");
    daemon.down(&lab);
}

/// `loop show` says which iteration is validating, and the record of a run has its arguments as text.
#[test]
fn a_running_loop_shows_its_phase() {
    let lab = Lab::new();
    configure(
        &lab,
        "  ralph: {run: [sh, -c, 'until test -e work; do sleep 0.02; done'], validate: 'until test -e check; do sleep 0.02; done'}\n",
    );
    let daemon = Daemon::start(&lab);
    lab.line("loop add --kind ralph --id r").ok();
    until("it runs", || !crate::daemon::runs(&lab).is_empty());
    let run = crate::daemon::runs(&lab).remove(0).run;
    assert_eq!(run["steps"][0]["argv"][0], "sh", "{run}");
    assert_eq!(show(&lab, "r")["iterations"][0].get("validating"), None);
    std::fs::write(lab.path().join("work"), "").unwrap();
    until("it validates", || show(&lab, "r")["iterations"][0]["validating"] == true);
    assert!(lab.line("loop show r").ok().contains(" validating\n"));
    std::fs::write(lab.path().join("check"), "").unwrap();
    until("it is complete", || show(&lab, "r")["status"] == "complete");
    assert_eq!(show(&lab, "r")["iterations"][0].get("validating"), None);
    daemon.down(&lab);
}

/// Ticks tell how things stood before the selection, at info only when something has changed, as often as configured.
#[test]
fn ticks_are_told_when_something_changes() {
    let lab = Lab::new();
    configure_all(
        &lab,
        "scheduler: {poll_interval_secs: 30}\nconcurrency: {max_loops: 2}\nloops:\n  ralph: {run: 'until test -e go; do sleep 0.02; done'}\n",
    );
    for id in ["a", "b", "c"] {
        lab.line(&format!("loop add --kind ralph --id {id}")).ok();
    }
    let daemon = Daemon::launch(&lab, &[("ROTA_LOG", "debug")]);
    let log = || std::fs::read_to_string(lab.path().join("up.log")).unwrap_or_default();
    until("two run", || log().matches("Iteration started").count() == 2);
    let first = "INFO  Scheduler tick pending=3 runnable=3 selected=2 running=0 slots_available=2";
    until("the first tick is told", || log().contains("Scheduler tick"));
    assert!(
        log().contains(first)
            || log().contains("pending=3 runnable=3 running=0 selected=2 slots_available=2"),
        "{}",
        log()
    );
    let ticks = || log().matches("Scheduler tick").count();
    let (before, start) = (ticks(), std::time::Instant::now());
    until("a few seconds pass", || start.elapsed().as_secs() >= 5);
    assert!(ticks() <= before + 2, "it looks every 30 s: {}", log());
    let news = log().lines().filter(|line| line.contains("INFO  Scheduler tick")).count();
    assert!(news <= 2, "{}", log());
    std::fs::write(lab.path().join("go"), "").unwrap();
    until("all complete", || states(&lab).iter().all(|state| state.ends_with("complete")));
    daemon.down(&lab);
}

/// A dying agent is started ten times, then less and less often, and `why` says why it waits.
#[test]
fn a_dying_agent_cools_down() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'echo $ROTA_TASK >> starts; exit 1', max_iterations: 1000}\n");
    for number in 0..5 {
        lab.line(&format!("loop add --kind ralph --id r{number}")).ok();
    }
    let daemon = Daemon::start(&lab);
    let cooling = |number: u32| lab.line(&format!("why r{number}")).ok().contains(" times in a row");
    until("all cool down", || (0..5).all(cooling));
    let tries = |number: u32| show(&lab, &format!("r{number}"))["tries"].as_u64().unwrap();
    let (before, start) = ((0..5).map(tries).sum::<u64>(), std::time::Instant::now());
    until("a few seconds pass", || start.elapsed().as_secs() >= 4);
    // From the tenth on at most one start after 1, 2, 4 … seconds each.
    let after = (0..5).map(tries).sum::<u64>();
    assert!(before >= 50 && after <= before + 15, "{before} starts, then {after}");
    daemon.down(&lab);
    assert!(read(lab.path().join("up.log")).contains("it failed fast too often and cools down until"));
}

/// A plan that is started over keeps a child that it makes from the same line and the same artifact.
#[test]
fn a_plan_that_is_started_over_keeps_what_is_the_same() {
    everywhere(|lab| {
        let agent = r#"echo $ROTA_TASK $ROTA_ITERATION >> ran
case $ROTA_TASK in
plan) echo same > $ROTA_ARTIFACTS/a.md; echo $ROTA_ITERATION > $ROTA_ARTIFACTS/b.md
printf '{"id":"a","t":"A","kind":"loop","artifact":"a.md"}\n{"id":"b","t":"B","kind":"loop","artifact":"b.md"}\n' > $ROTA_ARTIFACTS/children.jsonl ;;
a) printf '{"id":"leaf","t":"L","kind":"loop"}\n' > $ROTA_ARTIFACTS/children.jsonl ;;
leaf) until test -e go; do sleep 0.02; done ;;
esac
"#;
        std::fs::write(lab.path().join("agent"), agent).unwrap();
        configure(lab, "  loop: {run: [sh, agent]}\n");
        let daemon = Daemon::start(lab);
        lab.line("loop add --kind loop --id plan").ok();
        let ran = || std::fs::read_to_string(lab.path().join("ran")).unwrap_or_default();
        until("the leaf runs", || ran().contains("leaf 1\n") && ran().contains("b 1\n"));
        until("b is complete", || show(lab, "b")["status"] == "complete");
        lab.line("loop reiterate plan --reason again").ok();
        until("the leaf runs again", || ran().contains("leaf 2\n"));
        until("b runs again", || ran().contains("b 2\n"));
        std::fs::write(lab.path().join("go"), "").unwrap();
        until("all complete", || states(lab).iter().all(|state| state.ends_with("complete")));
        daemon.down(lab);
        assert!(!ran().contains("a 2\n"), "{}", ran());
        assert_eq!(show(lab, "a")["parentIteration"], 2);
        // The child whose artifact changed comes from the new one.
        let b = show(lab, "b");
        assert_eq!(
            (&b["parentIteration"], &b["triggeredBy"]),
            (&2.into(), &"iterations/002/artifacts/b.md".into())
        );
        assert_eq!(lab.line("doctor").code, 0);
    });
}

/// Loops inherit a tree's priority, and a change above reaches those that wait.
#[test]
fn priorities_are_inherited() {
    let lab = Lab::new();
    configure(&lab, "  plan: {run: 'true'}\n");
    lab.line("loop add --kind plan --id top --priority high").ok();
    lab.line("loop add --kind spec --id child --parent top").ok();
    lab.line("loop add --kind ralph --id leaf --parent child").ok();
    lab.line("loop add --kind ralph --id own --parent child --priority critical").ok();
    let priority = |id: &str| show(&lab, id)["priority"].as_u64();
    assert_eq!((priority("child"), priority("leaf"), priority("own")), (Some(1), Some(1), Some(0)));
    lab.line("task update top --priority 3").ok();
    assert_eq!((priority("child"), priority("leaf"), priority("own")), (Some(3), Some(3), Some(0)));
}
