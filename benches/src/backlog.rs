//! Backlogs, filled through the store like any other.

use std::path::Path;

use rota_core::time::MINUTE_MS;
use rota_core::{TaskId, UnixMillis};
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewPriority, NewTask};
use rota_store::sqlite::SqliteStore;
use rota_store::{Store, clock};
use rota_testbed::block_on;

use crate::Result;

const BATCH: usize = 10_000;
/// The kinds that queue `loops` knows, by depth.
const KINDS: [&str; 4] = ["plan", "spec", "phase", "ralph"];

/// What a backlog looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Everything may run.
    Runnable,
    /// Nine of ten may not, and all of those sort first: half of them wait for one another, half cool down.
    MostlyHeldBack,
}

/// Makes a file with `count` tasks in a queue.
pub fn fill(path: &Path, queue: &str, count: usize, shape: Shape) -> Result<SqliteStore> {
    let store = SqliteStore::open(path)?;
    block_on(fill_store(&store, queue, count, shape))?;
    Ok(store)
}

/// Adds `count` tasks to a queue of an empty store.
pub async fn fill_store(store: &impl Store, queue: &str, count: usize, shape: Shape) -> Result<()> {
    let now = clock::system_now();
    let mut number = 0;
    while number < count {
        let end = (number + BATCH).min(count);
        let tasks =
            (number..end).map(|number| task(queue, number, shape, now)).collect::<Result<Vec<_>>>()?;
        // Added over the last half hour, so that ages differ and nothing is overdue.
        let age_ms = 30 * MINUTE_MS - i64::try_from(number * 1_800_000 / count)?;
        let call = Call::in_scope("default").at(now.plus_ms(-age_ms));
        store.perform(&Add { call, tasks }).await?;
        number = end;
    }
    Ok(())
}

fn task(queue: &str, number: usize, shape: Shape, now: UnixMillis) -> Result<NewTask> {
    let mut task = NewTask::new(id(number)?, queue, &format!("Task number {number}"));
    task.description = Some("What is to be done, in one sentence of the usual length.".to_owned());
    task.category = Some("code".to_owned());
    if queue == "loops" {
        task.kind = Some(KINDS[number % KINDS.len()].to_owned());
        task.priority = NewPriority::Unset;
    }
    if shape == Shape::MostlyHeldBack && number % 10 != 9 {
        task.priority = NewPriority::Given(u32::try_from(number % 2)?);
        // The first of each ten cools down, so nothing that waits for it is ever let in.
        if number % 10 < 5 {
            task.not_before = Some(now.plus_ms(24 * 60 * MINUTE_MS + i64::try_from(number)?));
        } else {
            task.deps = vec![id(number - 5)?];
        }
    }
    Ok(task)
}

/// The id of a task by its number.
pub fn id(number: usize) -> Result<TaskId> {
    Ok(TaskId::new(&format!("task-{number:07}"))?)
}
