//! The loops as a tree, at the end: where each stands, after how many iterations, and why it did not pass.

use rota_core::UnixMillis;
use rota_core::text::escaped;
use rota_verbs::loops::{LoopTree, TreeLine};

/// In the words of `rota loop`: states that a loop leaves only by a person.
const ENDED: [&str; 5] = ["complete", "failed", "parked", "invalidated", "deleted"];

/// Whether a loop has to do with a run that began at a moment: it had not ended before.
pub fn is_since(line: &TreeLine, began_at: UnixMillis) -> bool {
    let task = &line.task.task;
    !ENDED.contains(&&*task.status) || task.updated_at >= began_at
}

/// Whether a loop failed, or waits for a person.
pub fn has_failed(line: &TreeLine) -> bool {
    matches!(&*line.task.task.status, "failed" | "parked")
}

/// More loops than this are counted instead of shown.
const LOOPS: usize = 200;

/// Every loop beneath its parent.
pub fn text(tree: &LoopTree) -> String {
    let mut text: String = tree.loops.iter().take(LOOPS).map(line).collect();
    if tree.total > LOOPS {
        text.push_str(&format!("and {} more: rota loop tree\n", tree.total - LOOPS));
    }
    text
}

fn line(line: &TreeLine) -> String {
    let task = &line.task.task;
    let tries =
        if task.iteration > 1 { format!(" after {} iterations", task.iteration) } else { String::new() };
    let why = task.parked_reason.as_ref().or(task.fail_reason.as_ref()).filter(|_| task.status != "complete");
    let why = why.map_or(String::new(), |why| format!(" ({})", escaped(why)));
    let (indent, id) = ("  ".repeat(line.level), escaped(task.id.as_str()));
    format!("{indent}{id} [{}] {}{tries}{why}\n", escaped(task.kind.as_deref().unwrap_or("-")), task.status)
}
