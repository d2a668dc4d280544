//! Everything a store shows of one scope, read in one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use rota_core::event::Event;
use rota_core::rank::{self, Rankable};
use rota_core::{Task, TaskId, UnixMillis};

use rota_store::Outcome;
use rota_store::intents::default_policy;
use rota_store::{Access, Intent};
use rota_store::{
    AgentRow, AnyTx, EventFilter, Filter, HeadQuery, ListFilter, PolicyRow, Published, QueueRow, Ranked, Row,
    StatusCount, Tx,
};

/// Takes a [`Picture`].
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Of which scope.
    pub scope: String,
    /// Judged at which instant.
    pub now: UnixMillis,
}

/// Everything a store shows of one scope.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The instant it was judged at.
    pub now: UnixMillis,
    /// Every task.
    pub rows: BTreeMap<TaskId, Row>,
    /// Every edge: (task, blocker).
    pub edges: BTreeSet<(TaskId, TaskId)>,
    /// Every queue, with what its indexes say.
    pub queues: Vec<QueuePicture>,
    /// The journal.
    pub events: Vec<Event>,
    /// Every policy.
    pub policies: Vec<PolicyRow>,
    /// The one in force.
    pub published: Arc<Published>,
    /// Every agent.
    pub agents: Vec<AgentRow>,
}

/// What a store's indexes say about one queue.
#[derive(Clone, Debug)]
pub struct QueuePicture {
    /// The queue.
    pub row: QueueRow,
    /// In the ready index.
    pub ready: Vec<Rankable>,
    /// Cooled down, not yet in it.
    pub due: Vec<Rankable>,
    /// Unsettled leases by kind.
    pub active: BTreeMap<String, u32>,
    /// Leases that have run out.
    pub expired: Vec<TaskId>,
    /// How many stand where.
    pub counts: Vec<StatusCount>,
    /// The heads of the buckets, per priority, ordered by core.
    pub heads: Vec<Vec<Task>>,
}

/// How many of each bucket a picture shows.
pub const HEADS: usize = 3;
/// How many priorities it shows the heads of.
pub const LEVELS: usize = 5;

#[async_trait]
impl Intent for Snapshot {
    type Output = Picture;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Picture> {
        let scope = self.scope.as_str();
        let rows = tx.list(scope, &ListFilter::default()).await?;
        let rows: BTreeMap<TaskId, Row> = rows.into_iter().map(|row| (row.task.id.clone(), row)).collect();
        let ids: Vec<TaskId> = rows.keys().cloned().collect();
        let edges = tx.edges(scope, &ids).await?.into_iter().collect();
        let published = tx.policy(scope).await?.unwrap_or_else(default_policy);
        let mut queues = Vec::new();
        for row in tx.queues(scope).await? {
            queues.push(self.queue(tx, row, &published).await?);
        }
        Ok(Picture {
            now: self.now,
            rows,
            edges,
            queues,
            events: tx.events(scope, &EventFilter::default()).await?,
            policies: tx.policies(scope).await?,
            published,
            agents: tx.agents(scope).await?,
        })
    }
}

impl Snapshot {
    async fn queue<T: Tx>(&self, tx: &mut T, row: QueueRow, published: &Published) -> Outcome<QueuePicture> {
        let key = row.key;
        let expired = tx.expired(key, self.now, usize::MAX).await?;
        Ok(QueuePicture {
            ready: tx.rankables(key, Ranked::Ready(self.now)).await?,
            due: tx.rankables(key, Ranked::Due(self.now)).await?,
            active: tx.active_by_kind(key).await?,
            expired: expired.into_iter().map(|row| row.task.id).collect(),
            counts: tx.count(key, &Filter::default()).await?,
            heads: self.heads(tx, &row, published).await?,
            row,
        })
    }

    async fn heads<T: Tx>(
        &self,
        tx: &mut T,
        queue: &QueueRow,
        published: &Published,
    ) -> Outcome<Vec<Vec<Task>>> {
        let policy = published.policy.queue(&queue.name);
        let mut levels = Vec::new();
        let mut after = None;
        loop {
            let query = HeadQuery {
                queue: queue.key,
                bucketed: policy.is_bucketed(),
                after,
                per_bucket: HEADS,
                now: self.now,
                overdue_before: rank::overdue_before(policy, self.now),
                host: None,
                full_kinds: &[],
                only_kinds: None,
                filter: &Filter::default(),
            };
            let Some(level) = tx.heads(&query).await?.filter(|_| levels.len() < LEVELS) else {
                return Ok(levels);
            };
            assert!(after.is_none_or(|after| after < level.priority), "priorities come in order");
            after = Some(level.priority);
            let mut tasks: Vec<Task> = level.rows.into_iter().map(|row| row.task).collect();
            tasks.sort_by_cached_key(|task| rank::key(&Rankable::of(task, policy), policy, self.now));
            tasks.dedup_by_key(|task| task.seq);
            if !tasks.is_empty() {
                levels.push(tasks);
            }
        }
    }
}

impl Picture {
    /// One task.
    pub fn task(&self, name: &str) -> &Task {
        let found = self.rows.values().map(|row| &row.task).find(|task| task.id.as_str() == name);
        found.expect("the task is in the picture")
    }

    /// The blockers of a task that are not done.
    pub fn open_blockers(&self, id: &TaskId) -> Vec<TaskId> {
        let open =
            |blocker: &&TaskId| !self.rows.get(*blocker).is_some_and(|row| row.task.status.satisfies_edge());
        self.blockers(id).filter(open).cloned().collect()
    }

    /// The blockers of a task, by id.
    pub fn blockers(&self, id: &TaskId) -> impl Iterator<Item = &TaskId> {
        let first = (id.clone(), TaskId::from_stored("".into()));
        let own = self.edges.range(first.clone()..).take_while(move |(task, _)| *task == first.0);
        own.map(|(_, blocker)| blocker)
    }

    /// The picture without numbers that a store may choose as it likes, for comparing two stores.
    pub fn normal(&self) -> String {
        let rows: Vec<String> = self.rows.values().map(|row| format!("{:?}", anonymous(row))).collect();
        let events: Vec<Event> = self.events.iter().map(without_numbers).collect();
        let queues: Vec<(&str, bool)> =
            self.queues.iter().map(|queue| (queue.row.name.as_str(), queue.row.paused)).collect();
        let parts = (&self.edges, queues, events, &self.policies, &self.agents);
        format!("{}\n{parts:#?}", rows.join("\n"))
    }
}

fn anonymous(row: &Row) -> Row {
    Row { task: Task { seq: 0, ..row.task.clone() }, open_blockers: row.open_blockers }
}

fn without_numbers(event: &Event) -> Event {
    let mut event = event.clone();
    event.seq = 0;
    event.data.seq = None;
    event
}
