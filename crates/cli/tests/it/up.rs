//! `rota up` with the real binary and scripted agents: whole hierarchies, every end of a loop, people who interfere.
//! Each case runs on SQLite and on PostgreSQL.

use std::path::Path;
use std::process::Stdio;

use crate::daemon::{
    Daemon, configure, everywhere, hang_up, read, show, states, until, up_until_idle, wait_for,
};
use crate::support::Lab;

const FAMILY: &str = r#"
  plan: {run: 'printf "{\"id\":\"s1\",\"t\":\"S1\",\"kind\":\"spec\"}\n{\"id\":\"s2\",\"t\":\"S2\",\"kind\":\"spec\",\"deps\":[\"s1\"]}\n" > $ROTA_ARTIFACTS/children.jsonl'}
  spec: {run: 'printf "{\"id\":\"$ROTA_TASK.p\",\"t\":\"P\",\"kind\":\"phase\"}\n" > $ROTA_ARTIFACTS/children.jsonl'}
  phase: {run: 'printf "{\"id\":\"$ROTA_TASK/r\",\"t\":\"R\",\"kind\":\"ralph\"}\n" > $ROTA_ARTIFACTS/children.jsonl'}
  ralph: {run: 'echo $ROTA_TASK >> order'}
"#;

#[test]
fn a_hierarchy_to_the_end() {
    everywhere(|lab| {
        configure(lab, FAMILY);
        lab.line("loop add --kind plan --id p").ok();
        let ran = up_until_idle(lab);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(
            states(lab),
            [
                "p complete",
                "s1 complete",
                "s1.p complete",
                "s1.p/r complete",
                "s2 complete",
                "s2.p complete",
                "s2.p/r complete"
            ]
        );
        assert!(
            ran.stdout.starts_with("p [plan] complete\n  s1 [spec] complete\n    s1.p [phase] complete\n"),
            "{}",
            ran.stdout
        );
        for line in ["Scheduler tick ", "Iteration started ", "Loop ended "] {
            assert!(ran.stderr.contains(line), "{line}: {}", ran.stderr);
        }
        assert_eq!(lab.line("doctor").code, 0);
    });
}

