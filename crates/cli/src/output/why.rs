//! The explanation of a task, readable.

use rota_core::explain::Explanation;
use rota_core::text::escaped;

/// The text of `why`.
pub fn text(why: &Explanation) -> String {
    let verdict = match (why.runnable, why.waits.is_empty()) {
        (true, true) => "is next",
        (true, false) => "is runnable, but has to wait",
        (false, _) => "is not runnable",
    };
    let mut text =
        format!("{} ({}, {}) {verdict}\n\n", escaped(why.id.as_str()), escaped(&why.queue), why.status);
    for check in &why.checks {
        let mark = if check.ok { "ok " } else { "no " };
        let detail = check.detail.as_deref().unwrap_or("nothing in the way");
        text.push_str(&format!("  {mark} {:<9} {}\n", check.check, escaped(detail)));
    }
    if let Some(score) = &why.score {
        let terms: Vec<String> =
            score.terms.iter().map(|term| format!("{} {:+}", term.name, term.value)).collect();
        text.push_str(&format!("\nscore:    {} ({})\n", score.total, terms.join(", ")));
    } else {
        text.push('\n');
    }
    if let Some(position) = why.position {
        text.push_str(&format!("position: {position}\n"));
    }
    if let Some(ahead) = why.ahead.as_ref().filter(|ahead| !ahead.is_empty()) {
        let ids: Vec<&str> = ahead.iter().map(|id| id.as_str()).collect();
        text.push_str(&format!("ahead:    {}\n", escaped(&ids.join(", "))));
    }
    if let Some(freed_by) = &why.freed_by {
        text.push_str(&format!("freed by: {}\n", escaped(freed_by)));
    }
    if let Some(earliest) = why.earliest {
        text.push_str(&format!("earliest: {earliest}\n"));
    }
    text
}
