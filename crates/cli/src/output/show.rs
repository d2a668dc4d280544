//! One task in full, and the tree of its blockers.

use rota_core::UnixMillis;
use rota_core::text::escaped;
use rota_verbs::deps::Deps;
use rota_verbs::show::Shown;

/// The text of `show`.
pub fn text(shown: &Shown) -> String {
    let task = &shown.task;
    let time = UnixMillis::to_seconds_text;
    let deleted = (task.status == "deleted").then_some(task.finished_at).flatten();
    let lease = match (task.lease_expires_at, &task.lease_id) {
        (Some(expires), Some(lease)) => format!("{} {lease}", time(expires)),
        _ => String::new(),
    };
    let retries = if task.attempts == 0 { String::new() } else { task.attempts.to_string() };
    let mut text = String::new();
    for (label, value) in [
        ("ID:", task.id.to_string()),
        ("Title:", task.title.to_string()),
        ("Status:", task.status.to_string()),
        ("Priority:", task.priority.map_or(String::new(), |priority| priority.to_string())),
        ("Category:", task.category.as_deref().unwrap_or_default().to_owned()),
        ("Description:", task.description.as_deref().unwrap_or_default().to_owned()),
        ("Spec:", task.spec.clone().unwrap_or_default()),
        ("Ref:", task.reference.clone().unwrap_or_default()),
        ("Assignee:", task.assignee.clone().unwrap_or_default()),
        ("Lease:", lease),
        ("Retries:", retries),
        ("Fail reason:", task.fail_reason.clone().unwrap_or_default()),
        ("Parked:", task.parked_reason.clone().unwrap_or_default()),
        ("Not before:", task.next_eligible_at.map_or(String::new(), time)),
        ("Result:", task.result.as_ref().map_or(String::new(), |result| result.as_str().to_owned())),
        ("Created:", time(task.created_at)),
        ("Updated:", time(task.updated_at)),
        ("Deleted:", deleted.map_or(String::new(), time)),
    ] {
        if !value.is_empty() {
            text.push_str(&format!("{label:<13}{}\n", escaped(&value)));
        }
    }
    list(&mut text, "Steps:", task.steps.iter().enumerate().map(|(at, step)| format!("{}. {step}", at + 1)));
    list(
        &mut text,
        "Dependencies:",
        shown.blockers.iter().map(|blocker| format!("{} ({})", blocker.id, blocker.status)),
    );
    let results = shown.blockers.iter().filter_map(|blocker| Some((&blocker.id, blocker.result.as_ref()?)));
    list(&mut text, "Blocker Results:", results.map(|(id, result)| format!("{id}: {}", result.as_str())));
    text
}

fn list(text: &mut String, heading: &str, entries: impl Iterator<Item = String>) {
    for (index, entry) in entries.enumerate() {
        if index == 0 {
            text.push_str(heading);
            text.push('\n');
        }
        text.push_str(&format!("  {}\n", escaped(&entry)));
    }
}

/// The text of `deps`.
pub fn deps(deps: &Deps) -> String {
    if deps.blockers.is_empty() {
        return "(no dependencies)\n".to_owned();
    }
    let line = |line: &rota_verbs::deps::DepsLine| {
        let indent = "  ".repeat(line.level);
        format!("{indent}{} [{}] {}\n", escaped(line.id.as_str()), line.status, escaped(&line.title))
    };
    deps.blockers.iter().map(line).collect()
}
