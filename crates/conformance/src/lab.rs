//! A fresh store with short words for what tests do to it.

use rota_core::glob::Globs;
use rota_core::lease::{Caller, LeaseId};
use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Policy, Refusal, Task, TaskId, UnixMillis};

use crate::{Picture, Snapshot, Subject, check_everything};
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewPriority, NewTask};
use rota_store::intents::claim::{Claim, ClaimById, Grant, ReclaimExpired, Wanted};
use rota_store::intents::edges::{Block, Unblock};
use rota_store::intents::policy::PublishPolicy;
use rota_store::intents::read::Show;
use rota_store::intents::settle::{Settle, Step};
use rota_store::intents::sync_leases::{LoopsSynced, SyncLeases, SyncLoops};
use rota_store::{Error, Outcome};
use rota_store::{Intent, Store};

/// The scope that tests work in.
pub const SCOPE: &str = "default";

/// An instant, so many seconds after a day in 2023.
pub const fn at(seconds: i64) -> UnixMillis {
    UnixMillis::new(1_700_000_000_000 + seconds * 1_000)
}

/// A task id.
pub fn id(text: &str) -> TaskId {
    TaskId::new(text).unwrap()
}

/// A task of queue `tasks`.
pub fn new(name: &str) -> NewTask {
    NewTask::new(id(name), "tasks", &format!("Title of {name}"))
}

/// The same in another queue.
pub fn in_queue(name: &str, queue: &str) -> NewTask {
    NewTask { queue: queue.to_owned(), ..new(name) }
}

/// The same with a kind.
pub fn of_kind(name: &str, queue: &str, kind: &str) -> NewTask {
    NewTask { kind: Some(kind.to_owned()), ..in_queue(name, queue) }
}

/// The same with blockers.
pub fn after(name: &str, blockers: &[&str]) -> NewTask {
    NewTask { deps: blockers.iter().map(|blocker| id(blocker)).collect(), ..new(name) }
}

/// The same with a priority.
pub fn urgent(name: &str, priority: u32) -> NewTask {
    NewTask { priority: NewPriority::Given(priority), ..new(name) }
}

/// A claim for agent `a` on queue `tasks`, by the policy's lease.
pub fn claim(now: UnixMillis, limit: usize) -> Claim {
    Claim {
        call: Call::in_scope(SCOPE).at(now),
        queue: "tasks".into(),
        limit,
        agent: Some("a".into()),
        ttl_ms: None,
        wanted: Wanted::default(),
        host: None,
    }
}

/// The same on another queue.
pub fn claim_of(queue: &str, now: UnixMillis, limit: usize) -> Claim {
    Claim { queue: queue.to_owned(), ..claim(now, limit) }
}

/// A claim of one task by its id.
pub fn claim_by_id(now: UnixMillis, name: &str) -> ClaimById {
    ClaimById {
        call: Call::in_scope(SCOPE).at(now),
        id: id(name),
        agent: Some("a".into()),
        ttl_ms: None,
        wanted: Wanted::default(),
        host: None,
    }
}

/// Only these specs.
pub fn specs(globs: &str) -> Wanted {
    Wanted { category: None, specs: Some(Globs::parse(globs)) }
}

/// The caller who holds this lease.
pub fn holder(task: &Task) -> Caller {
    Caller { agent: task.assignee.clone(), lease: task.lease() }
}

/// The caller who once held it under this number.
pub fn held(name: &str, fence: u64) -> Caller {
    Caller::lease(LeaseId { task: id(name), fence: rota_core::Fence::new(fence) })
}

/// `done`, without a result.
pub fn done(caller: Caller) -> Command {
    Command::Done { caller, result: None }
}

/// `fail`, without a reason.
pub fn fail(caller: Caller) -> Command {
    Command::Fail { caller, reason: None, default_reason: FAILED_REASON }
}

/// The ids of what was granted, in order.
pub fn ids(grants: &[Grant]) -> Vec<&str> {
    grants.iter().map(|grant| grant.task.id.as_str()).collect()
}

/// One fresh store.
pub struct Lab<'a, S: Subject> {
    /// Who makes stores.
    pub subject: &'a S,
    /// The store.
    pub store: S::Store,
}

impl<'a, S: Subject> Lab<'a, S> {
    /// With a new store.
    pub fn new(subject: &'a S) -> Self {
        Self { subject, store: subject.fresh() }
    }

    /// The same store through another handle.
    pub fn another(&self) -> Self {
        Self { subject: self.subject, store: self.subject.another(&self.store) }
    }

    /// Where and when.
    pub fn call(&self, now: UnixMillis) -> Call {
        Call::in_scope(SCOPE).at(now)
    }

    /// Carries out an intent.
    pub fn run<I: Intent>(&self, intent: &I) -> Outcome<I::Output> {
        self.subject.block_on(self.store.perform(intent))
    }

    /// Carries out an intent that must succeed.
    #[track_caller]
    pub fn ok<I: Intent>(&self, intent: &I) -> I::Output {
        match self.run(intent) {
            Ok(output) => output,
            Err(error) => panic!("{error}: {error:?}"),
        }
    }

