//! What a claim must choose, worked out the slow way: look at every task, judge it, sort all, count by hand.

use std::collections::BTreeMap;

use rota_core::policy::Reclaim;
use rota_core::rank::{self, Rankable};
use rota_core::transition::{self, Command};
use rota_core::{Status, Task};

use super::check::obstacles_of;
use super::picture::Picture;
use crate::intents::claim::Claim;

/// The ids that the claim must grant, in order.
pub fn choice(picture: &Picture, claim: &Claim) -> Vec<String> {
    let Some(queue) = picture.queues.iter().find(|queue| queue.row.name == claim.queue) else {
        return Vec::new();
    };
    if queue.row.paused {
        return Vec::new();
    }
    let policy = picture.published.policy.queue(&claim.queue);
    let mut picture = picture.clone();
    if policy.reclaim == Reclaim::Auto {
        take_back(&mut picture, &claim.queue);
    }
    let own = |task: &&Task| task.queue == claim.queue;
    let tasks: Vec<&Task> = picture.rows.values().map(|row| &row.task).filter(own).collect();
    let mut active = tasks.iter().filter(|task| task.status == Status::Active).count();
    let mut by_kind: BTreeMap<Option<&String>, u32> = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.status == Status::Active) {
        *by_kind.entry(task.kind.as_ref()).or_default() += 1;
    }
    let mut runnable: Vec<&Task> = tasks
        .into_iter()
        .filter(|task| is_wanted(task, claim) && obstacles_of(&picture, task).is_empty())
        .collect();
    runnable.sort_by_cached_key(|task| rank::key(&Rankable::of(task, policy), policy, picture.now));
    let mut chosen = Vec::new();
    for task in runnable {
        let full = policy.max_concurrent.is_some_and(|ceiling| active >= ceiling as usize);
        if full || chosen.len() == claim.limit {
            break;
        }
        let of_kind = by_kind.entry(task.kind.as_ref()).or_default();
        let ceiling = task.kind.as_ref().and_then(|kind| policy.per_kind.get(kind));
        if ceiling.is_some_and(|ceiling| *of_kind >= *ceiling) {
            continue;
        }
        *of_kind += 1;
        active += 1;
        chosen.push(task.id.to_string());
    }
    chosen
}

fn take_back(picture: &mut Picture, queue: &str) {
    let policy = picture.published.policy.queue(queue);
    for row in picture.rows.values_mut() {
        if row.task.queue == queue && row.task.lease_expired(picture.now) {
            let lost = transition::apply(&row.task, &Command::Lose, policy, picture.now);
            row.task = lost.expect("an active task can be lost").task;
        }
    }
}

fn is_wanted(task: &Task, claim: &Claim) -> bool {
    let wanted = &claim.wanted;
    let category = wanted.category.as_ref().is_none_or(|category| task.category.as_ref() == Some(category));
    let specs = wanted.specs.as_ref();
    let spec = specs.is_none_or(|globs| task.spec_ref.as_ref().is_some_and(|spec| globs.matches(spec)));
    let host = match (&claim.host, &task.host) {
        (Some(here), Some(host)) => here == host,
        _ => true,
    };
    category && spec && host
}
