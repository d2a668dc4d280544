//! markdown-KV: `## Task <id>`, then one `key: value` per line. What agents read.

use rota_core::UnixMillis;
use rota_core::text::escaped;
use rota_verbs::TaskPayload;
use rota_verbs::claim::Claimed;

/// Tasks with a blank line between them; nothing for none.
pub fn tasks(tasks: &[TaskPayload]) -> String {
    tasks.iter().map(|task| section(task, None)).collect::<Vec<_>>().join("\n")
}

/// A claimed task, with what only its holder needs.
pub fn claimed(claimed: &Claimed) -> String {
    section(&claimed.task, Some(claimed))
}

fn section(task: &TaskPayload, claimed: Option<&Claimed>) -> String {
    let mut lines = Lines(format!("## Task {}\n", escaped(task.id.as_str())));
    lines.add("id", task.id.as_str());
    lines.add("title", &task.title);
    lines.add("priority", &task.priority.map_or(String::new(), |priority| priority.to_string()));
    lines.add("status", &task.status);
    lines.add("category", task.category.as_deref().unwrap_or_default());
    lines.add("spec", task.spec.as_deref().unwrap_or_default());
    lines.add("ref", task.reference.as_deref().unwrap_or_default());
    lines.add("assignee", task.assignee.as_deref().unwrap_or_default());
    if claimed.is_some() {
        lines.add(
            "lease_expires_at",
            &task.lease_expires_at.map_or(String::new(), UnixMillis::to_seconds_text),
        );
        lines.add("lease_id", task.lease_id.as_deref().unwrap_or_default());
        lines.add("retry_count", &task.attempts.to_string());
        lines.add("last_failure", task.fail_reason.as_deref().unwrap_or_default());
        lines.add("description", task.description.as_deref().unwrap_or_default());
    }
    let deps: Vec<&str> = task.deps.iter().map(|dep| dep.as_str()).collect();
    lines.add("deps", &deps.join(", "));
    lines.list("steps", task.steps.iter().map(|step| escaped(step).into_owned()));
    let results = claimed.map(|claimed| claimed.blocker_results.as_slice()).unwrap_or_default();
    let result = |result: &rota_verbs::claim::BlockerResult| {
        format!("{}: {}", escaped(result.id.as_str()), escaped(result.result.as_str()))
    };
    lines.list("blocker_results", results.iter().map(result));
    lines.0
}

struct Lines(String);

impl Lines {
    fn add(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.0.push_str(&format!("{key}: {}\n", escaped(value)));
        }
    }

    fn list(&mut self, key: &str, entries: impl Iterator<Item = String>) {
        for (index, entry) in entries.enumerate() {
            if index == 0 {
                self.0.push_str(&format!("{key}:\n"));
            }
            self.0.push_str(&format!("- {entry}\n"));
        }
    }
}