    /// Carries out an intent that must be refused.
    #[track_caller]
    pub fn refused<I: Intent>(&self, intent: &I) -> Refusal {
        match self.run(intent) {
            Err(Error::Refused(refusal)) => refusal,
            Err(Error::Fault(fault)) => panic!("{fault}"),
            Ok(_) => panic!("it was not refused"),
        }
    }

    /// Adds tasks in one transaction.
    #[track_caller]
    pub fn add(&self, now: UnixMillis, tasks: &[NewTask]) -> Vec<Task> {
        self.ok(&Add { call: self.call(now), tasks: tasks.to_vec() })
    }

    /// Claims from queue `tasks`; the ids, in order.
    #[track_caller]
    pub fn claim(&self, now: UnixMillis, limit: usize) -> Vec<String> {
        self.claimed(&claim(now, limit))
    }

    /// Carries out a claim; the ids, in order. What it chose is compared with what core would.
    #[track_caller]
    pub fn claimed(&self, claim: &Claim) -> Vec<String> {
        let now = claim.call.now.unwrap();
        let wanted = crate::oracle::choice(&self.picture(now), claim);
        let granted = self.ok(claim);
        let granted: Vec<String> = granted.iter().map(|grant| grant.task.id.to_string()).collect();
        assert_eq!(granted, wanted, "the store chose otherwise than core at {now}");
        granted
    }

    /// Claims one task by its id.
    #[track_caller]
    pub fn take(&self, now: UnixMillis, name: &str) -> Task {
        self.ok(&claim_by_id(now, name)).task
    }

    /// Takes one step, which may be refused.
    #[track_caller]
    pub fn step(&self, now: UnixMillis, name: &str, command: Command) -> Result<Task, Refusal> {
        let mut settled = self.ok(&Settle::one(self.call(now), id(name), command));
        settled.steps.pop().unwrap()
    }

    /// Takes one step that must be accepted.
    #[track_caller]
    pub fn must(&self, now: UnixMillis, name: &str, command: Command) -> Task {
        match self.step(now, name, command) {
            Ok(task) => task,
            Err(refusal) => panic!("{refusal}: {refusal:?}"),
        }
    }

    /// Takes steps in one transaction.
    #[track_caller]
    pub fn steps(&self, now: UnixMillis, steps: Vec<(&str, Command)>) -> Vec<Result<Task, Refusal>> {
        let steps = steps.into_iter().map(|(name, command)| Step { id: id(name), command }).collect();
        self.ok(&Settle { call: self.call(now), steps, then: None }).steps
    }

    /// What a loop manager asks for; the grants, and the rest of the answer.
    pub fn sync(&self, now: UnixMillis, loops: SyncLoops) -> (Vec<Grant>, LoopsSynced) {
        let settle = Settle { call: self.call(now), steps: Vec::new(), then: None };
        let synced = self.ok(&SyncLeases { settle, loops: Some(loops) });
        assert_eq!(synced.undone_by, None);
        (synced.settled.granted, synced.loops.unwrap())
    }

    /// Claims a task and finishes it.
    #[track_caller]
    pub fn finish(&self, now: UnixMillis, name: &str) -> Task {
        let task = self.take(now, name);
        self.must(now, name, done(holder(&task)))
    }

    /// Adds an edge.
    #[track_caller]
    pub fn block(&self, now: UnixMillis, task: &str, by: &str) {
        self.ok(&Block { call: self.call(now), task: id(task), by: id(by) });
    }

    /// Removes an edge.
    #[track_caller]
    pub fn unblock(&self, now: UnixMillis, task: &str, by: &str) {
        self.ok(&Unblock { call: self.call(now), task: id(task), by: id(by) });
    }

    /// Takes back expired leases; the ids, in order.
    #[track_caller]
    pub fn reclaim(&self, now: UnixMillis, queue: &str) -> Vec<String> {
        let ids = self.ok(&ReclaimExpired { call: self.call(now), queue: queue.to_owned() });
        ids.iter().map(ToString::to_string).collect()
    }

    /// Publishes a policy given as a document.
    #[track_caller]
    pub fn publish(&self, now: UnixMillis, document: &str) {
        let policy = Policy::parse(document).unwrap();
        self.ok(&PublishPolicy { call: self.call(now), policy, based_on: None });
    }

    /// One task as stored.
    #[track_caller]
    pub fn task(&self, name: &str) -> Task {
        self.ok(&Show { call: self.call(at(0)), id: id(name) }).0.task
    }

    /// Everything the store shows at an instant.
    #[track_caller]
    pub fn picture(&self, now: UnixMillis) -> Picture {
        self.ok(&Snapshot { scope: SCOPE.to_owned(), now })
    }

    /// Checks everything at several instants.
    #[track_caller]
    pub fn check(&self) {
        for now in [UnixMillis::MIN, at(0), at(1), at(60), at(3_601), at(100_000), UnixMillis::MAX] {
            check_everything(&self.picture(now));
        }
    }
}
