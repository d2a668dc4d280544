//! Whether a store's tables, counts and indexes agree with its journal and with core, judged from scratch.

use std::collections::{BTreeMap, BTreeSet};

use rota_core::event::{self, Event, EventKind, Folded};
use rota_core::obstacle::{self, Facts, Obstacle, ParentFact, obstacles};
use rota_core::rank::{self, Rankable};
use rota_core::transition::Verb;
use rota_core::{Policy, Status, Task, TaskId};

use crate::picture::{HEADS, LEVELS, Picture, QueuePicture};
use rota_store::intents::default_policy;

/// Panics at the first disagreement.
#[track_caller]
pub fn check_everything(picture: &Picture) {
    if let Err(problem) = find_disagreement(picture) {
        panic!("at {}: {problem}", picture.now);
    }
}

/// The first disagreement, in words.
pub fn find_disagreement(picture: &Picture) -> Result<(), String> {
    journal_folds_to_tables(picture)?;
    blockers_are_counted(picture)?;
    nobody_is_left_behind(picture)?;
    policies_and_pauses_are_journalled(picture)?;
    for queue in &picture.queues {
        let name = &queue.row.name;
        index_agrees_with_core(picture, queue).map_err(|problem| format!("queue {name}: {problem}"))?;
        counts_agree(picture, queue).map_err(|problem| format!("queue {name}: {problem}"))?;
        heads_are_enough(picture, queue).map_err(|problem| format!("queue {name}: {problem}"))?;
    }
    ceilings_hold(picture)?;
    leases_are_whole(picture)
}

