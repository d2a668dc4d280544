//! The turnstile: writers wait in the kernel's line for an advisory lock instead of polling SQLite's own.
//!
//! SQLite's busy handler sleeps and tries again; with four processes one can starve for a whole run. A blocking
//! `flock` is served in turn. The lock is only about order: SQLite's own locks stay the truth, so a process that does
//! not know the turnstile can do no harm.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::time::Duration;

use super::identity::{beside, real_path};
use super::open::io_fault;
use crate::fault::Fault;
use crate::files::create_for_owner;

/// One ticket; a session has its own, because a lock belongs to an open file.
pub(super) struct Turn {
    file: File,
    /// Who stands in line for us. Made when we first have to wait, and kept: a session that waits once waits often.
    waiter: OnceLock<Sender<SyncSender<std::io::Result<()>>>>,
}

impl Turn {
    /// The turnstile of a database.
    pub fn open(database: &Path) -> Result<Self, Fault> {
        let path = beside(&real_path(database)?, "-turn");
        let existing = File::options().read(true).write(true).open(&path);
        let opened = match existing {
            Err(error) if error.kind() == ErrorKind::NotFound => match create_for_owner(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    File::options().read(true).write(true).open(&path)
                }
                created => created,
            },
            existing => existing,
        };
        opened.map(Self::on).map_err(|source| io_fault(&path, source))
    }

    /// Any open file can be waited for.
    pub fn on(file: File) -> Self {
        Self { file, waiter: OnceLock::new() }
    }

    /// Waits for the turn; false if it did not come in time.
    pub fn take(&self, patience: Duration) -> std::io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => return Ok(true),
            Err(std::fs::TryLockError::WouldBlock) => {}
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
        let waiter = match self.waiter.get() {
            Some(waiter) => waiter,
            None => {
                let waiter = wait_for(self.file.try_clone()?)?;
                self.waiter.get_or_init(|| waiter)
            }
        };
        let (hand_over, hand) = mpsc::sync_channel(0);
        if waiter.send(hand_over).is_err() {
            return Err(std::io::Error::other("the thread that waits for the turn has ended"));
        }
        match hand.recv_timeout(patience) {
            Ok(locked) => locked.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    pub fn give_back(&self) -> std::io::Result<()> {
        self.file.unlock()
    }
}

/// A blocking lock has no time limit of its own, so another thread waits for it. It hands the lock over at a
/// rendezvous: if nobody is there any more, it gives it back. It ends with the session.
fn wait_for(file: File) -> std::io::Result<Sender<SyncSender<std::io::Result<()>>>> {
    let (ask, asked) = mpsc::channel::<SyncSender<std::io::Result<()>>>();
    std::thread::Builder::new().name("rota-turn".into()).stack_size(64 * 1_024).spawn(move || {
        while let Ok(hand_over) = asked.recv() {
            if hand_over.send(file.lock()).is_err()
                && let Err(error) = file.unlock()
            {
                // Nothing to be done: the lock goes with the descriptor, when the session is closed.
                drop(error);
            }
        }
    })?;
    Ok(ask)
}
