//! What this process was granted: when it settles such a task, the server need not send all of it back.
//!
//! A task that had no event but the one that settled it is as it was granted, because every change is an event. The server
//! judges that by the count ([`super::sql::TURN_AT_ONCE`]).

use std::collections::{HashMap, VecDeque};

use rota_core::lease::LeaseId;
use rota_core::{Json, Status, Task, UnixMillis};

/// Grants that are remembered.
const MOST: usize = 4096;
/// What is longer is not.
const LONGEST: usize = 4096;

/// The newest grants, by scope and lease: a lease is granted once.
#[derive(Default)]
pub(super) struct Granted {
    tasks: HashMap<(String, LeaseId), Task>,
    order: VecDeque<(String, LeaseId)>,
}

impl Granted {
    /// Remembers a task that was granted just now.
    pub fn keep(&mut self, task: &Task) {
        let Some(lease) = task.lease().filter(|_| length(task) <= LONGEST) else { return };
        let key = (task.scope.to_string(), lease);
        self.tasks.insert(key.clone(), task.clone());
        self.order.push_back(key);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.tasks.remove(&oldest);
        }
    }

    /// Hands out a task that is to be settled.
    pub fn take(&mut self, scope: &str, lease: &LeaseId) -> Option<Task> {
        self.tasks.remove(&(scope.to_owned(), lease.clone()))
    }
}

fn length(task: &Task) -> usize {
    let texts = [task.description.as_deref(), task.payload.as_ref().map(Json::as_str)];
    task.title.len()
        + texts.into_iter().flatten().map(str::len).sum::<usize>()
        + task.steps.iter().map(String::len).sum::<usize>()
}

/// A granted task once it is done, and nothing else happened to it.
pub(super) fn done(task: Task, result: Option<Json>, now: UnixMillis) -> Task {
    Task {
        status: Status::Done,
        lease_expires_at: None,
        result,
        finished_at: Some(now),
        updated_at: now,
        events: task.events + 1,
        ..task
    }
}

#[cfg(test)]
mod tests {
    use rota_core::{Fence, TaskId};

    use super::*;

    fn granted(number: usize, fence: u64) -> Task {
        let id = TaskId::new(&format!("task-{number}")).unwrap();
        let task = Task::new("default", id, "tasks", "A task", UnixMillis::new(1));
        Task { status: Status::Active, fence: Fence::new(fence), events: 2, ..task }
    }

    #[test]
    fn a_grant_is_handed_out_once_and_only_for_its_own_lease() {
        let mut known = Granted::default();
        let task = granted(1, 3);
        known.keep(&task);
        let lease = task.lease().unwrap();
        assert_eq!(known.take("other", &lease), None);
        assert_eq!(known.take("default", &granted(1, 4).lease().unwrap()), None);
        assert_eq!(known.take("default", &lease), Some(task));
        assert_eq!(known.take("default", &lease), None);
    }

    #[test]
    fn the_newest_are_kept_and_nothing_long() {
        let mut known = Granted::default();
        for number in 0..=MOST {
            known.keep(&granted(number, 1));
        }
        assert_eq!(known.take("default", &granted(0, 1).lease().unwrap()), None);
        assert!(known.take("default", &granted(1, 1).lease().unwrap()).is_some());
        assert!(known.take("default", &granted(MOST, 1).lease().unwrap()).is_some());
        assert!(known.order.len() <= MOST && known.tasks.len() <= MOST);
        let long = Task { description: Some("x".repeat(LONGEST).as_str().into()), ..granted(1, 9) };
        known.keep(&long);
        assert_eq!(known.take("default", &long.lease().unwrap()), None);
    }
}