#[test]
fn feedback_reaches_the_next_iteration_and_tries_run_out() {
    everywhere(|lab| {
        configure(
            lab,
            "  ralph: {run: 'cp $ROTA_PROMPT seen.$ROTA_TASK.$ROTA_ITERATION; echo said $ROTA_ITERATION', validate: 'echo check $ROTA_ITERATION; test $ROTA_TASK = good -a $ROTA_ITERATION = 3', max_iterations: 3}\n",
        );
        lab.line("loop add --kind ralph --id good --title Good --prompt 'Do it well.'").ok();
        lab.line("loop add --kind ralph --id bad").ok();
        let ran = up_until_idle(lab);
        assert_eq!(ran.code, 1, "something failed: {}", ran.stderr);
        assert_eq!(states(lab), ["bad failed", "good complete"]);
        let third = read(lab.path().join("seen.good.3"));
        for part in
            ["# Good", "try 3 of 3", "Do it well.", "- iteration 1: not passed", "Feedback", "check 2"]
        {
            assert!(third.contains(part), "{part}: {third}");
        }
        assert!(!read(lab.path().join("seen.good.1")).contains("Feedback"));
        let bad = show(lab, "bad");
        assert_eq!((bad["iteration"].as_u64(), bad["tries"].as_u64()), (Some(3), Some(3)));
        assert!(bad["failReason"].as_str().unwrap().starts_with("not passed after 3 iterations"));
        assert_eq!(lab.line("loop logs good").ok(), "said 3\ncheck 3\n");
        assert_eq!(lab.line("loop logs good --iteration 2").ok(), "said 2\ncheck 2\n");
        assert_eq!(lab.line("loop logs good --iteration 9").code, 1);
        let piece = |file: &str, text: &str| {
            format!(r#"{{"schemaVersion":1,"id":"good","iteration":3,"file":"{file}","text":"{text}\n"}}"#)
                + "\n"
        };
        let pieces = piece("output.log", "said 3") + &piece("validate.log", "check 3");
        assert_eq!(lab.line("loop logs good --json").ok(), pieces);
    });
}

#[test]
fn each_exit_code_has_its_end() {
    everywhere(|lab| {
        configure(
            lab,
            "  ralph: {run: 'case $ROTA_TASK in limited) test $ROTA_ITERATION = 2 || exit 75;; person) echo look at it; exit 77;; esac', uses_api: example}\n  ghost: {run: [no-such-agent]}\n  slow: {run: [sleep, '1000'], timeout_secs: 1}\n  broken: {run: 'echo \"{\" > $ROTA_ARTIFACTS/children.jsonl', max_iterations: 2}\n",
        );
        for (kind, id) in [
            ("ralph", "limited"),
            ("ralph", "person"),
            ("ralph", "fine"),
            ("ghost", "ghost"),
            ("broken", "broken"),
            ("nobody", "nobody"),
        ] {
            lab.line(&format!("loop add --kind {kind} --id {id}")).ok();
        }
        let ran = up_until_idle(lab);
        assert_eq!(
            states(lab),
            [
                "broken failed",
                "fine complete",
                "ghost parked",
                "limited complete",
                "nobody pending",
                "person parked"
            ],
            "{}",
            ran.stderr
        );
        assert!(
            ran.stderr
                .contains("WARN  Rate limited, backing off globally consecutive_hits=1 retry_after_secs=1"),
            "{}",
            ran.stderr
        );
        assert!(
            show(lab, "ghost")["parkedReason"].as_str().unwrap().starts_with("cannot start 'no-such-agent'")
        );
        assert_eq!(show(lab, "person")["parkedReason"], "look at it");
        assert!(
            show(lab, "broken")["failReason"]
                .as_str()
                .unwrap()
                .contains("children.jsonl: line 1: invalid JSON")
        );
        let limited = show(lab, "limited");
        assert_eq!((limited["attempts"].as_u64(), limited["tries"].as_u64()), (Some(0), Some(1)));
        assert!(lab.line("why nobody").ok().contains("nobody"), "no runner is a reason");
        assert_eq!(lab.line("doctor").code, 0);
    });
}

#[test]
fn a_timeout_is_an_attempt() {
    let lab = Lab::new();
    configure(&lab, "  slow: {run: [sleep, '1000'], timeout_secs: 1}\n");
    let policy = r#"{"queues":{"loops":{"maxAttempts":1}}}"#;
    std::fs::write(lab.path().join("p.json"), policy).unwrap();
    lab.line("policy apply p.json").ok();
    lab.line("loop add --kind slow --id s").ok();
    assert_eq!(up_until_idle(&lab).code, 1);
    assert_eq!(show(&lab, "s")["parkedReason"], "timed out after 1 s (attempt 1/1)");
}

#[test]
fn people_interfere_while_it_runs() {
    everywhere(|lab| {
        // Each agent says that it runs, then waits for its name to be called.
        configure(
            lab,
            "  plan: {run: 'printf \"{\\\"id\\\":\\\"child\\\",\\\"t\\\":\\\"C\\\",\\\"kind\\\":\\\"ralph\\\"}\\n\" > $ROTA_ARTIFACTS/children.jsonl'}\n  ralph: {run: 'echo $$ > runs.$ROTA_TASK.$ROTA_ITERATION; until test -e go.$ROTA_TASK; do sleep 0.02; done'}\n",
        );
        let daemon = Daemon::start(lab);
        let runs = |name: &str| lab.path().join(format!("runs.{name}"));
        let pid = |name: &str| {
            until(name, || runs(name).exists() && !read(runs(name)).is_empty());
            read(runs(name)).trim().to_owned()
        };
        let alive = |pid: &str| Path::new("/proc").join(pid).exists();
        lab.line("loop add --kind ralph --id paused").ok();
        lab.line("loop add --kind ralph --id cancelled").ok();
        lab.line("loop add --kind plan --id plan").ok();
        let pids = [pid("paused.1"), pid("cancelled.1"), pid("child.1")];
        assert!(lab.line("status").ok().contains("3/50 slots"));
        lab.line("loop pause paused").ok();
        lab.line("loop cancel cancelled").ok();
        // The plan starts over while its child runs: the child is stopped, invalidated, and comes again.
        lab.line("loop reiterate plan").ok();
        for pid in &pids {
            until("the agent is gone", || !alive(pid));
        }
        let again = pid("child.2");
        assert_eq!(states(lab), ["cancelled invalidated", "child running", "paused paused", "plan complete"]);
        lab.line("loop resume paused").ok();
        pid("paused.2");
        // A deleted parent takes its children with it.
        lab.line("task delete plan").ok();
        until("the orphan is gone", || !alive(&again));
        assert_eq!(show(lab, "child")["status"], "failed");
        std::fs::write(lab.path().join("go.paused"), "").unwrap();
        until("the other one completes", || states(lab).contains(&"paused complete".to_owned()));
        daemon.down(lab);
        assert_eq!(lab.line("status").code, 2);
        assert_eq!(lab.line("doctor").code, 0);
    });
}

/// One plan is started over, another one cancelled, each while a loop two levels below it runs.
#[test]
fn whole_trees_are_started_over_and_cancelled() {
    let agent = r#"tree=${ROTA_TASK#*-}
child() { printf '{"id":"%s","t":"T","kind":"%s"}\n' "$2" "$1" > "$ROTA_ARTIFACTS/children.jsonl"; }
case $1-$ROTA_ITERATION in
plan-1) child spec spec-$tree ;;
spec-1) child ralph leaf-$tree ;;
ralph-1) echo $$ > runs.$tree; exec sleep 1000 ;;
esac
"#;
    everywhere(|lab| {
        std::fs::write(lab.path().join("agent"), agent).unwrap();
        let kind = |name: &str| format!("  {name}: {{run: [sh, agent, {name}]}}\n");
        configure(lab, &["plan", "spec", "ralph"].map(kind).concat());
        let daemon = Daemon::start(lab);
        let leaf = |tree: &str| {
            lab.line(&format!("loop add --kind plan --id plan-{tree}")).ok();
            let file = lab.path().join(format!("runs.{tree}"));
            until("the leaf runs", || file.exists() && read(&file).ends_with('\n'));
            Path::new("/proc").join(read(&file).trim())
        };
        let (again, never) = (leaf("again"), leaf("never"));
        lab.line("loop reiterate plan-again").ok();
        lab.line("loop cancel plan-never").ok();
        until("both are stopped", || !again.exists() && !never.exists());
        until("the plan has ended again", || show(lab, "plan-again")["iteration"] == 2);
        until("nothing runs", || !states(lab).iter().any(|state| state.ends_with(" running")));
        let ended = states(lab);
        assert!(ended.contains(&"leaf-again invalidated".to_owned()), "{ended:?}");
        assert!(ended.contains(&"leaf-never invalidated".to_owned()), "{ended:?}");
        daemon.down(lab);
        assert_eq!(lab.line("doctor").code, 0);
    });
}

