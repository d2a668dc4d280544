//! One line per event, for logs.

use std::io::Write;

use rota_core::text::{escaped, json_escaped};
use rota_daemon::manager::happening::Happening;
use serde_json::{Map, Value, json};

use super::{AllRunning, Show};

/// How much it matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Info,
    Warn,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
        }
    }
}

/// A happening as a message with fields.
pub struct Line {
    pub level: Level,
    pub message: &'static str,
    pub fields: Map<String, Value>,
}

fn line(level: Level, message: &'static str, fields: Value) -> Line {
    let fields = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    Line { level, message, fields }
}

impl Line {
    /// The messages and fields that scripts look for.
    pub fn of(happening: &Happening) -> Self {
        use Level::{Debug, Info, Warn};
        match happening {
            Happening::Tick { figures, selected, is_news } => line(
                if *is_news { Info } else { Debug },
                "Scheduler tick",
                json!({"pending": figures.pending, "runnable": figures.runnable, "selected": selected,
                       "running": figures.running, "slots_available": figures.slots_available}),
            ),
            Happening::Selected { id, kind, priority, age_ms } => line(
                Debug,
                "Selected loop for execution",
                json!({"loop_id": id, "loop_type": kind, "priority": priority, "age_ms": age_ms}),
            ),
            Happening::Began { id, kind, iteration, is_adopted, .. } => line(
                Info,
                if *is_adopted { "Iteration taken over" } else { "Iteration started" },
                json!({"loop_id": id, "loop_type": kind, "iteration": iteration}),
            ),
            Happening::NotPassed { id, iteration, why } => line(
                Info,
                "Iteration not passed",
                json!({"loop_id": id, "iteration": iteration, "reason": why}),
            ),
            Happening::Ended { id, kind, outcome, detail } => line(
                Info,
                "Loop ended",
                json!({"loop_id": id, "loop_type": kind, "outcome": outcome, "reason": detail}),
            ),
            Happening::Spawned { id, children } => {
                line(Info, "Children added", json!({"loop_id": id, "children": children}))
            }
            Happening::RateLimited { upstream, retry_after_secs, consecutive_hits } => line(
                Warn,
                "Rate limited, backing off globally",
                json!({"retry_after_secs": retry_after_secs, "consecutive_hits": consecutive_hits,
                       "upstream": upstream}),
            ),
            Happening::OpenAgain { upstream } => {
                line(Info, "Open again after a limit", json!({"upstream": upstream}))
            }
            Happening::NotSelecting { upstream, until } => line(
                Debug,
                "Rate limited, not selecting new loops",
                json!({"until": until, "upstream": upstream}),
            ),
            Happening::BudgetSpent { upstream, budget, until } => line(
                Debug,
                "Budget spent, not selecting new loops",
                json!({"budget": budget, "until": until, "upstream": upstream}),
            ),
            other => Self::of_daemon(other),
        }
    }

    /// The same for what has to do with no loop in particular, or with what is left of one.
    fn of_daemon(happening: &Happening) -> Self {
        use Level::{Debug, Info, Warn};
        match happening {
            Happening::DiskLow { available_gb } => {
                line(Warn, "Low disk space, pausing new loop creation", json!({"available_gb": available_gb}))
            }
            Happening::DiskFine => line(Info, "Disk space is enough again", json!({})),
            Happening::Lapsed { id, why } => {
                line(Warn, "Lease is gone, stopping the run", json!({"loop_id": id, "reason": why}))
            }
            Happening::WorktreeKept { id, why } => {
                line(Warn, "Worktree kept", json!({"loop_id": id, "reason": why}))
            }
            Happening::WorktreeSaved { id, branch, commit } => line(
                Info,
                "Uncommitted work committed to its branch",
                json!({"branch": branch, "commit": commit, "loop_id": id}),
            ),
            Happening::Trouble { problem } => line(Warn, "Trouble", json!({"problem": problem})),
            Happening::Reloaded => line(Info, "Configuration reloaded", json!({})),
            Happening::NotReloaded { problem } => {
                line(Warn, "Configuration refused, the old one stays", json!({"problem": problem}))
            }
            Happening::PolicyDiffers { version, changes } => line(
                Warn,
                "rota.yml differs from the published policy, which decides (use --publish)",
                json!({"version": version, "changes": changes}),
            ),
            Happening::Stopping => line(Info, "Stopping", json!({})),
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
            | Happening::BudgetSpent { .. } => line(Debug, "", json!({})),
        }
    }
}

/// The level that ROTA_LOG names.
pub fn least() -> Level {
    match std::env::var("ROTA_LOG").as_deref() {
        Ok("debug") => Level::Debug,
        Ok("warn") => Level::Warn,
        _ => Level::Info,
    }
}

/// Writes lines to stderr, from the level that ROTA_LOG names.
pub struct Log {
    json: bool,
    least: Level,
}

impl Log {
    pub fn new(json: bool) -> Self {
        Self { json, least: least() }
    }

    fn text(&self, line: &Line) -> String {
        let time = rota_store::clock::system_now().to_string();
        let level = line.level.word();
        if self.json {
            let mut object = Map::new();
            object.insert("time".into(), time.into());
            object.insert("level".into(), level.into());
            object.insert("message".into(), line.message.into());
            object.extend(line.fields.clone());
            return json_escaped(Value::Object(object).to_string());
        }
        let field = |(name, value): (&String, &Value)| match value {
            Value::Null => String::new(),
            Value::String(text) if text.contains([' ', '"', '=']) => format!(" {name}={:?}", escaped(text)),
            Value::String(text) => format!(" {name}={}", escaped(text)),
            other => format!(" {name}={other}"),
        };
        let fields: String = line.fields.iter().map(field).collect();
        format!("{time} {level:5} {}{fields}", line.message)
    }
}

impl Show for Log {
    fn see(&mut self, happening: &Happening, _running: Option<AllRunning<'_>>) {
        let line = Line::of(happening);
        if line.level >= self.least {
            // Nobody has to listen.
            let _said = writeln!(std::io::stderr().lock(), "{}", self.text(&line));
        }
    }
}
