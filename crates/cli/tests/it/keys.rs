//! Keys in the environment: commands see only what is passed on, and other processes cannot read them from a daemon.

use std::process::{Command, Stdio};

use crate::daemon::{Daemon, configure, read, until, wait_for};
use crate::support::{Lab, Ran};

const CANARIES: [&str; 5] =
    ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "DATABASE_PASSWORD", "MY_OWN_VALUE"];

fn with_canaries(mut command: Command) -> Command {
    command.envs(CANARIES.map(|name| (name, format!("canary-{name}"))));
    command
}

/// What a command under `rota work` sees of them, and what `rota work` says.
fn seen_by_work(lab: &Lab, id: &str, flags: &[&str]) -> (Vec<String>, String) {
    lab.run(&["task", "create", id, "T"]).ok();
    let mut command = with_canaries(lab.command());
    command.arg("work").arg("--until-empty").args(flags).args(["--", "sh", "-c", "env > seen"]);
    let output = command.output().unwrap();
    let ran = Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let seen = read(lab.path().join("seen"));
    let of = |name: &&str| seen.contains(&format!("{name}=canary-{name}\n"));
    (CANARIES.iter().filter(|name| of(name)).map(|name| (*name).to_owned()).collect(), ran.stderr)
}

#[test]
fn work_passes_on_what_is_listed() {
    for lab in [Lab::new(), Lab::of_ordinary_user()] {
        let (seen, said) = seen_by_work(&lab, "a", &[]);
        assert_eq!(seen, Vec::<String>::new());
        let warning = "warning: commands do not see ANTHROPIC_API_KEY, AWS_SECRET_ACCESS_KEY, OPENAI_API_KEY (use --pass-env ANTHROPIC_API_KEY,";
        assert_eq!(said.matches(warning).count(), 1, "{said}");
        let (seen, said) =
            seen_by_work(&lab, "b", &["--pass-env", "ANTHROPIC_API_KEY", "--pass-env", "MY_OWN_VALUE"]);
        assert_eq!(seen, ["ANTHROPIC_API_KEY", "MY_OWN_VALUE"]);
        assert!(said.contains("do not see AWS_SECRET_ACCESS_KEY, OPENAI_API_KEY ("), "{said}");
        std::fs::write(lab.path().join("rota.yml"), "work: {pass_env: [PATH, OPENAI_API_KEY, MY_*]}\n")
            .unwrap();
        assert_eq!(seen_by_work(&lab, "c", &[]).0, ["OPENAI_API_KEY", "MY_OWN_VALUE"]);
    }
}

#[test]
fn names_that_cannot_be_passed_on_are_refused() {
    let lab = Lab::new();
    for name in ["ROTA_TOKEN", "A=B", "", "*"] {
        let ran = lab.run(&["work", "--pass-env", name, "--", "true"]);
        assert!(
            ran.code == 1 && ran.stderr.contains("--pass-env must be the name of a variable"),
            "{}",
            ran.stderr
        );
    }
    std::fs::write(lab.path().join("rota.yml"), "work: {pass_env: [ROTA_TOKEN]}\n").unwrap();
    let ran = lab.run(&["task", "list"]);
    assert!(ran.code == 1 && ran.stderr.contains("work.pass_env"), "{}", ran.stderr);
}

/// What a process was started with; none where the system hides it from an ordinary user, which is better still.
fn environment_of(pid: u32) -> Option<String> {
    match std::fs::read(format!("/proc/{pid}/environ")) {
        Ok(text) => Some(String::from_utf8_lossy(&text).into_owned()),
        Err(error) => {
            let is_hidden = error.kind() == std::io::ErrorKind::PermissionDenied;
            assert!(is_hidden && !rustix::process::geteuid().is_root(), "{error}");
            None
        }
    }
}

/// `/proc` shows the environment that a process was started with, to every process of the same user.
#[test]
fn no_key_is_in_the_environment_of_a_daemon() {
    for lab in [Lab::new(), Lab::of_ordinary_user()] {
        let text = "gateway: {listen: '127.0.0.1:0', upstreams: {anthropic: {key_env: MY_OWN_VALUE}}}\n";
        std::fs::write(lab.path().join("rota.yml"), text).unwrap();
        lab.run(&["task", "create", "t", "T"]).ok();
        for verb in [&["up"][..], &["gateway"], &["work", "--", "sh", "-c", "echo $PPID > works; sleep 1000"]]
        {
            let log = std::fs::File::create(lab.path().join("log")).unwrap();
            let mut child =
                with_canaries(lab.command()).args(verb).stdout(Stdio::null()).stderr(log).spawn().unwrap();
            let is_up = || match verb[0] {
                "up" => lab.line("status").code == 0,
                "gateway" => read(lab.path().join("log")).contains("gateway on"),
                _ => lab.path().join("works").exists(),
            };
            until("it runs", is_up);
            if let Some(seen) = environment_of(child.id()) {
                assert!(!seen.contains("canary-"), "{verb:?}: {seen}");
                assert!(seen.contains("PATH="), "the rest stays");
            }
            let term = Command::new("kill").arg(child.id().to_string()).status().unwrap();
            assert!(term.success());
            wait_for(&mut child);
        }
    }
}

/// A key that a kind is given by name reaches its agent, though the daemon's environment does not show it.
#[test]
fn an_agent_gets_the_key_that_it_is_given() {
    for lab in [Lab::new(), Lab::of_ordinary_user()] {
        configure(
            &lab,
            "  ralph: {run: 'env > seen; cat /proc/$(cut -d\" \" -f1 .rota/run/rota.lock)/environ > daemon 2>&1; true', pass_env: [PATH, OPENAI_API_KEY]}\n",
        );
        lab.line("loop add --kind ralph --id r").ok();
        let variables = CANARIES.map(|name| (name, "canary"));
        let daemon = Daemon::launch(&lab, &variables);
        until("it is done", || crate::daemon::states(&lab) == ["r complete"]);
        let seen = read(lab.path().join("seen"));
        assert!(seen.contains("OPENAI_API_KEY=canary\n") && seen.matches("canary").count() == 1, "{seen}");
        let daemons =
            String::from_utf8_lossy(&std::fs::read(lab.path().join("daemon")).unwrap()).into_owned();
        assert!(!daemons.contains("API_KEY"), "{daemons}");
        daemon.down(&lab);
    }
}