#[test]
fn stopping_gives_the_tasks_back() {
    let lab = Lab::new();
    configure(
        &lab,
        "  ralph: {run: 'trap \"echo asked > asked; exit 3\" TERM; echo $$ > pid; while :; do sleep 0.02; done'}\n",
    );
    let daemon = Daemon::start(&lab);
    lab.line("loop add --kind ralph --id r").ok();
    until("it runs", || lab.path().join("pid").exists());
    daemon.down(&lab);
    assert_eq!(read(lab.path().join("asked")), "asked\n");
    let r = show(&lab, "r");
    assert_eq!(
        (r["status"].as_str(), r["attempts"].as_u64(), r["tries"].as_u64()),
        (Some("pending"), Some(0), None)
    );
}

#[test]
fn a_bad_configuration_is_refused_and_the_old_one_stays() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'echo old > said.$ROTA_TASK'}\n");
    let daemon = Daemon::start(&lab);
    std::fs::write(lab.path().join("rota.yml"), "loops: {ralph: {rum: x}}\n").unwrap();
    let refused = lab.line("reload");
    assert!(refused.code == 1 && refused.stderr.contains("rum"), "{}", refused.stderr);
    assert_eq!(lab.line("loop list").code, 1, "nothing goes by a wrong configuration");
    std::fs::write(lab.path().join("other.yml"), "").unwrap();
    lab.line("ROTA_CONFIG=other.yml loop add --kind ralph --id a").ok();
    until("it ran by the old one", || {
        std::fs::read(lab.path().join("said.a")).is_ok_and(|said| said == b"old\n")
    });
    configure(&lab, "  ralph: {run: 'echo new > said.$ROTA_TASK'}\n");
    assert_eq!(lab.line("reload").ok(), "reloaded\n");
    lab.line("loop add --kind ralph --id b").ok();
    until("it ran by the new one", || states(&lab).contains(&"b complete".to_owned()));
    assert_eq!(read(lab.path().join("said.b")), "new\n");
    let before = read(lab.path().join("up.log")).matches("Configuration reloaded").count();
    assert!(hang_up(daemon.0.id()).success());
    let reloads = || read(lab.path().join("up.log")).matches("Configuration reloaded").count();
    until("it reads it again, and goes on", || reloads() > before);
    assert_eq!(lab.line("status").code, 0);
    let second = lab.line("up --once");
    assert!(second.code == 1 && second.stderr.contains("another rota up runs here"), "{}", second.stderr);
    daemon.down(&lab);
}

