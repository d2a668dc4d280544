//! What a store must be able to do inside one transaction. Everything above is made of these steps, once, for every
//! store; a store that can do several of them in one go may, as long as the conformance suite sees no difference.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use rota_core::event::{Event, EventData, EventKind};
use rota_core::obstacle::Stage;
use rota_core::policy::GateLevel;
use rota_core::rank::Rankable;
use rota_core::{Fence, Json, Policy, Status, Task, TaskId, UnixMillis};

use crate::fault::Fault;
use crate::in_context::InContext;
use crate::memory::MemoryTx;
use crate::postgres::PostgresTx;
use crate::sqlite::SqliteTx;
use crate::upkeep::Upkeep;
pub use crate::usage::{UsageFilter, UsageRow};

/// A task with the count of its blockers that are not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The task.
    pub task: Task,
    /// Changes only in the transaction that settles a blocker or writes an edge.
    pub open_blockers: u32,
}

/// What is derived from a task and its surroundings and kept beside it, so that choosing is served from an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Blockers that are not done.
    pub open_blockers: u32,
    /// The verdict on its obstacles.
    pub stage: Stage,
    /// The part of its score that does not change with time.
    pub static_score: i64,
    /// Whether its queue has a guard against starvation.
    pub guarded: bool,
    /// Whether its queue ranks in buckets.
    pub bucketed: bool,
}

/// A queue of a scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueRow {
    /// What tasks refer to.
    pub key: i64,
    /// Its name.
    pub name: String,
    /// Held back by a person.
    pub paused: bool,
}

/// A policy in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Published {
    /// Hash of the canonical document.
    pub version: String,
    /// The document, read.
    pub policy: Policy,
}

/// One published policy, as stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyRow {
    /// Counts from 1 in its scope.
    pub number: u64,
    /// Hash of the canonical document.
    pub version: String,
    /// The canonical document.
    pub document: Json,
    /// When.
    pub published_at: UnixMillis,
    /// By whom.
    pub actor: Option<String>,
}

/// A blocker as its dependents see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocker {
    /// The task.
    pub id: TaskId,
    /// Its title.
    pub title: String,
    /// Where it stands.
    pub status: Status,
    /// What came out of it.
    pub result: Option<Json>,
}

/// Which tasks a claim or a listing wants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Only this category.
    pub category: Option<String>,
    /// Only these specs; globs are resolved before.
    pub specs: Option<Vec<String>>,
}

impl Filter {
    /// Whether it lets everything through.
    pub fn is_empty(&self) -> bool {
        self.category.is_none() && self.specs.is_none()
    }

    /// Whether it lets this one through.
    pub fn admits(&self, task: &Task) -> bool {
        let category = self.category.as_ref().is_none_or(|wanted| task.category.as_deref() == Some(wanted));
        let spec = |specs: &Vec<String>| task.spec_ref.as_ref().is_some_and(|spec| specs.contains(spec));
        category && self.specs.as_ref().is_none_or(spec)
    }
}

/// Asks for the heads of one priority's buckets.
#[derive(Clone, Debug)]
pub struct HeadQuery<'a> {
    /// Which queue.
    pub queue: i64,
    /// Whether it ranks in buckets.
    pub bucketed: bool,
    /// Only priorities after this one.
    pub after: Option<u32>,
    /// How many of each bucket.
    pub per_bucket: usize,
    /// The decision's now.
    pub now: UnixMillis,
    /// Tasks runnable since before this are overdue and come first.
    pub overdue_before: Option<UnixMillis>,
    /// The host that asks: tasks bound to another are left out.
    pub host: Option<&'a str>,
    /// Kinds that take no more.
    pub full_kinds: &'a [String],
    /// The only kinds that are wanted; none for all.
    pub only_kinds: Option<&'a [String]>,
    /// Which tasks are wanted.
    pub filter: &'a Filter,
}

/// The heads of one priority's buckets: every task that [`rota_core::select`] could choose first is among them.
#[derive(Clone, Debug)]
pub struct Level {
    /// The priority.
    pub priority: u32,
    /// The heads, in no order.
    pub rows: Vec<Row>,
}

