//! What `rota top` costs in a real terminal: its own processor time at four frames a second, pane by pane.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Result;
use crate::agents::processor_seconds;
use crate::backlog::{self, Shape};
use crate::options::{Options, built_rota, print_machine};
use crate::stats::verdict;

const TASKS: usize = 10_000;
/// The keys of the panes, what each shows when it is there, and its name.
const PANES: [(&str, &str, &str); 4] = [
    ("1", "nothing runs", "Fleet"),
    ("2", "RUNNABLE", "Queue"),
    ("4", "Rate Limited", "Gate"),
    ("6", "blocked task-", "Log"),
];

/// Runs it.
pub fn run(options: &Options) -> Result<()> {
    let folder = options.scratch()?;
    let rota = built_rota()?;
    print_machine(folder.path());
    drop(backlog::fill(&folder.path().join("top.db"), "tasks", TASKS, Shape::MostlyHeldBack)?);
    println!("| rota top, {TASKS} tasks | processor | target | |\n|---|---|---|---|");
    for (width, height) in [("80", "24"), ("200", "60")] {
        let terminal = Terminal::start(folder.path(), &rota, width, height)?;
        let pid = terminal.pid()?;
        for (key, shows, name) in PANES {
            terminal.tmux(&["send-keys", key])?;
            // The second queue is the one with tasks.
            if name == "Queue" {
                terminal.tmux(&["send-keys", "]"])?;
            }
            terminal.wait_for(shows)?;
            let (before, start) = (processor_seconds(pid)?, Instant::now());
            std::thread::sleep(options.pick(Duration::from_secs(2), Duration::from_secs(10)));
            let percent = (processor_seconds(pid)? - before) / start.elapsed().as_secs_f64() * 100.0;
            println!("| {name}, {width}×{height} | {percent:.1} % | < 2 % | {} |", verdict(percent < 2.0));
        }
        terminal.tmux(&["send-keys", "q"])?;
    }
    Ok(())
}

/// A terminal of its own with `rota top` in it.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn start(folder: &Path, rota: &Path, width: &str, height: &str) -> Result<Self> {
        let socket = folder.join(format!("tmux-{width}")).display().to_string();
        let terminal = Self { socket };
        let store = format!("sqlite:{}", folder.join("top.db").display());
        let mut command = terminal.command(&["new-session", "-d", "-x", width, "-y", height]);
        command.arg(rota).args(["top", "--store", &store]).current_dir(folder);
        command.env_remove("TMUX").env_remove("ROTA_STORE").env_remove("ROTA_CONFIG");
        let status = command.env("TERM", "xterm-256color").status()?;
        if !status.success() {
            return Err("tmux does not start".into());
        }
        terminal.wait_for("q quit")?;
        Ok(terminal)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-S", &self.socket, "-f", "/dev/null"]).args(arguments);
        command
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    fn wait_for(&self, wanted: &str) -> Result<()> {
        let start = Instant::now();
        loop {
            let screen = self.tmux(&["capture-pane", "-p"])?;
            if screen.contains(wanted) {
                return Ok(());
            }
            if start.elapsed() > Duration::from_secs(30) {
                return Err(format!("{wanted} is not to be seen:\n{screen}").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The process in the terminal.
    fn pid(&self) -> Result<u32> {
        Ok(self.tmux(&["display-message", "-p", "#{pane_pid}"])?.trim().parse()?)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It ends with its only program, so it may be gone.
        drop(self.command(&["kill-server"]).output());
    }
}