#[test]
fn agents_see_what_they_may_and_no_more() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'env > seen', env: {EXTRA: value}, pass_env: [PATH, LC_*]}\n");
    lab.line("loop add --kind ralph --id r").ok();
    let mut child = lab
        .command()
        .args(["up", "--until-idle"])
        .env("SECRET", "s")
        .env("LC_ALL", "C")
        .env("HOME", "/h")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&mut child);
    let seen = read(lab.path().join("seen"));
    let mut names: Vec<&str> =
        seen.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    names.retain(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name));
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "EXTRA",
            "LC_ALL",
            "PATH",
            "ROTA_ARTIFACTS",
            "ROTA_ITERATION",
            "ROTA_LEASE",
            "ROTA_PROMPT",
            "ROTA_RUN",
            "ROTA_SCOPE",
            "ROTA_STORE",
            "ROTA_TASK",
            "ROTA_TOKEN"
        ]
    );
    assert!(seen.contains("ROTA_LEASE=lease-r-1\n"));
}

#[test]
fn ids_of_any_kind_have_folders_of_their_own() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'echo hello'}\n");
    let ids = ["a/b", ".dot", "grüße 😀", "x.lock", "100%"];
    for id in ids {
        assert_eq!(lab.run(&["loop", "add", "--kind", "ralph", "--id", id]).code, 0, "{id}");
    }
    assert_eq!(up_until_idle(&lab).code, 0);
    for id in ids {
        assert_eq!(lab.run(&["loop", "logs", id]).ok(), "hello\n", "{id}");
    }
    let loops = std::fs::read_dir(lab.path().join(".rota/loops")).unwrap();
    assert_eq!(loops.count(), ids.len());
}

#[test]
fn a_worktree_for_each_loop() {
    let lab = Lab::new();
    let git = |line: &str| {
        let mut command = std::process::Command::new("git");
        command.current_dir(lab.path()).args(["-c", "user.name=t", "-c", "user.email=t@example.invalid"]);
        assert!(command.args(line.split(' ')).stdout(Stdio::null()).status().unwrap().success(), "{line}");
    };
    git("init -q");
    git("commit -q --allow-empty -m first");
    configure(
        &lab,
        "  ralph: {run: 'pwd > $ROTA_ARTIFACTS/where; echo x > file; git add file; git -c user.name=t -c user.email=t@example.invalid commit -qm work', worktree: true}\n",
    );
    lab.line("loop add --kind ralph --id a/b").ok();
    let ran = up_until_idle(&lab);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let place = read(lab.path().join(".rota/loops/a%2Fb/iterations/001/artifacts/where"));
    assert!(place.trim().ends_with(".rota/worktrees/a%2Fb"), "{place}");
    git("rev-parse --quiet --verify rota/a%2Fb:file");
    assert!(!Path::new(place.trim()).exists(), "it is taken away when the loop is complete");
}

#[test]
fn low_disk_space_begins_nothing() {
    let lab = Lab::new();
    std::fs::write(
        lab.path().join("rota.yml"),
        "disk: {min_free_gb: 1000000}\nloops: {ralph: {run: 'echo ran > ran'}}\n",
    )
    .unwrap();
    lab.line("loop add --kind ralph --id r").ok();
    let ran = lab.line("up --once");
    assert_eq!(ran.code, 0);
    assert!(
        ran.stderr.contains("WARN  Low disk space, pausing new loop creation available_gb="),
        "{}",
        ran.stderr
    );
    assert!(!lab.path().join("ran").exists());
    assert_eq!(states(&lab), ["r pending"]);
    let why: serde_json::Value = serde_json::from_str(&lab.line("why r --json").ok()).unwrap();
    assert_eq!(why["waits"][0]["reason"], "disk_low", "{why}");
    assert_eq!(why["freedBy"], "more disk space");
}

#[test]
fn worktrees_have_a_ceiling() {
    crate::worktrees::ceiling_counts_while_granting();
}