/// Which tasks to rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ranked {
    /// In the ready index, and due at this time too.
    Ready(UnixMillis),
    /// Cooled down by now, but not yet admitted to it.
    Due(UnixMillis),
}

/// Which tasks to list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListFilter {
    /// Only this queue.
    pub queue: Option<i64>,
    /// Only these states; empty for all.
    pub statuses: Vec<Status>,
    /// Only this holder's.
    pub assignee: Option<String>,
    /// Category and specs.
    pub filter: Filter,
}

/// Which journal rows to read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventFilter {
    /// Only this task's.
    pub task: Option<TaskId>,
    /// Only rows after this number.
    pub after: u64,
    /// At most so many, from the oldest; none for all.
    pub limit: Option<usize>,
    /// Of the newest rows instead, still oldest first.
    pub newest: bool,
}

/// A running agent, as it registered itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentRow {
    /// Four hex digits.
    pub id: String,
    /// Its process.
    pub pid: u32,
    /// Its host.
    pub host: String,
    /// When it registered.
    pub started_at: UnixMillis,
    /// When it deregistered.
    pub stopped_at: Option<UnixMillis>,
}

/// The gate's block on one upstream, kept so that a restart or another host knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockRow {
    /// Which API.
    pub upstream: String,
    /// No call before this; none for until somebody unblocks it.
    pub blocked_until: Option<UnixMillis>,
    /// Limits in a row.
    pub hits: u32,
    /// What the provider said.
    pub reason: Option<String>,
    /// When it was written.
    pub updated_at: UnixMillis,
}

/// A token for the gateway that a person made; what the caller shows is not kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GateTokenRow {
    /// SHA-256 of the token, in hex.
    pub hash: String,
    /// Namespace of the task.
    pub scope: String,
    /// Whose usage it counts as.
    pub task: Option<String>,
    /// How urgent its calls may be; none for what the task says.
    pub level: Option<GateLevel>,
    /// When.
    pub made_at: UnixMillis,
    /// Until when it is good.
    pub expires_at: Option<UnixMillis>,
}

/// How many tasks are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusCount {
    /// The state.
    pub status: Status,
    /// Whether a blocker is not done.
    pub blocked: bool,
    /// How many.
    pub count: u64,
}

/// A task to be settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettlementRow {
    /// The task; it stays as it is until the end.
    pub row: Row,
    /// Whether it has a parent, dependents or children: then a settlement may mean something for them.
    pub is_linked: bool,
}

/// Reads that an intent is about to make, so that a store behind a network can make them in one round trip.
#[derive(Clone, Debug, Default)]
pub struct Prefetch<'a> {
    /// Namespace.
    pub scope: &'a str,
    /// Tasks to be settled, for [`Tx::settlement_rows`].
    pub settle: &'a [TaskId],
    /// Ids of tasks to be added.
    pub add: &'a [TaskId],
    /// Their queue.
    pub add_queue: Option<&'a str>,
    /// Ids of tasks to be read, for [`Tx::tasks`].
    pub look: &'a [TaskId],
    /// What is going to be claimed.
    pub claim: Option<ClaimReads<'a>>,
}

/// A claim by the store's clock.
#[derive(Clone, Debug, Default)]
pub struct ClaimReads<'a> {
    /// From which queue.
    pub queue: &'a str,
    /// How many at most.
    pub limit: usize,
    /// The host that asks.
    pub host: Option<&'a str>,
    /// Only this category.
    pub category: Option<&'a str>,
    /// Only these kinds.
    pub only_kinds: Option<&'a [String]>,
    /// Whether the blocks of upstreams are read too.
    pub blocks: bool,
}

/// A task that moves on, and what its event says.
#[derive(Clone, Copy, Debug)]
pub struct Transition<'a> {
    /// The task before.
    pub old: &'a Task,
    /// The task after.
    pub next: &'a Task,
    /// What is kept beside it.
    pub standing: Standing,
    /// What happened.
    pub kind: EventKind,
    /// Which lease it belongs to.
    pub fence: Option<Fence>,
    /// The rest, without the changes.
    pub data: &'a EventData,
    /// Who did it.
    pub actor: Option<&'a str>,
    /// The policy it was decided by.
    pub policy: &'a str,
}

