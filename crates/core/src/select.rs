//! Chooses what to grant next. Ceilings are applied while choosing, not after cutting the list, so a full kind never
//! hides a runnable task behind it.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::TaskId;
use crate::obstacle::Wait;
use crate::policy::QueuePolicy;
use crate::rank::{self, Rankable};
use crate::time::UnixMillis;

/// A task without obstacles: the head of its bucket, or near it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The task.
    pub id: TaskId,
    /// The kind, for its ceiling.
    pub kind: Option<String>,
    /// The fields that determine its rank.
    pub rankable: Rankable,
}

/// The remaining capacity under a queue's ceilings, counted from live leases.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Room {
    ceiling: Option<u32>,
    active: u32,
    per_kind: BTreeMap<String, u32>,
    active_by_kind: BTreeMap<String, u32>,
    upstream_of: BTreeMap<String, String>,
    limits: BTreeMap<String, UpstreamLimit>,
    worktrees: Option<WorktreeLimit>,
}

/// How many more worktrees the host that asks may use, and the kinds whose tasks use one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WorktreeLimit {
    /// The kinds.
    pub kinds: BTreeSet<String>,
    /// The host's ceiling, for the reason to wait.
    pub ceiling: u32,
    /// How many more.
    pub left: u32,
}

/// The limits on loops that use one upstream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UpstreamLimit {
    /// A wait that lets none of them start, such as a block.
    pub held: Vec<Wait>,
    /// How many of them may run at once.
    pub ceiling: Option<u32>,
}

impl Room {
    /// From a policy and the unsettled leases by kind, including expired ones.
    pub fn new(policy: &QueuePolicy, active_by_kind: BTreeMap<String, u32>) -> Self {
        Self {
            ceiling: policy.max_concurrent,
            active: active_by_kind.values().fold(0, |sum, count| sum.saturating_add(*count)),
            per_kind: policy.per_kind.clone(),
            active_by_kind,
            upstream_of: BTreeMap::new(),
            limits: BTreeMap::new(),
            worktrees: None,
        }
    }

    /// The same under the limit on worktrees of the host that asks.
    #[must_use]
    pub fn with_worktrees(mut self, worktrees: Option<WorktreeLimit>) -> Self {
        self.worktrees = worktrees;
        self
    }

    /// The same with the limits of upstreams, given the upstream that each kind uses.
    #[must_use]
    pub fn with_upstreams(
        mut self,
        upstream_of: BTreeMap<String, String>,
        limits: BTreeMap<String, UpstreamLimit>,
    ) -> Self {
        (self.upstream_of, self.limits) = (upstream_of, limits);
        self
    }

    /// Whether a policy has any ceiling.
    pub fn is_bounded_by(policy: &QueuePolicy) -> bool {
        policy.max_concurrent.is_some() || !policy.per_kind.is_empty()
    }

    /// Unsettled leases.
    pub fn active(&self) -> u32 {
        self.active
    }

    /// How many more leases the queue allows; none for no limit.
    pub fn left(&self) -> Option<u32> {
        self.ceiling.map(|ceiling| ceiling.saturating_sub(self.active))
    }

    /// The first reason why a task of this kind must wait.
    pub fn wait(&self, kind: Option<&str>) -> Option<Wait> {
        self.waits(kind).into_iter().next()
    }

    /// Every ceiling and limit that makes a task of this kind wait.
    pub fn waits(&self, kind: Option<&str>) -> Vec<Wait> {
        let mut waits = Vec::new();
        if let Some(ceiling) = self.ceiling.filter(|ceiling| self.active >= *ceiling) {
            waits.push(Wait::QueueFull { ceiling, active: self.active });
        }
        let Some(kind) = kind else { return waits };
        let active = self.active_by_kind.get(kind).copied().unwrap_or(0);
        if let Some(ceiling) = self.per_kind.get(kind).copied().filter(|ceiling| active >= *ceiling) {
            waits.push(Wait::KindFull { kind: kind.to_owned(), ceiling, active });
        }
        if let Some(upstream) = self.upstream_of.get(kind) {
            waits.extend(self.upstream_waits(upstream));
        }
        if let Some(limit) =
            self.worktrees.as_ref().filter(|limit| limit.left == 0 && limit.kinds.contains(kind))
        {
            waits.push(Wait::WorktreesFull { ceiling: limit.ceiling, kept: Vec::new() });
        }
        waits
    }