/// P3: no grant in the journal ever made more leases than the policy it was decided by allows, per queue and per kind.
pub fn ceilings_hold(picture: &Picture) -> Result<(), String> {
    let mut policies = BTreeMap::from([(default_policy().version.clone(), default_policy().policy.clone())]);
    for row in &picture.policies {
        // One that cannot be read decided nothing.
        if let Ok(policy) = Policy::parse(row.document.as_str()) {
            policies.insert(row.version.clone(), policy);
        }
    }
    let mut folded: BTreeMap<TaskId, Folded> = BTreeMap::new();
    let mut active: BTreeMap<TaskId, (String, Option<String>)> = BTreeMap::new();
    for event in &picture.events {
        let Some(task) = &event.task else { continue };
        let after = event::fold(folded.remove(task), event).map_err(|error| error.to_string())?;
        active.remove(task);
        if after.task.status == Status::Active {
            active.insert(task.clone(), (after.task.queue.to_string(), after.task.kind.clone()));
        }
        if event.to == Some(Status::Active) && event.from != Some(Status::Active) {
            let version = event.policy.clone().unwrap_or_default();
            let policy = policies.get(&version).ok_or_else(|| format!("event {}: no policy", event.seq))?;
            let (queue, kind) = (&after.task.queue, &after.task.kind);
            let rules = policy.queue(queue);
            let in_queue = active.values().filter(|(of, _)| of == queue).count();
            let of_kind = active.values().filter(|(of, own)| of == queue && own == kind).count();
            let per_kind = kind.as_ref().and_then(|kind| rules.per_kind.get(kind)).copied();
            let exceeds =
                |count: usize, ceiling: Option<u32>| ceiling.is_some_and(|most| count > most as usize);
            if exceeds(in_queue, rules.max_concurrent) || exceeds(of_kind, per_kind) {
                return Err(format!(
                    "event {}: {in_queue} leases in '{queue}', {of_kind} of {kind:?}",
                    event.seq
                ));
            }
        }
        folded.insert(task.clone(), after);
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, stored: &T, wanted: &T) -> Result<(), String> {
    if stored == wanted {
        return Ok(());
    }
    Err(format!("{what} differ\n stored: {stored:?}\n wanted: {wanted:?}"))
}

fn journal_folds_to_tables(picture: &Picture) -> Result<(), String> {
    let mut folded: BTreeMap<TaskId, Folded> = BTreeMap::new();
    let mut last = 0;
    for event in &picture.events {
        if event.seq <= last {
            return Err(format!("journal number {} follows {last}", event.seq));
        }
        last = event.seq;
        let Some(task) = &event.task else { continue };
        let before = folded.remove(task);
        let after = event::fold(before, event).map_err(|error| error.to_string())?;
        folded.insert(task.clone(), after);
    }
    same("tasks in journal and tables", &keys(&picture.rows), &keys(&folded))?;
    for (id, row) in &picture.rows {
        let Some(Folded { task, blocked_by }) = folded.get(id) else { continue };
        same(&format!("fields of '{id}'"), &row.task, task)?;
        same(&format!("edges of '{id}'"), &picture.blockers(id).cloned().collect(), blocked_by)?;
    }
    Ok(())
}

fn keys<V>(map: &BTreeMap<TaskId, V>) -> Vec<&TaskId> {
    map.keys().collect()
}

fn blockers_are_counted(picture: &Picture) -> Result<(), String> {
    for (id, row) in &picture.rows {
        let counted = picture.open_blockers(id).len();
        same(&format!("open blockers of '{id}'"), &(row.open_blockers as usize), &counted)?;
    }
    let graph = picture.edges.iter().fold(rota_core::graph::Edges::new(), |mut graph, (task, blocker)| {
        graph.entry(task.clone()).or_default().push(blocker.clone());
        graph
    });
    same("circles", &rota_core::graph::find_cycle(&graph), &None)
}

/// No unfinished task has a deleted parent, or comes from another iteration of it than the last.
fn nobody_is_left_behind(picture: &Picture) -> Result<(), String> {
    for task in picture.rows.values().map(|row| &row.task).filter(|task| !task.status.is_finished()) {
        let outlived = obstacle::outlived(task, &facts_of(picture, task));
        same(&format!("what '{}' was left behind by", task.id), &outlived, &None)?;
    }
    Ok(())
}

fn policies_and_pauses_are_journalled(picture: &Picture) -> Result<(), String> {
    let events = |kind: EventKind| picture.events.iter().filter(move |event| event.kind == kind);
    let documents: Vec<&str> = picture.policies.iter().map(|row| row.document.as_str()).collect();
    let journalled: Vec<&str> = events(EventKind::PolicyPublished)
        .filter_map(|event| event.data.changes.get("document").map(rota_core::Json::as_str))
        .collect();
    same("policies", &documents, &journalled)?;
    let numbers: Vec<u64> = picture.policies.iter().map(|row| row.number).collect();
    same("policy numbers", &numbers, &(1..).take(numbers.len()).collect())?;
    for queue in &picture.queues {
        let is_of = |event: &&Event| event.data.queue.as_deref() == Some(queue.row.name.as_str());
        let last = picture.events.iter().rev().filter(is_of).find_map(|event| match event.kind {
            EventKind::QueuePaused => Some(true),
            EventKind::QueueResumed => Some(false),
            _ => None,
        });
        same(&format!("pause of '{}'", queue.row.name), &queue.row.paused, &last.unwrap_or(false))?;
    }
    Ok(())
}

/// What core finds in the way of a task, from the rows and edges alone.
pub fn obstacles_of(picture: &Picture, task: &Task) -> Vec<Obstacle> {
    obstacles(task, &facts_of(picture, task), picture.now)
}

fn facts_of(picture: &Picture, task: &Task) -> Facts {
    let parent = task.parent.as_ref().and_then(|parent| picture.rows.get(parent));
    let parent = parent.map(|row| ParentFact { status: row.task.status, iteration: row.task.iteration });
    let blocked_by = picture.open_blockers(&task.id);
    Facts { parent, open_blockers: u32::try_from(blocked_by.len()).unwrap(), blocked_by }
}

fn of_queue<'a>(picture: &'a Picture, queue: &'a QueuePicture) -> impl Iterator<Item = &'a Task> {
    picture.rows.values().map(|row| &row.task).filter(|task| task.queue == queue.row.name)
}

/// The runnable tasks of a queue in the one order.
fn runnable<'a>(picture: &'a Picture, queue: &'a QueuePicture) -> Vec<(&'a Task, Rankable)> {
    let policy = picture.published.policy.queue(&queue.row.name);
    let runnable = of_queue(picture, queue).filter(|task| obstacles_of(picture, task).is_empty());
    let mut list: Vec<(&Task, Rankable)> = runnable.map(|task| (task, Rankable::of(task, policy))).collect();
    list.sort_by_cached_key(|(_, rankable)| rank::key(rankable, policy, picture.now));
    list
}

fn index_agrees_with_core(picture: &Picture, queue: &QueuePicture) -> Result<(), String> {
    let by_seq = |list: Vec<Rankable>| -> BTreeMap<u64, Rankable> {
        list.into_iter().map(|rankable| (rankable.seq, rankable)).collect()
    };
    let stored: Vec<Rankable> = queue.ready.iter().chain(&queue.due).cloned().collect();
    let listed = stored.len();
    let stored = by_seq(stored);
    same("tasks in both indexes, none twice, and runnable", &listed, &stored.len())?;
    let wanted = runnable(picture, queue).into_iter().map(|(_, rankable)| rankable).collect();
    same("runnable tasks", &stored, &by_seq(wanted))
}

