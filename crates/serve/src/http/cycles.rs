//! Metrics of the supervisor's cycles, from its state file.

use rota_core::supervisor::{FailureCode, Standing};

use super::meter::{help, put};

/// Adds what a scraper reads about the supervisor.
pub(super) fn print(text: &mut String, standing: &Standing) {
    let figures = [
        ("rota_supervisor_cycles_total", "counter", "Cycles that have ended.", standing.cycle_count),
        (
            "rota_supervisor_failures_in_row",
            "gauge",
            "Failed cycles in a row.",
            standing.consecutive_failures.into(),
        ),
        (
            "rota_supervisor_backoff_seconds",
            "gauge",
            "The sleep after the last cycle.",
            standing.backoff_seconds,
        ),
        (
            "rota_supervisor_running",
            "gauge",
            "Whether a process holds the lock of the state file.",
            standing.running.into(),
        ),
    ];
    for (name, kind, about, value) in figures {
        help(text, name, kind, about);
        put(text, format_args!("{name} {value}"));
    }
    if let Some(at) = standing.last_cycle_at {
        help(text, "rota_supervisor_last_cycle_seconds", "gauge", "When the last cycle began, in Unix time.");
        put(text, format_args!("rota_supervisor_last_cycle_seconds {}", at.get() / 1_000));
    }
    help(text, "rota_supervisor_last_code", "gauge", "Which failure code the last cycle ended with.");
    for code in FailureCode::ALL {
        let is_it = u8::from(standing.last_failure_code.as_deref() == Some(code.word()));
        put(text, format_args!("rota_supervisor_last_code{{code=\"{}\"}} {is_it}", code.word()));
    }
}
