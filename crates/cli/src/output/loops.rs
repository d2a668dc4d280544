//! Loops as text: their list, trees, one in full, its settings, and the scheduler's table.

use rota_core::UnixMillis;
use rota_core::text::escaped;
use rota_verbs::loops::{LoopConfig, LoopPayload, LoopTree, PendingLoop, Scheduler, Setting, ShownLoop};

use super::table::table;

/// The table of `loop list`.
pub fn list(loops: &[LoopPayload]) -> String {
    let row = |shown: &LoopPayload| {
        let task = &shown.task;
        vec![
            task.id.to_string(),
            task.kind.clone().unwrap_or_default(),
            task.status.to_string(),
            task.priority.map_or(String::new(), |priority| priority.to_string()),
            task.depth.to_string(),
            task.iteration.to_string(),
            task.title.to_string(),
        ]
    };
    let columns =
        [("ID", 20), ("KIND", 6), ("STATUS", 11), ("P", 1), ("DEPTH", 5), ("ITER", 4), ("TITLE", 0)];
    table(&columns, loops.iter().map(row).collect())
}

/// The lines of `loop tree`: two spaces per level, `id kind [status] title`.
pub fn tree(tree: &LoopTree) -> String {
    let mut text = String::new();
    for line in &tree.loops {
        let task = &line.task.task;
        let kind = task.kind.as_deref().unwrap_or("-");
        let title = if task.title == task.id.as_str() { "" } else { &task.title };
        let shown = format!(
            "{}{} {} [{}] {}",
            "  ".repeat(line.level),
            escaped(task.id.as_str()),
            escaped(kind),
            task.status,
            escaped(title)
        );
        text.push_str(shown.trim_end());
        text.push('\n');
    }
    text
}

/// One loop in full.
pub fn show(shown: &ShownLoop) -> String {
    let LoopPayload { task, triggered_by, parent_iteration, host } = &shown.task;
    let time = UnixMillis::to_seconds_text;
    let number = |number: u32| if number == 0 { String::new() } else { number.to_string() };
    let text_of = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut text = String::new();
    for (label, value) in [
        ("ID:", task.id.to_string()),
        ("Title:", task.title.to_string()),
        ("Kind:", text_of(&task.kind)),
        ("Status:", task.status.to_string()),
        ("Priority:", task.priority.map_or(String::new(), |priority| priority.to_string())),
        ("Parent:", task.parent.as_ref().map_or(String::new(), ToString::to_string)),
        ("From:", parent_iteration.map_or(String::new(), |from| format!("iteration {from} of its parent"))),
        ("Depth:", task.depth.to_string()),
        ("Triggered by:", text_of(triggered_by)),
        ("Host:", text_of(host)),
        ("Iteration:", number(task.iteration)),
        ("Tries:", number(task.tries)),
        ("Attempts:", number(task.attempts)),
        ("Prompt:", task.description.as_deref().unwrap_or_default().to_owned()),
        ("Assignee:", text_of(&task.assignee)),
        ("Lease:", text_of(&task.lease_id)),
        ("Not before:", task.next_eligible_at.map_or(String::new(), time)),
        ("Fail reason:", text_of(&task.fail_reason)),
        ("Parked:", text_of(&task.parked_reason)),
        ("Result:", task.result.as_ref().map_or(String::new(), |result| result.as_str().to_owned())),
        ("Created:", time(task.created_at)),
        ("Updated:", time(task.updated_at)),
    ] {
        if !value.is_empty() {
            text.push_str(&format!("{label:<14}{}\n", escaped(&value)));
        }
    }
    if let Some(usage) = &shown.usage {
        text.push_str(&format!("{:<14}{}\n", "Usage:", super::gate::in_words(usage)));
    }
    if !shown.children.is_empty() {
        text.push_str("Children:\n");
    }
    for child in &shown.children {
        let kind = child.kind.as_deref().unwrap_or("-");
        let (id, title) = (escaped(child.id.as_str()), escaped(&child.title));
        text.push_str(&format!("  {id} {} [{}] {title}\n", escaped(kind), child.status));
    }
    if !shown.iterations.is_empty() {
        text.push_str("Iterations:\n");
    }
    for iteration in &shown.iterations {
        let ended = iteration.ended_at.map_or(String::new(), |ended| format!(" to {}", time(ended)));
        let outcome = iteration.outcome.map_or(String::new(), |outcome| format!(" {outcome}"));
        let started = time(iteration.started_at);
        let reason = iteration.reason.as_ref().map_or(String::new(), |why| format!(" ({})", escaped(why)));
        let phase = if iteration.validating { " validating" } else { "" };
        text.push_str(&format!("  {}. {started}{ended}{outcome}{reason}{phase}\n", iteration.iteration));
    }
    text
}

/// The table of `loop config`.
pub fn config(config: &LoopConfig) -> String {
    let row = |setting: &Setting| {
        let from = match &setting.file {
            Some(file) => format!("{} (rota.yml says {file})", setting.from),
            None => setting.from.to_string(),
        };
        vec![setting.name.clone(), setting.value.to_string(), from]
    };
    let columns = [("SETTING", 46), ("VALUE", 12), ("FROM", 0)];
    table(&columns, config.settings.iter().map(row).collect())
}

/// The table of `debug scheduler`.
pub fn scheduler(scheduler: &Scheduler) -> String {
    let row = |pending: &PendingLoop| {
        vec![
            pending.id.to_string(),
            pending.kind.clone().unwrap_or_default(),
            pending.priority.to_string(),
            age(pending.age_ms),
            pending.depth.to_string(),
            pending.iteration.to_string(),
            pending.verdict(),
        ]
    };
    let columns =
        [("ID", 11), ("TYPE", 7), ("PRIORITY", 9), ("AGE", 6), ("DEPTH", 6), ("ITER", 5), ("RUNNABLE", 0)];
    table(&columns, scheduler.loops.iter().map(row).collect())
}

/// Whole minutes, as the score counts them.
fn age(milliseconds: i64) -> String {
    format!("{}m", milliseconds / 60_000)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests {
    use rota_core::obstacle::Obstacle;
    use rota_core::{Status, TaskId};

    use super::*;

    /// The table of 000, as it stands there.
    #[test]
    fn the_sources_table() {
        let pending =
            |id: &str, kind: &str, priority, minutes: i64, depth, iteration, obstacles: Vec<Obstacle>| {
                PendingLoop {
                    id: TaskId::new(id).unwrap(),
                    kind: Some(kind.into()),
                    priority,
                    terms: Vec::new(),
                    age_ms: minutes * 60_000 + 59_999,
                    depth,
                    iteration,
                    tries: iteration,
                    runnable: obstacles.is_empty(),
                    obstacles,
                }
            };
        let parent = TaskId::new("p").unwrap();
        let incomplete = Obstacle::ParentNotDone { parent, status: Status::Active };
        let loops = vec![
            pending("1737802800", "ralph", 135, 5, 3, 1, vec![]),
            pending("1737802500", "phase", 130, 30, 2, 1, vec![]),
            pending("1737802700", "ralph", 111, 1, 3, 5, vec![]),
            pending("1737802000", "plan", 90, 50, 0, 1, vec![incomplete]),
        ];
        let wanted = "\
ID          TYPE    PRIORITY  AGE    DEPTH  ITER  RUNNABLE
1737802800  ralph   135       5m     3      1     yes
1737802500  phase   130       30m    2      1     yes
1737802700  ralph   111       1m     3      5     yes
1737802000  plan    90        50m    0      1     no (parent incomplete)
";
        assert_eq!(scheduler(&Scheduler { total: 4, loops }), wanted);
    }
}
