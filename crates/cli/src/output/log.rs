//! The journal, one event per line.

use rota_core::text::escaped;
use rota_verbs::log::{EventPayload, Events};

/// The text of `log`.
pub fn text(events: &Events) -> String {
    events.events.iter().map(line).collect()
}

/// One event.
pub fn line(event: &EventPayload) -> String {
    let mut text = format!("{} {:>6}  {}", event.at, event.seq, event.event);
    if let Some(task) = &event.task {
        text.push_str(&format!(" {}", escaped(task.as_str())));
    }
    if let Some(queue) = &event.data.queue {
        text.push_str(&format!(" {}", escaped(queue)));
    }
    if let Some(blocker) = &event.data.blocker {
        text.push_str(&format!(" by {}", escaped(blocker.as_str())));
    }
    if let (Some(from), Some(to)) = (&event.from, &event.to)
        && from != to
    {
        text.push_str(&format!("  {from} -> {to}"));
    }
    if let Some(lease) = &event.lease_id {
        text.push_str(&format!("  {}", escaped(lease)));
    }
    if let Some(actor) = &event.actor {
        text.push_str(&format!("  @{}", escaped(actor)));
    }
    if let Some(reason) = &event.data.reason {
        text.push_str(&format!("  \"{}\"", escaped(reason)));
    }
    text.push('\n');
    text
}
