//! Whether this host has room for another loop: space on the disk, and worktrees. The manager begins by it, and `rota why`
//! explains by it.

use rota_core::Task;
use rota_core::obstacle::Wait;

use crate::config::Config;
use crate::folders::{Folders, Place};
use crate::iteration::VALIDATION;
use crate::worktree;

/// What keeps loops of a kind from beginning here.
pub fn waits(config: &Config, folders: &Folders, kind: &str) -> Vec<Wait> {
    let mut waits: Vec<Wait> = disk(config, folders).into_iter().collect();
    let ceiling = config.max_worktrees;
    if config.kind(kind).worktree && worktree::in_use(folders).len() >= ceiling as usize {
        waits.push(Wait::WorktreesFull { ceiling, kept: worktree::kept(folders) });
    }
    waits
}

/// Whether the validation of a loop that runs here is under way: its output has a file from its beginning on.
pub fn is_validating(folders: &Folders, task: &Task) -> bool {
    folders.records(&Place::of(task), task.iteration).join(VALIDATION).exists()
}

/// Too little space; none also where that cannot be found out.
pub fn disk(config: &Config, folders: &Folders) -> Option<Wait> {
    let space = rustix::fs::statvfs(&folders.rota).ok()?;
    let available = space.f_bavail.saturating_mul(space.f_frsize);
    let minimum = config.disk_min_free_bytes;
    (available < minimum).then_some(Wait::DiskLow { available, minimum })
}