/// A loop waits for a moment that a clock says; one that is set back or far ahead must not stop the rest.
#[test]
fn a_clock_that_jumps() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'echo $ROTA_TASK >> ran'}\n");
    // Made by clocks that were far ahead and far behind, then run by one that is right again.
    lab.line("ROTA_ALLOW_NOW=1 loop add --kind ralph --id future --now 2100-01-01T00:00:00Z").ok();
    lab.line("loop add --kind ralph --id past --now 2000-01-01T00:00:00Z").ok();
    lab.line("loop add --kind ralph --id now").ok();
    let ran = up_until_idle(&lab);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(states(&lab), ["future complete", "now complete", "past complete"], "{}", ran.stderr);
    assert_eq!(lab.line("doctor").code, 0);
}

#[test]
fn what_is_chosen_and_what_waits_is_told() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'test $ROTA_ITERATION = 2 || exit 75', uses_api: example}\n");
    lab.line("loop add --kind ralph --id r").ok();
    let ran = lab.line("ROTA_LOG=debug up --until-idle");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for part in [
        "DEBUG Selected loop for execution age_ms=",
        "loop_id=r loop_type=ralph priority=100",
        "INFO  Scheduler tick pending=",
        "DEBUG Rate limited, not selecting new loops until=",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
}

#[test]
fn validation_goes_on_while_others_are_limited() {
    let lab = Lab::new();
    configure(
        &lab,
        "  ralph: {run: 'case $ROTA_TASK in b) until test -e a.validates; do sleep 0.02; done; test $ROTA_ITERATION = 2 || exit 75;; esac', validate: 'test $ROTA_TASK = b || { : > a.validates; until test -e go; do sleep 0.02; done; }', uses_api: example}\n",
    );
    let daemon = Daemon::start(&lab);
    lab.line("loop add --kind ralph --id a").ok();
    lab.line("loop add --kind ralph --id b").ok();
    until("b is limited", || read(lab.path().join("up.log")).contains("backing off globally"));
    assert_eq!(show(&lab, "a")["status"], "running");
    std::fs::write(lab.path().join("go"), "").unwrap();
    until("both complete", || states(&lab) == ["a complete", "b complete"]);
    daemon.down(&lab);
}

#[test]
fn an_artifact_triggers_a_loop() {
    let lab = Lab::new();
    configure(&lab, "  spec: {run: 'cp spec.md seen'}\n");
    let daemon = Daemon::start(&lab);
    lab.line("loop add --kind spec --id s --triggered-by spec.md").ok();
    assert_eq!(states(&lab), ["s pending"]);
    assert!(lab.line("debug scheduler").ok().contains("no (artifact missing)"));
    std::fs::write(lab.path().join("spec.md"), "the spec").unwrap();
    until("it runs", || states(&lab) == ["s complete"]);
    assert_eq!(read(lab.path().join("seen")), "the spec");
    daemon.down(&lab);
}

#[test]
fn a_folder_that_cannot_be_made_fails_the_loop_and_not_the_daemon() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'true'}\n");
    std::fs::write(lab.path().join("p.json"), r#"{"queues":{"loops":{"maxAttempts":1}}}"#).unwrap();
    lab.line("policy apply p.json").ok();
    lab.line("loop add --kind ralph --id r").ok();
    std::fs::write(lab.path().join(".rota/loops"), "in the way").unwrap();
    assert_eq!(up_until_idle(&lab).code, 1);
    let reason = show(&lab, "r")["parkedReason"].as_str().unwrap().to_owned();
    assert!(reason.contains(".rota/loops/r/iterations/001") && reason.ends_with("(attempt 1/1)"), "{reason}");
}

#[test]
fn what_cannot_be_meant() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'true'}\n");
    for (line, code, wanted) in [
        ("up --once --until-idle", 1, "error: --once and --until-idle are mutually exclusive"),
        ("up --now 2026-01-01T00:00:00Z", 1, "error: --now: `rota up` goes by the store's clock"),
        ("status", 2, "error: no rota up runs here"),
        ("down --json", 2, "error: no rota up runs here"),
        ("reload", 2, "error: no rota up runs here"),
        ("loop logs nobody", 2, "error: task 'nobody' not found"),
    ] {
        let ran = lab.line(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{line}");
        assert!(ran.stderr.starts_with(wanted), "{line}: {}", ran.stderr);
    }
    lab.line("loop add --kind ralph --id r").ok();
    assert!(lab.line("loop logs r").stderr.starts_with("error: loop 'r' has not run yet"));
    let tree: serde_json::Value = serde_json::from_str(&lab.line("up --until-idle --json").stdout).unwrap();
    assert_eq!((&tree["schemaVersion"], &tree["loops"][0]["status"]), (&1.into(), &"complete".into()));
}