fn counts_agree(picture: &Picture, queue: &QueuePicture) -> Result<(), String> {
    let mut active: BTreeMap<String, u32> = BTreeMap::new();
    let mut counts: BTreeMap<(Status, bool), u64> = BTreeMap::new();
    let mut expired = Vec::new();
    for task in of_queue(picture, queue) {
        let blocked = !picture.open_blockers(&task.id).is_empty();
        *counts.entry((task.status, blocked)).or_default() += 1;
        if task.status == Status::Active {
            *active.entry(task.kind.clone().unwrap_or_default()).or_default() += 1;
        }
        if task.lease_expired(picture.now) {
            expired.push((task.lease_expires_at, task.kind.clone(), task.seq, task.id.clone()));
        }
    }
    expired.sort();
    let stored = queue.counts.iter().map(|count| ((count.status, count.blocked), count.count));
    same("counts", &stored.collect(), &counts)?;
    same("unsettled leases", &queue.active, &active)?;
    let expired: Vec<TaskId> = expired.into_iter().map(|(.., id)| id).collect();
    same("expired leases", &queue.expired, &expired)
}

/// Of the first priorities the first few are among the heads, in order. Only what is in the index counts: what has cooled
/// down enters it with the next claim.
fn heads_are_enough(picture: &Picture, queue: &QueuePicture) -> Result<(), String> {
    let ready: BTreeSet<u64> = queue.ready.iter().map(|rankable| rankable.seq).collect();
    let mut levels: BTreeMap<u32, Vec<TaskId>> = BTreeMap::new();
    for (task, _) in runnable(picture, queue).into_iter().filter(|(task, _)| ready.contains(&task.seq)) {
        levels.entry(task.sort_priority()).or_default().push(task.id.clone());
    }
    let wanted: Vec<Vec<TaskId>> =
        levels.into_values().take(LEVELS).map(|ids| ids.into_iter().take(HEADS).collect()).collect();
    let heads: Vec<Vec<TaskId>> = queue
        .heads
        .iter()
        .map(|level| level.iter().take(HEADS).map(|task| task.id.clone()).collect())
        .collect();
    same("heads", &heads, &wanted)
}

/// A lease is held by active tasks and by no others, and every fence was granted once.
fn leases_are_whole(picture: &Picture) -> Result<(), String> {
    for row in picture.rows.values() {
        let task = &row.task;
        let is_active = task.status == Status::Active;
        same(&format!("lease of '{}'", task.id), &task.lease_expires_at.is_some(), &is_active)?;
    }
    // A task from elsewhere goes on behind the last lease it is known to have had.
    let mut granted: BTreeMap<&TaskId, u64> = BTreeMap::new();
    for event in picture.events.iter().filter(|event| event.kind == EventKind::Created) {
        let fence = event.data.changes.get("fence").and_then(|fence| fence.as_str().parse().ok());
        granted.extend(event.task.as_ref().zip(fence));
    }
    let grant = EventKind::Step(Verb::Claim);
    for event in picture.events.iter().filter(|event| event.kind == grant) {
        let (Some(task), Some(fence)) = (&event.task, event.fence) else {
            return Err(format!("grant {} names no task or fence", event.seq));
        };
        let last = granted.insert(task, fence.get()).unwrap_or(0);
        same(&format!("fence of grant {} of '{task}'", event.seq), &fence.get(), &(last + 1))?;
    }
    Ok(())
}

/// Goes through the journal as it was committed: every grant found its task open, its blockers done, and the ceiling
/// not reached. Only for stores whose transactions run one after the other.
pub fn grants_in_commit_order(picture: &Picture, ceiling: Option<usize>) -> Result<(), String> {
    let mut folded: BTreeMap<TaskId, Folded> = BTreeMap::new();
    let mut active: BTreeSet<TaskId> = BTreeSet::new();
    for event in &picture.events {
        let Some(task) = &event.task else { continue };
        let before = folded.remove(task);
        if event.kind == EventKind::Step(Verb::Claim) {
            let blockers = before.iter().flat_map(|folded| &folded.blocked_by);
            let is_open =
                |id: &&TaskId| !folded.get(*id).is_some_and(|blocker| blocker.task.status.satisfies_edge());
            if let Some(blocker) = blockers.into_iter().find(is_open) {
                return Err(format!("event {}: '{task}' was granted while '{blocker}' was open", event.seq));
            }
        }
        let after = event::fold(before, event).map_err(|error| error.to_string())?;
        if after.task.status == Status::Active {
            active.insert(task.clone());
        } else {
            active.remove(task);
        }
        if ceiling.is_some_and(|ceiling| active.len() > ceiling) {
            return Err(format!("event {}: {} leases are held", event.seq, active.len()));
        }
        folded.insert(task.clone(), after);
    }
    Ok(())
}
