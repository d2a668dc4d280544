//! Whether this host has room for another loop: space on the disk, and worktrees. The manager begins by it, and `rota why`
//! explains by it.

use rota_core::obstacle::Wait;

use crate::config::Config;
use crate::folders::Folders;
use crate::worktree;

/// What keeps loops of a kind from beginning here.
pub fn waits(config: &Config, folders: &Folders, kind: &str) -> Vec<Wait> {
    let mut waits: Vec<Wait> = disk(config, folders).into_iter().collect();
    if config.kind(kind).worktree && worktree::count(folders) >= config.max_worktrees {
        waits.push(Wait::WorktreesFull { ceiling: config.max_worktrees });
    }
    waits
}

/// Too little space; none also where that cannot be found out.
pub fn disk(config: &Config, folders: &Folders) -> Option<Wait> {
    let space = rustix::fs::statvfs(&folders.rota).ok()?;
    let available = space.f_bavail.saturating_mul(space.f_frsize);
    let minimum = config.disk_min_free_bytes;
    (available < minimum).then_some(Wait::DiskLow { available, minimum })
}
