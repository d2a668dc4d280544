//! A daemon of the real binary, and what can be seen of it from outside.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rota_testbed::Server;

use crate::support::{Lab, Ran, feed};

/// Nothing here takes this long, however busy the machine.
pub const TOO_LONG: Duration = Duration::from_secs(240);
/// Between two looks: who looks all the time takes the processor from what is waited for.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs a case on both kinds of store.
pub fn everywhere(case: impl Fn(&Lab)) {
    case(&Lab::new());
    case(&Lab::on(Server::shared().fresh_url()));
}

pub fn configure(lab: &Lab, loops: &str) {
    let text = format!(
        "disk: {{min_free_gb: 0}}\nscheduler: {{poll_interval_secs: 1}}\nrate_limit: {{initial_backoff_secs: 1}}\nloops:\n{loops}"
    );
    std::fs::write(lab.path().join("rota.yml"), text).unwrap();
}

pub fn up_until_idle(lab: &Lab) -> Ran {
    feed(lab.command().args(["up", "--until-idle", "--publish"]), b"")
}

pub fn wait_for(child: &mut Child) {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > TOO_LONG {
            child.kill().unwrap();
            panic!("it runs for ever");
        }
        std::thread::park_timeout(PAUSE);
    }
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TOO_LONG, "never: {what}");
        std::thread::park_timeout(PAUSE);
    }
}

/// `id status` of every loop, in the order of their ids.
pub fn states(lab: &Lab) -> Vec<String> {
    let text = lab.line("loop list --json").ok();
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut states: Vec<String> = list["loops"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| format!("{} {}", item["id"].as_str().unwrap(), item["status"].as_str().unwrap()))
        .collect();
    states.sort();
    states
}

pub fn show(lab: &Lab, id: &str) -> serde_json::Value {
    serde_json::from_str(&lab.line(&format!("loop show {id} --json")).ok()).unwrap()
}

/// A file that the daemon keeps about an iteration of a loop, whose id is a plain name.
pub fn record(lab: &Lab, id: &str, number: u32, file: &str) -> PathBuf {
    let of_id = lab.path().join(".rota/records/default").join(id);
    let lives = std::fs::read_dir(of_id).into_iter().flatten().map(|entry| entry.unwrap().path());
    let life = lives.filter(|path| path.is_dir()).max().unwrap_or_default();
    life.join(format!("{number:03}")).join(file)
}

pub fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Sends HUP to a process of ours.
pub fn hang_up(pid: u32) -> std::process::ExitStatus {
    std::process::Command::new("kill").args(["-HUP", &pid.to_string()]).status().unwrap()
}

/// Sends any signal to a process of ours.
pub fn signal(name: &str, pid: u32) {
    let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.unwrap().success(), "kill -{name} {pid}");
}

/// The processes that were started for a folder's runs: shims as they are written down, agents and all that came of them
/// by what they carry.
pub fn started_for(lab: &Lab) -> Vec<u32> {
    let shims: Vec<u32> = runs(lab).iter().map(Run::shim).collect();
    let is_shim = |pid: &u32| {
        let name = || std::fs::read_to_string(format!("/proc/{pid}/comm"));
        shims.contains(pid) && name().is_ok_and(|name| name == "rota shim\n")
    };
    let store = format!("ROTA_ARTIFACTS={}", lab.path().canonicalize().unwrap().display());
    let carries = |pid: &u32| {
        let seen = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_else(|_| Vec::new());
        seen.split(|byte| *byte == 0).any(|variable| variable.starts_with(store.as_bytes()))
    };
    let is_left = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_else(|_| String::new());
        stat.rsplit_once(')').is_some_and(|(_, state)| !state.starts_with(" Z"))
    };
    let listed = std::fs::read_dir("/proc").unwrap();
    let pids = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| (carries(pid) || is_shim(pid)) && is_left(pid)).collect()
}

/// Kills all of them, as a machine that is switched off does.
pub fn kill_all(lab: &Lab) {
    until("all are gone", || {
        let left = started_for(lab);
        for pid in &left {
            // It may have ended by itself in this moment.
            let _sent = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).output();
        }
        left.is_empty()
    });
}

/// The runs that are written down, each with what its files say.
pub fn runs(lab: &Lab) -> Vec<Run> {
    let folder = lab.path().join(".rota/run/agents");
    let Ok(listed) = std::fs::read_dir(folder) else { return Vec::new() };
    let run = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).ok()?;
        let lines: Vec<serde_json::Value> =
            text.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
        let last = |name: &str| lines.iter().rev().find_map(|line| line.get(name).cloned());
        Some(Run {
            run: last("run")?,
            began: last("began")?,
            agent: last("agent").unwrap_or_default(),
            record: path,
        })
    };
    listed.filter_map(|entry| run(entry.unwrap().path())).collect()
}

/// A run that has begun.
pub struct Run {
    pub record: std::path::PathBuf,
    pub run: serde_json::Value,
    pub began: serde_json::Value,
    pub agent: serde_json::Value,
}

impl Run {
    pub fn shim(&self) -> u32 {
        self.began["shim"]["pid"].as_u64().unwrap().try_into().unwrap()
    }

    pub fn agent(&self) -> Option<u32> {
        self.agent["pid"].as_u64().map(|pid| pid.try_into().unwrap())
    }
}

/// A daemon that is ended with the test.
pub struct Daemon(pub Child);

impl Daemon {
    pub fn start(lab: &Lab) -> Self {
        let daemon = Self::launch(lab, &[]);
        until("the daemon answers", || lab.line("status").code == 0);
        daemon
    }

    /// Without waiting for it; what it says is added to `up.log`.
    pub fn launch(lab: &Lab, variables: &[(&str, &str)]) -> Self {
        let log = std::fs::File::options().create(true).append(true).open(lab.path().join("up.log")).unwrap();
        let mut command = lab.command();
        command.args(["up", "--publish"]).envs(variables.iter().copied());
        Self(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// Ends it as an accident does.
    pub fn kill9(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub fn down(mut self, lab: &Lab) {
        assert_eq!(lab.line("down").ok(), "stopped\n");
        wait_for(&mut self.0);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Ended already in a test that passed.
        let _killed = self.0.kill();
        let _waited = self.0.wait();
    }
}
