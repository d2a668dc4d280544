//! The entries of a queue, readable.

use rota_core::text::escaped;
use rota_verbs::queue::Entries;

/// The text of `queue list`.
pub fn text(list: &Entries) -> String {
    let mut text = format!("Run Queue: {} entry(ies) [priority asc]\n", list.total);
    if list.entries.is_empty() {
        text.push_str("  (queue empty)\n");
    }
    for entry in list.entries.iter().map(|listed| &listed.entry) {
        let app = entry
            .app_id
            .as_deref()
            .or(entry.workflow_id.as_deref())
            .or(entry.run_id.as_deref())
            .unwrap_or("-");
        let (id, app, repo) = (escaped(&entry.id), escaped(app), escaped(&entry.repo));
        let note = entry.note.as_ref().map_or(String::new(), |note| format!(" note={}", escaped(note)));
        text.push_str(&format!("  #{} {id} [{}] {app} repo={repo}{note}\n", entry.priority, entry.status));
    }
    text
}
