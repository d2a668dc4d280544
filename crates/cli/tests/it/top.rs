//! `rota top` in a real terminal: start, navigate, act, resize, quit, TERM and a panic; the terminal is sane afterwards.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::mcp::client::Http;
use crate::support::{Lab, ROTA};

/// How long a screen may take to show what it should.
const WAIT: Duration = Duration::from_secs(60);

/// A terminal of its own, with a shell in it.
struct Tmux {
    socket: String,
}

impl Tmux {
    fn start(lab: &Lab, width: u16, height: u16) -> Self {
        let socket = lab.path().join("tmux").display().to_string();
        let terminal = Self { socket };
        let size = [width.to_string(), height.to_string()];
        let mut command = terminal.command(&["new-session", "-d", "-x", &size[0], "-y", &size[1]]);
        command.args(["env", "PS1=shell$ ", "sh"]).current_dir(lab.path());
        command.env_remove("ROTA_STORE").env_remove("TMUX").env("TERM", "xterm-256color");
        assert!(command.status().unwrap().success());
        terminal.wait_for("shell$");
        terminal
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-S", &self.socket, "-f", "/dev/null"]).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    #[track_caller]
    fn wait_for(&self, wanted: &str) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if screen.contains(wanted) {
                return screen;
            }
            assert!(start.elapsed() < WAIT, "{wanted} is not to be seen:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A shell answers, sees what is typed, and is not on the other screen.
    #[track_caller]
    fn is_sane(&self, code: &str) {
        let start = Instant::now();
        while self.run(&["display-message", "-p", "#{alternate_on}"]).trim() != "0" {
            assert!(start.elapsed() < WAIT, "the screen was not put back");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.keys(&["echo \"ended $?\"", "Enter"]);
        self.wait_for(&format!("ended {code}"));
        self.keys(&["stty -a | tr ' ' '\\n' | grep -c -x -e echo -e icanon", "Enter"]);
        self.wait_for("\n2\n");
    }

    /// The process that has the terminal.
    fn pid_of_top(&self) -> String {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let children = Command::new("ps").args(["--ppid", shell.trim(), "-o", "pid="]).output().unwrap();
        String::from_utf8(children.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // Gone already, perhaps.
        drop(self.command(&["kill-server"]).output());
    }
}

fn filled() -> Lab {
    let lab = Lab::new();
    lab.line("task create first \"Do \\e[2J it\"").ok();
    lab.line("task create second Then --deps first").ok();
    lab.line("task claim first --agent someone").ok();
    lab.line("loop add --kind plan --id root --prompt Plan").ok();
    lab.line("loop add --kind spec --id below --parent root").ok();
    lab
}

fn start_top(terminal: &Tmux, variables: &str) {
    terminal.keys(&[&format!("{variables} {ROTA} top"), "Enter"]);
    terminal.wait_for("q quit");
}

fn navigate(terminal: &Tmux) {
    terminal.wait_for("@someone");
    terminal.keys(&["2"]);
    let screen = terminal.wait_for("no (parent incomplete)");
    assert!(screen.contains("RUNNABLE") && screen.contains("queue loops"), "{screen}");
    terminal.keys(&["]"]);
    terminal.wait_for("no (blocked)");
    terminal.keys(&["/", "second", "Enter", "w"]);
    terminal.wait_for("second (tasks, open) is not runnable");
    terminal.keys(&["4"]);
    terminal.wait_for("Rate Limited: No");
    terminal.keys(&["5"]);
    terminal.wait_for("below spec [pending]");
    terminal.keys(&["6"]);
    terminal.wait_for("created below");
    terminal.keys(&["?"]);
    terminal.wait_for("sort by the next column");
    terminal.keys(&["x", "5"]);
    terminal.wait_for("root plan [pending]");
}

#[test]
fn start_navigate_act_resize_quit() {
    let lab = filled();
    let terminal = Tmux::start(&lab, 80, 24);
    start_top(&terminal, "");
    navigate(&terminal);
    terminal.keys(&["p"]);
    terminal.wait_for("pause root?");
    terminal.keys(&["y"]);
    terminal.wait_for("root plan [paused]");
    assert!(lab.line("loop show root").ok().contains("paused"));
    for (width, height) in [("200", "60"), ("40", "10"), ("80", "24")] {
        terminal.run(&["resize-window", "-x", width, "-y", height]);
        terminal.wait_for("root plan [paused]");
    }
    terminal.keys(&["q"]);
    terminal.is_sane("0");
}

/// Where the supervisor's cycles stand is on the first screen.
#[test]
fn the_supervisors_cycles() {
    let lab = crate::supervise::repository("source: local");
    crate::supervise::first_cycle(&lab);
    let terminal = Tmux::start(&lab, 120, 24);
    start_top(&terminal, "");
    terminal.wait_for("supervisor does not run: 1 cycle, the last at ");
    terminal.keys(&["q"]);
    terminal.is_sane("0");
}

/// Each key that changes something asks first, does it, and says so; what cannot be done is said, too.
#[test]
fn every_act() {
    let lab = filled();
    let terminal = Tmux::start(&lab, 80, 24);
    start_top(&terminal, "");
    terminal.keys(&["5"]);
    terminal.wait_for("root plan [pending]");
    let shown = |key: &str| {
        let shown: Value = serde_json::from_str(&lab.line("loop show root --json").ok()).unwrap();
        shown[key].clone()
    };
    terminal.keys(&["p"]);
    terminal.wait_for("pause root?");
    terminal.keys(&["n"]);
    terminal.wait_for("nothing was done");
    assert_eq!(shown("status"), "pending");
    for (key, words, field, wanted) in [
        ("p", "pause", "status", json!("paused")),
        ("r", "resume", "status", json!("pending")),
        ("+", "raise the priority of", "priority", json!(1)),
        ("c", "cancel", "status", json!("invalidated")),
        ("z", "reset", "status", json!("pending")),
        ("c", "cancel", "status", json!("invalidated")),
        ("i", "reiterate", "status", json!("pending")),
    ] {
        terminal.keys(&[key]);
        terminal.wait_for(&format!("{words} root?"));
        terminal.keys(&["y"]);
        terminal.wait_for(&format!("done: {words} root"));
        assert_eq!(shown(field), wanted, "{words}");
    }
    terminal.keys(&["r"]);
    terminal.wait_for("resume root?");
    terminal.keys(&["y"]);
    terminal.wait_for("cannot be resumed");
    terminal.keys(&["q"]);
    terminal.is_sane("0");
}

#[test]
fn a_signal_and_a_panic_leave_a_sane_terminal() {
    let lab = filled();
    let terminal = Tmux::start(&lab, 80, 24);
    start_top(&terminal, "NO_COLOR=1");
    let killed = Command::new("kill").args(["-TERM", &terminal.pid_of_top()]).status().unwrap();
    assert!(killed.success());
    terminal.is_sane("143");
    terminal.keys(&["clear", "Enter"]);
    start_top(&terminal, "ROTA_TOP_PANIC=1 RUST_BACKTRACE=0");
    terminal.keys(&["!"]);
    let start = Instant::now();
    let has_prompt =
        |screen: &str| screen.split("told to panic").nth(1).is_some_and(|rest| rest.contains("shell$"));
    while !has_prompt(&terminal.screen()) {
        assert!(start.elapsed() < WAIT, "{}", terminal.screen());
        std::thread::sleep(Duration::from_millis(50));
    }
    terminal.is_sane("101");
}

#[test]
fn on_a_server() {
    let lab = filled();
    let server = Http::serve(&lab, &[]);
    let terminal = Tmux::start(&lab, 80, 24);
    let place = format!("ROTA_STORE=http://{} ROTA_TOKEN={}", server.address, server.token);
    start_top(&terminal, &place);
    navigate(&terminal);
    terminal.keys(&["q"]);
    terminal.is_sane("0");
}

#[test]
fn without_a_terminal() {
    let ran = Lab::new().line("top");
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (1, "error: rota top wants a terminal; see rota status and rota log\n")
    );
}