    /// Every reason why loops that use one of the upstreams wait, with the upstream.
    pub fn all_upstream_waits(&self) -> Vec<(String, Wait)> {
        let waits = |upstream: &String| {
            let named = |wait| (upstream.clone(), wait);
            self.upstream_waits(upstream).into_iter().map(named).collect::<Vec<_>>()
        };
        self.limits.keys().flat_map(waits).collect()
    }

    fn upstream_waits(&self, upstream: &str) -> Vec<Wait> {
        let Some(limit) = self.limits.get(upstream) else { return Vec::new() };
        let mut waits = limit.held.clone();
        let users = self.upstream_of.iter().filter(|(_, used)| *used == upstream);
        let active = users
            .filter_map(|(kind, _)| self.active_by_kind.get(kind))
            .fold(0_u32, |sum, count| sum.saturating_add(*count));
        if let Some(ceiling) = limit.ceiling.filter(|ceiling| active >= *ceiling) {
            waits.push(Wait::UpstreamFull { upstream: upstream.to_owned(), ceiling, active });
        }
        waits
    }

    /// The kinds without remaining capacity.
    pub fn full_kinds(&self) -> Vec<String> {
        let with_worktree = self.worktrees.iter().flat_map(|limit| &limit.kinds);
        let mut kinds: Vec<&String> =
            self.per_kind.keys().chain(self.upstream_of.keys()).chain(with_worktree).collect();
        kinds.sort();
        kinds.dedup();
        kinds.into_iter().filter(|kind| self.wait(Some(kind)).is_some()).cloned().collect()
    }

    /// Returns the capacity of one lease.
    pub fn release(&mut self, kind: Option<&str>) {
        self.active = self.active.saturating_sub(1);
        if let Some(count) = self.active_by_kind.get_mut(kind.unwrap_or_default()) {
            *count = count.saturating_sub(1);
        }
        if let Some(left) = self.worktrees_left_for(kind) {
            *left = left.saturating_add(1);
        }
    }

    /// What the worktree limit leaves; none if tasks of this kind use no worktree.
    fn worktrees_left_for(&mut self, kind: Option<&str>) -> Option<&mut u32> {
        let limit = self.worktrees.as_mut()?;
        limit.kinds.contains(kind?).then_some(&mut limit.left)
    }

    fn take(&mut self, kind: Option<&str>) {
        self.active = self.active.saturating_add(1);
        let count = self.active_by_kind.entry(kind.unwrap_or_default().to_owned()).or_default();
        *count = count.saturating_add(1);
        if let Some(left) = self.worktrees_left_for(kind) {
            *left = left.saturating_sub(1);
        }
    }
}

