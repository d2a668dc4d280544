//! Tables: columns aligned, `-` for nothing, nothing at all for no rows.

use rota_core::UnixMillis;
use rota_core::text::escaped;
use rota_verbs::TaskPayload;
use rota_verbs::agent::Agents;
use rota_verbs::attempts::Attempts;

/// A longer cell overflows instead of widening every row.
const WIDEST: usize = 80;

/// The table of `list`.
pub fn tasks(tasks: &[TaskPayload]) -> String {
    let row = |task: &TaskPayload| {
        vec![
            task.id.to_string(),
            task.priority.map_or(String::new(), |priority| priority.to_string()),
            task.status.to_string(),
            task.category.as_deref().unwrap_or_default().to_owned(),
            task.title.to_string(),
            task.assignee.clone().unwrap_or_default(),
        ]
    };
    let columns = [("ID", 20), ("P", 1), ("S", 8), ("CAT", 5), ("TITLE", 35), ("AGENT", 0)];
    table(&columns, tasks.iter().map(row).collect())
}

/// The table of `agent list`.
pub fn agents(agents: &Agents) -> String {
    let row = |agent: &rota_verbs::agent::Agent| {
        let started = agent.started_at.to_seconds_text();
        vec![agent.id.clone(), agent.pid.to_string(), agent.host.clone(), started, agent.status.to_string()]
    };
    let columns = [("ID", 4), ("PID", 7), ("HOSTNAME", 12), ("STARTED", 20), ("STATUS", 0)];
    table(&columns, agents.agents.iter().map(row).collect())
}

/// The table of `attempts`.
pub fn attempts(attempts: &Attempts) -> String {
    let row = |attempt: &rota_verbs::attempts::Attempt| {
        vec![
            attempt.lease_id.clone(),
            attempt.agent.clone().unwrap_or_default(),
            attempt.started_at.to_seconds_text(),
            attempt.ended_at.map_or(String::new(), UnixMillis::to_seconds_text),
            attempt.outcome.map_or(String::new(), |outcome| outcome.to_string()),
            attempt.reason.clone().unwrap_or_default(),
        ]
    };
    let columns =
        [("LEASE", 12), ("AGENT", 8), ("STARTED", 20), ("ENDED", 20), ("OUTCOME", 8), ("REASON", 0)];
    table(&columns, attempts.attempts.iter().map(row).collect())
}

/// Columns with their least widths, and rows.
pub(super) fn table(columns: &[(&str, usize)], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let shown = |cell: String| if cell.is_empty() { "-".to_owned() } else { escaped(&cell).into_owned() };
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.into_iter().map(shown).collect()).collect();
    let width = |column: usize, least: usize| {
        let longest = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        least.max(longest.unwrap_or(0).min(WIDEST))
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(|(at, (_, least))| width(at, *least)).collect();
    let mut text = line(&columns.iter().map(|(name, _)| *name).collect::<Vec<_>>(), &widths);
    for row in &rows {
        text.push_str(&line(&row.iter().map(String::as_str).collect::<Vec<_>>(), &widths));
    }
    text
}

fn line(cells: &[&str], widths: &[usize]) -> String {
    let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
    let joined = cells.collect::<Vec<_>>().join(" ");
    format!("{}\n", joined.trim_end())
}
