//! The entries of a queue, readable.

use rota_core::text::escaped;
use rota_verbs::queue::Entries;

/// The text of `queue list`.
pub fn text(list: &Entries) -> String {
    let mut text = format!("Run Queue: {} entry(ies) [priority asc]\n", list.total);
    for entry in &list.entries {
        let app = entry
            .app_id
            .as_deref()
            .or(entry.workflow_id.as_deref())
            .or(entry.run_id.as_deref())
            .unwrap_or("-");
        let (id, app, repo) = (escaped(&entry.id), escaped(app), escaped(&entry.repo));
        text.push_str(&format!("  #{} {id} [{}] {app} repo={repo}\n", entry.priority, entry.status));
    }
    text
}
