//! The terminal: what happened scrolls by, what runs stands below it.

use std::collections::BTreeMap;
use std::io::Write;

use rota_core::text::escaped;
use rota_daemon::manager::happening::{Happening, RunningLoop};

use super::{AllRunning, Show};

/// More rows than this are counted instead of shown.
const ROWS: usize = 12;

/// The live view.
pub struct View {
    /// Lines that stand below, to be drawn anew.
    drawn: usize,
    ended: BTreeMap<&'static str, u64>,
    runnable: u64,
    waits: Option<String>,
    /// As the daemon said last.
    running: Vec<RunningLoop>,
    colour: bool,
}

impl View {
    pub fn new() -> Self {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { drawn: 0, ended: BTreeMap::new(), runnable: 0, waits: None, running: Vec::new(), colour }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// What to say of it; nothing where the lines below show it.
    fn words(&mut self, happening: &Happening) -> Option<String> {
        Some(match happening {
            Happening::Tick { figures, selected, .. } => {
                self.runnable = figures.runnable.saturating_sub(*selected as u64);
                self.waits = None;
                return None;
            }
            Happening::Selected { .. } => return None,
            Happening::BudgetSpent { upstream, budget, until } => {
                let (upstream, until) = (escaped(upstream), &until[11..19]);
                self.waits =
                    Some(format!("{upstream}: the budget {} is spent until {until}", escaped(budget)));
                return None;
            }
            Happening::NotSelecting { upstream, until } => {
                let until =
                    until.as_ref().map_or("it is unblocked".to_owned(), |until| until[11..19].to_owned());
                self.waits = Some(format!("{} is rate limited until {until}", escaped(upstream)));
                return None;
            }
            Happening::Began { id, kind, title, iteration, .. } => {
                let mark = self.paint("36", "▶");
                format!(
                    "{mark} {:6} {} iteration {iteration}: {}",
                    escaped(kind),
                    escaped(id),
                    escaped(title)
                )
            }
            Happening::NotPassed { id, iteration, why } => {
                let mark = self.paint("33", "↻");
                format!("{mark}        {} iteration {iteration}: {}", escaped(id), escaped(why))
            }
            Happening::Ended { id, kind, outcome, detail } => {
                *self.ended.entry(outcome).or_default() += 1;
                let mark = match *outcome {
                    "complete" => self.paint("32", "✔"),
                    "interrupted" | "rate limited" | "lapsed" => self.paint("33", "…"),
                    _ => self.paint("31", "✘"),
                };
                let detail = detail.as_ref().map_or(String::new(), |detail| format!(": {}", escaped(detail)));
                format!("{mark} {:6} {} {outcome}{detail}", escaped(kind), escaped(id))
            }
            Happening::Spawned { id, children } => {
                format!("         {} leaves {children} more to do", escaped(id))
            }
            Happening::RateLimited { upstream, retry_after_secs, consecutive_hits } => {
                let words = format!(
                    "{} pushed back: all its loops wait {retry_after_secs} s (hit {consecutive_hits})",
                    escaped(upstream)
                );
                self.paint("33", &words)
            }
            Happening::OpenAgain { upstream } => format!("{} is open again", escaped(upstream)),
            other => return self.words_of_daemon(other),
        })
    }

    /// The same for what has to do with no loop in particular, or with what is left of one.
    fn words_of_daemon(&self, happening: &Happening) -> Option<String> {
        Some(match happening {
            Happening::DiskLow { available_gb } => {
                self.paint("31", &format!("low disk space ({available_gb} GB): no new loops start"))
            }
            Happening::DiskFine => "disk space is enough again".to_owned(),
            Happening::Lapsed { id, why } => format!("{} is stopped: {}", escaped(id), escaped(why)),
            Happening::WorktreeKept { id, why } => {
                format!("the worktree of {} is kept: {}", escaped(id), escaped(why))
            }
            Happening::WorktreeSaved { id, branch, commit } => {
                format!("uncommitted work of {} is in {branch}, commit {commit}", escaped(id))
            }
            Happening::Trouble { problem } => self.paint("31", &format!("warning: {}", escaped(problem))),
            Happening::Reloaded => "configuration reloaded".to_owned(),
            Happening::NotReloaded { problem } => {
                self.paint("31", &format!("configuration refused, the old one stays: {}", escaped(problem)))
            }
            Happening::PolicyDiffers { changes, .. } => format!(
                "rota.yml differs from the published policy, which decides (--publish publishes it): {}",
                escaped(changes)
            ),
            Happening::Stopping => "stopping: agents are asked to end (again to kill them)".to_owned(),
            // Those above; listed, so that a new one is not forgotten.
            Happening::Tick { .. }
            | Happening::Selected { .. }
            | Happening::Began { .. }
            | Happening::NotPassed { .. }
            | Happening::Ended { .. }
            | Happening::Spawned { .. }
            | Happening::RateLimited { .. }
            | Happening::OpenAgain { .. }
            | Happening::NotSelecting { .. }
            | Happening::BudgetSpent { .. } => return None,
        })
    }

    fn below(&self) -> Vec<String> {
        let running = &self.running;
        let done = self.ended.get("complete").copied().unwrap_or(0);
        let other: Vec<String> = self
            .ended
            .iter()
            .filter(|(outcome, _)| **outcome != "complete")
            .map(|(outcome, count)| format!(" · {count} {outcome}"))
            .collect();
        let waits = self.waits.as_ref().map_or(String::new(), |waits| format!(" · {waits}"));
        let head = format!(
            "── {} running · {} runnable · {done} complete{}{waits}",
            running.len(),
            self.runnable,
            other.concat()
        );
        let mut lines = vec![self.paint("1", &head)];
        for run in running.iter().take(ROWS) {
            lines.push(format!(
                "   {:6} {} iteration {} {} {}",
                escaped(&run.kind),
                escaped(&run.id),
                run.iteration,
                age(run.running_secs),
                escaped(&run.title)
            ));
        }
        if running.len() > ROWS {
            lines.push(format!("   and {} more", running.len() - ROWS));
        }
        lines
    }
}

impl Show for View {
    fn see(&mut self, happening: &Happening, running: Option<AllRunning<'_>>) {
        if let Some(running) = running {
            self.running = running();
        }
        let said = self.words(happening);
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\u{1b}[{}F\u{1b}[J", self.drawn));
        }
        let width = width();
        text.extend(said.iter().map(|line| format!("{line}\n")));
        let below = self.below();
        self.drawn = below.len();
        text.extend(below.iter().map(|line| format!("{}\n", cut(line, width))));
        // Nobody has to watch.
        let _drawn = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

/// The width of the terminal: a line that wraps would not be drawn over.
fn width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| usize::from(size.ws_col).max(20))
}

/// What fits, counting what is seen.
fn cut(line: &str, width: usize) -> String {
    let (mut seen, mut in_escape) = (0, false);
    let mut kept = String::with_capacity(line.len());
    for character in line.chars() {
        if character == '\u{1b}' {
            in_escape = true;
        }
        if !in_escape {
            seen += 1;
        }
        if in_escape || seen < width {
            kept.push(character);
        }
        if in_escape && character == 'm' {
            in_escape = false;
        }
    }
    kept
}

/// `5s`, `12m`, `3h`
pub fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_by_what_is_seen() {
        assert_eq!(cut("abcdef", 4), "abc");
        assert_eq!(cut("\u{1b}[1mabcdef\u{1b}[0m", 4), "\u{1b}[1mabc\u{1b}[0m");
    }
}