/// Chooses up to `limit` candidates. The same inputs give the same result on every host. Chosen tasks use up
/// capacity, so the next call continues where this one ended.
pub fn select(
    candidates: Vec<Candidate>,
    room: &mut Room,
    policy: &QueuePolicy,
    now: UnixMillis,
    limit: usize,
) -> Vec<Candidate> {
    let mut ordered = candidates;
    ordered.sort_by_cached_key(|candidate| rank::key(&candidate.rankable, policy, now));
    let mut chosen = Vec::new();
    for candidate in ordered {
        if chosen.len() == limit {
            break;
        }
        if room.wait(candidate.kind.as_deref()).is_none() {
            room.take(candidate.kind.as_deref());
            chosen.push(candidate);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(seq: u64, kind: &str, priority: u32, created: i64) -> Candidate {
        let (created_at, ready_at) = (UnixMillis::new(created), UnixMillis::new(created));
        let rankable = Rankable { seq, priority, static_score: 0, created_at, ready_at };
        Candidate { id: TaskId::from_stored(format!("t{seq}").into()), kind: Some(kind.to_owned()), rankable }
    }

    fn ids(chosen: &[Candidate]) -> Vec<&str> {
        chosen.iter().map(|candidate| candidate.id.as_str()).collect()
    }

    #[test]
    fn a_full_kind_hides_nothing() {
        let mut policy = QueuePolicy::built_in("loops");
        policy.per_kind = [("plan".to_owned(), 1)].into();
        let mut room = Room::new(&policy, [("plan".to_owned(), 1)].into());
        assert_eq!(room.full_kinds(), ["plan"]);
        let candidates =
            vec![candidate(1, "plan", 0, 0), candidate(2, "spec", 2, 0), candidate(3, "plan", 0, 0)];
        let chosen = select(candidates, &mut room, &policy, UnixMillis::new(0), 1);
        assert_eq!(ids(&chosen), ["t2"]);
        let full = Wait::KindFull { kind: "plan".into(), ceiling: 1, active: 1 };
        assert_eq!(room.wait(Some("plan")), Some(full));
    }

    #[test]
    fn the_ceiling_is_hard() {
        let policy = QueuePolicy { max_concurrent: Some(3), ..QueuePolicy::built_in("tasks") };
        let mut room = Room::new(&policy, [("".to_owned(), 2)].into());
        let candidates = (1..5).map(|seq| candidate(seq, "", 2, 0)).collect();
        let chosen = select(candidates, &mut room, &policy, UnixMillis::new(0), 10);
        assert_eq!(ids(&chosen), ["t1"]);
        assert_eq!(room.wait(Some("")), Some(Wait::QueueFull { ceiling: 3, active: 3 }));
        assert_eq!(room.left(), Some(0));
    }

    #[test]
    fn the_worktree_limit_counts_some_kinds_together_and_hides_no_other() {
        let policy = QueuePolicy::built_in("loops");
        let kinds = ["a", "b"].map(str::to_owned).into();
        let limit = WorktreeLimit { kinds, ceiling: 3, left: 1 };
        let mut room = Room::new(&policy, BTreeMap::new()).with_worktrees(Some(limit));
        let all = |first| ["a", "b", "c"].iter().zip(first..).map(|(kind, seq)| candidate(seq, kind, 0, 0));
        let chosen = select(all(1).collect(), &mut room, &policy, UnixMillis::new(0), 9);
        assert_eq!(ids(&chosen), ["t1", "t3"]);
        assert_eq!(room.full_kinds(), ["a", "b"]);
        room.release(Some("a"));
        let chosen = select(all(4).collect(), &mut room, &policy, UnixMillis::new(0), 9);
        assert_eq!(ids(&chosen), ["t4", "t6"]);
    }

    proptest! {
        /// C2: shuffled input gives equal output; every task left out has a reason; no ceiling is exceeded.
        #[test]
        fn total_bounded_and_complete(
            input in proptest::collection::vec((0u8..3, 0u32..3, 0i64..5), 0..30),
            shuffle in any::<u64>(),
            ceiling in proptest::option::of(1u32..6),
            kind_ceiling in 1u32..4,
            limit in 0usize..12,
        ) {
            let mut policy = QueuePolicy::built_in("loops");
            policy.max_concurrent = ceiling;
            policy.per_kind = [("k1".to_owned(), kind_ceiling)].into();
            let all: Vec<Candidate> = (0..)
                .zip(&input)
                .map(|(seq, (kind, priority, created))| candidate(seq, &format!("k{kind}"), *priority, *created))
                .collect();
            let mut shuffled = all.clone();
            shuffled.sort_by_key(|candidate| candidate.rankable.seq.wrapping_mul(shuffle | 1).rotate_left(17));
            let choose = |candidates| {
                let mut room = Room::new(&policy, BTreeMap::new());
                (select(candidates, &mut room, &policy, UnixMillis::new(9), limit), room)
            };
            let (chosen, room) = choose(all.clone());
            prop_assert_eq!(&chosen, &choose(shuffled).0);
            prop_assert!(chosen.len() <= limit.min(ceiling.unwrap_or(u32::MAX) as usize));
            let of_kind = chosen.iter().filter(|c| c.kind.as_deref() == Some("k1")).count();
            prop_assert!(of_kind <= kind_ceiling as usize);
            for candidate in all.iter().filter(|candidate| !chosen.contains(candidate)) {
                let has_reason = chosen.len() == limit || room.wait(candidate.kind.as_deref()).is_some();
                prop_assert!(has_reason, "{}", candidate.id);
            }
        }
    }
}
