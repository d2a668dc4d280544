//! What a claim must choose, worked out the slow way: look at every task, judge it, sort all, count by hand.

use std::collections::BTreeMap;

use rota_core::policy::Reclaim;
use rota_core::rank::{self, Rankable};
use rota_core::transition::{self, Command};
use rota_core::{Status, Task};

use crate::check::obstacles_of;
use crate::picture::{Picture, QueuePicture};
use rota_store::intents::claim::Claim;

/// The ids that the claim must grant, in order.
pub fn choice(picture: &Picture, claim: &Claim) -> Vec<String> {
    let policy = picture.published.policy.queue(&claim.queue);
    let picture = taken_back(picture, &claim.queue);
    let own = picture.rows.values().map(|row| &row.task).filter(|task| task.queue == claim.queue);
    let mut active = 0;
    let mut by_kind: BTreeMap<Option<&String>, u32> = BTreeMap::new();
    for task in own.filter(|task| task.status == Status::Active) {
        active += 1;
        *by_kind.entry(task.kind.as_ref()).or_default() += 1;
    }
    let mut chosen = Vec::new();
    for task in runnable(&picture, claim) {
        let full = policy.max_concurrent.is_some_and(|ceiling| active >= ceiling);
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

/// The ids that claims would grant one after the other if there were no ceilings.
pub fn order(picture: &Picture, claim: &Claim) -> Vec<String> {
    let picture = taken_back(picture, &claim.queue);
    runnable(&picture, claim).into_iter().map(|task| task.id.to_string()).collect()
}

/// Everything that nothing stands in the way of, in the one order.
fn runnable<'a>(picture: &'a Picture, claim: &Claim) -> Vec<&'a Task> {
    let is_paused = |queue: &QueuePicture| queue.row.name == claim.queue && queue.row.paused;
    if picture.queues.iter().any(is_paused) {
        return Vec::new();
    }
    let policy = picture.published.policy.queue(&claim.queue);
    let own = picture.rows.values().map(|row| &row.task).filter(|task| task.queue == claim.queue);
    let mut runnable: Vec<&Task> =
        own.filter(|task| is_wanted(task, claim) && obstacles_of(picture, task).is_empty()).collect();
    runnable.sort_by_cached_key(|task| rank::key(&Rankable::of(task, policy), policy, picture.now));
    runnable
}

/// The picture as it is once the queue's expired leases are taken back, where claims do that.
fn taken_back(picture: &Picture, queue: &str) -> Picture {
    let mut picture = picture.clone();
    let policy = picture.published.policy.queue(queue);
    if policy.reclaim == Reclaim::Auto {
        for row in picture.rows.values_mut() {
            if row.task.queue == queue && row.task.lease_expired(picture.now) {
                let lost = transition::apply(&row.task, &Command::Lose, policy, picture.now);
                row.task = lost.expect("an active task can be lost").task;
            }
        }
    }
    picture
}

fn is_wanted(task: &Task, claim: &Claim) -> bool {
    let wanted = &claim.wanted;
    let category = wanted.category.as_ref().is_none_or(|category| task.category.as_deref() == Some(category));
    let specs = wanted.specs.as_ref();
    let spec = specs.is_none_or(|globs| task.spec_ref.as_ref().is_some_and(|spec| globs.matches(spec)));
    let host = match (&claim.host, &task.host) {
        (Some(here), Some(host)) => here == host,
        _ => true,
    };
    category && spec && host
}