impl Transition<'_> {
    /// Its journal row.
    pub fn event(&self) -> Event {
        let event = Event::of_change(self.kind, Some(self.old), self.next);
        Event {
            fence: self.fence,
            actor: self.actor.map(str::to_owned),
            policy: Some(self.policy.to_owned()),
            data: EventData { changes: event.data.changes, ..self.data.clone() },
            ..event
        }
    }
}

/// Whether an edit touched what a lease never moves; stores write the two parts apart.
pub(crate) fn fields_differ(old: &Task, next: &Task) -> bool {
    fn fields(task: &Task) -> impl PartialEq + use<'_> {
        let Task { kind, priority, parent, depth, triggered_by, parent_iteration, host, title, .. } = task;
        let Task { description, category, steps, spec_ref, reference, payload, created_at, .. } = task;
        let Task { priority_inherited, trigger_hash, discovered_from, .. } = task;
        let placed = (kind, priority, parent, depth, triggered_by, parent_iteration, host, created_at);
        let origin = (priority_inherited, trigger_hash, discovered_from);
        (placed, origin, (title, description, category, steps, spec_ref, reference, payload))
    }
    fields(old) != fields(next)
}

macro_rules! tx {
    ($($(#[$doc:meta])* fn $name:ident(&mut self $(, $arg:ident: $type:ty)*) -> $out:ty;)*) => {
        /// One transaction on a store. Dropping it without [`Tx::commit`] undoes it.
        #[async_trait]
        pub trait Tx: Upkeep {
            $($(#[$doc])*
            async fn $name(&mut self $(, $arg: $type)*) -> Result<$out, Fault>;)*

            /// The decision's `now` by the store's clock, and the policy in force.
            async fn opening(
                &mut self,
                scope: &str,
            ) -> Result<(UnixMillis, Option<Arc<Published>>), Fault> {
                Ok((self.clock().await?, self.policy(scope).await?))
            }

            /// Makes reads ahead. What it does not fetch is read when it is asked for.
            async fn prefetch(&mut self, _reads: &Prefetch<'_>) -> Result<(), Fault> {
                Ok(())
            }

            /// Reserves insertion numbers for so many new tasks.
            async fn reserve(&mut self, _count: usize) -> Result<(), Fault> {
                Ok(())
            }

            /// Adds an edge of a task that this transaction created, which cannot be there.
            async fn add_new_edge(
                &mut self,
                scope: &str,
                task: &TaskId,
                blocker: &TaskId,
            ) -> Result<(), Fault> {
                self.add_edge(scope, task, blocker).await.map(drop)
            }

            /// Replaces tasks whose count of blockers stays, each with its event, in this order.
            async fn apply_transitions(&mut self, transitions: &[Transition<'_>]) -> Result<(), Fault> {
                    for transition in transitions {
                        self.update(transition.old, transition.next, &transition.standing).await?;
                        self.append(&transition.event()).await?;
                    }
                    Ok(())
            }

            /// Whether it may change anything.
            fn writes(&self) -> bool;

            /// Makes it durable. A crash before this returns leaves all of it or nothing.
            async fn commit(self) -> Result<(), Fault> where Self: Sized;
        }

        /// A transaction on whatever store was opened.
        #[allow(missing_docs, reason = "the variants are the stores")]
        pub enum AnyTx {
            Memory(Box<MemoryTx>),
            Sqlite(Box<SqliteTx>),
            Postgres(Box<PostgresTx>),
        }

        #[async_trait]
        impl Tx for AnyTx {
            $(async fn $name(&mut self $(, $arg: $type)*) -> Result<$out, Fault> {
                match self {
                    Self::Memory(tx) => tx.$name($($arg),*).await,
                    Self::Sqlite(tx) => tx.$name($($arg),*).await,
                    Self::Postgres(tx) => tx.$name($($arg),*).await,
                }
            })*

            async fn opening(&mut self, scope: &str) -> Result<(UnixMillis, Option<Arc<Published>>), Fault> {
                match self {
                    Self::Memory(tx) => tx.opening(scope).await,
                    Self::Sqlite(tx) => tx.opening(scope).await,
                    Self::Postgres(tx) => tx.opening(scope).await,
                }
            }

            async fn prefetch(&mut self, reads: &Prefetch<'_>) -> Result<(), Fault> {
                match self {
                    Self::Memory(_) | Self::Sqlite(_) => Ok(()),
                    Self::Postgres(tx) => tx.prefetch(reads).await,
                }
            }

            async fn reserve(&mut self, count: usize) -> Result<(), Fault> {
                match self {
                    Self::Memory(_) | Self::Sqlite(_) => Ok(()),
                    Self::Postgres(tx) => tx.reserve(count).await,
                }
            }

            async fn add_new_edge(&mut self, scope: &str, task: &TaskId, blocker: &TaskId) -> Result<(), Fault> {
                match self {
                    Self::Memory(tx) => tx.add_new_edge(scope, task, blocker).await,
                    Self::Sqlite(tx) => tx.add_new_edge(scope, task, blocker).await,
                    Self::Postgres(tx) => tx.add_new_edge(scope, task, blocker).await,
                }
            }

            async fn apply_transitions(&mut self, transitions: &[Transition<'_>]) -> Result<(), Fault> {
                match self {
                    Self::Memory(tx) => tx.apply_transitions(transitions).await,
                    Self::Sqlite(tx) => tx.apply_transitions(transitions).await,
                    Self::Postgres(tx) => tx.apply_transitions(transitions).await,
                }
            }

            fn writes(&self) -> bool {
                match self {
                    Self::Memory(tx) => tx.writes(),
                    Self::Sqlite(tx) => tx.writes(),
                    Self::Postgres(tx) => tx.writes(),
                }
            }

            async fn commit(self) -> Result<(), Fault> {
                match self {
                    Self::Memory(tx) => tx.commit().await,
                    Self::Sqlite(tx) => tx.commit().await,
                    Self::Postgres(tx) => tx.commit().await,
                }
            }
        }
    };
}

tx! {
    /// The store's clock.
    fn clock(&mut self) -> UnixMillis;
    /// The policy in force; none means the defaults.
    fn policy(&mut self, scope: &str) -> Option<Arc<Published>>;
    /// Adds a policy version.
    fn add_policy(&mut self, scope: &str, row: &PolicyRow) -> ();
    /// Every version, oldest first.
    fn policies(&mut self, scope: &str) -> Vec<PolicyRow>;
    /// Takes the scope's turn to write edges, so that two halves of a circle cannot be written at once.
    fn lock_edges(&mut self, scope: &str) -> ();
    /// Keeps edge writers of the scope out until the end, but not others who share.
    fn share_edges(&mut self, scope: &str) -> ();

    /// One queue. Where the store works in parallel and the queue is bounded, this takes its turn.
    fn queue(&mut self, scope: &str, name: &str, bounded: bool) -> Option<QueueRow>;
    /// All queues that exist, by name.
    fn queues(&mut self, scope: &str) -> Vec<QueueRow>;
    /// Makes a queue if it does not exist.
    fn ensure_queue(&mut self, scope: &str, name: &str) -> QueueRow;
    /// Pauses or resumes.
    fn set_queue_paused(&mut self, key: i64, paused: bool) -> ();

    /// One task with what stands around it. May be all of a transaction ([`crate::Access::Once`]).
    fn in_context(&mut self, scope: &str, id: &TaskId) -> Option<InContext>;
    /// One task; in a writing transaction it stays as it is until the end.
    fn task(&mut self, scope: &str, id: &TaskId) -> Option<Row>;
    /// Those of the ids that exist, in any order.
    fn tasks(&mut self, scope: &str, ids: &[TaskId]) -> Vec<Row>;
    /// Those of the ids that exist, by id; they stay as they are until the end.
    fn lock_tasks(&mut self, scope: &str, ids: &[TaskId]) -> Vec<Row>;
    /// Those of the ids that exist, each once and in any order; they stay as they are until the end.
    fn settlement_rows(&mut self, scope: &str, ids: &[TaskId]) -> Vec<SettlementRow>;
    /// Those with these insertion numbers, in any order.
    fn tasks_by_seq(&mut self, seqs: &[u64]) -> Vec<Row>;
    /// By filter, in any order.
    fn list(&mut self, scope: &str, filter: &ListFilter) -> Vec<Row>;
    /// The first of a queue by priority, age and insertion, without deleted ones and those that are held now.
    fn list_unleased(&mut self, queue: i64, now: UnixMillis, limit: usize) -> Vec<Row>;
    /// How many of a queue stand where.
    fn count(&mut self, queue: i64, filter: &Filter) -> Vec<StatusCount>;
    /// The distinct specs of a queue.
    fn specs(&mut self, scope: &str) -> Vec<String>;
    /// Adds a task and returns its insertion number.
    fn insert(&mut self, task: &Task, queue: i64, standing: &Standing) -> u64;
    /// Replaces a task.
    fn update(&mut self, old: &Task, next: &Task, standing: &Standing) -> ();

    /// The blockers of a task, by id.
    fn blockers(&mut self, scope: &str, id: &TaskId) -> Vec<Blocker>;
    /// The edges of these tasks: (task, blocker).
    fn edges(&mut self, scope: &str, ids: &[TaskId]) -> Vec<(TaskId, TaskId)>;
    /// Adds an edge; false if it was there.
    fn add_edge(&mut self, scope: &str, task: &TaskId, blocker: &TaskId) -> bool;
    /// Removes an edge; false if there was none.
    fn remove_edge(&mut self, scope: &str, task: &TaskId, blocker: &TaskId) -> bool;
    /// Counts one blocker more or less for every dependent, and returns them, by id.
    fn shift_dependents(&mut self, scope: &str, blocker: &TaskId, by: i32) -> Vec<Row>;
    /// The children of a task, by id.
    fn children(&mut self, scope: &str, parent: &TaskId) -> Vec<Row>;

    /// Leases that ran out, oldest first.
    fn expired(&mut self, queue: i64, now: UnixMillis, limit: usize) -> Vec<Row>;
    /// Moves tasks that have cooled down into the ready index; returns how many.
    fn promote_due(&mut self, queue: i64, now: UnixMillis, limit: usize) -> usize;
    /// Open tasks whose artifact is not there yet, by insertion.
    fn awaiting_artifact(&mut self, queue: i64, after_seq: u64, limit: usize) -> Vec<Row>;
    /// How many tasks nothing holds back.
    fn ready_count(&mut self, queue: i64, now: UnixMillis) -> u64;
    /// When the first of those that only wait for a time may run.
    fn next_due(&mut self, queue: i64) -> Option<UnixMillis>;
    /// Unsettled leases by kind, expired ones too.
    fn active_by_kind(&mut self, queue: i64) -> BTreeMap<String, u32>;
    /// The heads of the next priority that has any.
    fn heads(&mut self, query: &HeadQuery<'_>) -> Option<Level>;
    /// What places depend on, of many tasks at once.
    fn rankables(&mut self, queue: i64, which: Ranked) -> Vec<Rankable>;

    /// Writes an event.
    fn append(&mut self, event: &Event) -> ();
    /// Reads the journal, oldest first.
    fn events(&mut self, scope: &str, filter: &EventFilter) -> Vec<Event>;

    /// Adds an agent; false if the id is taken.
    fn add_agent(&mut self, scope: &str, agent: &AgentRow) -> bool;
    /// One agent.
    fn agent(&mut self, scope: &str, id: &str) -> Option<AgentRow>;
    /// All agents, newest first.
    fn agents(&mut self, scope: &str) -> Vec<AgentRow>;
    /// Says that an agent stopped.
    fn stop_agent(&mut self, scope: &str, id: &str, at: UnixMillis) -> ();

    /// The gate's block on an upstream.
    fn block(&mut self, upstream: &str) -> Option<BlockRow>;
    /// Writes it.
    fn set_block(&mut self, block: &BlockRow) -> ();
    /// Adds to what was used before.
    fn add_usage(&mut self, usage: &UsageRow) -> ();
    /// What was used, by scope, task, day, upstream and model.
    fn usage(&mut self, filter: &UsageFilter) -> Vec<UsageRow>;
    /// Keeps a token for the gateway.
    fn add_gate_token(&mut self, token: &GateTokenRow) -> ();
    /// The token with this hash.
    fn gate_token(&mut self, hash: &str) -> Option<GateTokenRow>;
}
