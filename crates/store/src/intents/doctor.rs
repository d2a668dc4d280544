//! Looking through everything, and putting right what is derived. The journal is the truth and is never touched.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use rota_core::event::{self, BadJournal, Event, Folded};
use rota_core::obstacle::{Facts, ParentFact, Stage};
use rota_core::{Status, Task, TaskId, rank};

use super::{Call, Cx, write};
use crate::fault::{Fault, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, Row, Tx};
use crate::upkeep::Upkeep;
use crate::upkeep::{EdgeRow, Kept};

/// How many tasks are looked at in one transaction.
pub const PAGE: usize = 200;
/// How many strays are named.
const STRAYS: usize = 1_000;

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Which check found it.
    pub check: &'static str,
    /// Where.
    pub scope: String,
    /// At which task.
    pub task: Option<TaskId>,
    /// What is wrong.
    pub problem: String,
    /// What `--fix` does about it; none if it can do nothing.
    pub repair: Option<String>,
}

/// What a look at a page of tasks found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Examined {
    /// How many tasks.
    pub tasks: usize,
    /// How many of their events.
    pub events: usize,
    /// Where to go on from; none at the end.
    pub last: Option<u64>,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// Looks at the store as a whole: schema, the database's own checks, strays of one scope.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Where, when, who.
    pub call: Call,
    /// Also what concerns the whole database.
    pub whole: bool,
}

/// What [`Survey`] saw.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Surveyed {
    /// The schema's number.
    pub schema: i64,
    /// Every scope.
    pub scopes: Vec<String>,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

#[async_trait]
impl Intent for Survey {
    type Output = Surveyed;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Surveyed> {
        let scope = &self.call.scope;
        let problem =
            |check, task, problem, repair| Problem { check, scope: scope.clone(), task, problem, repair };
        let mut problems = Vec::new();
        if self.whole {
            let found = tx.integrity().await?;
            problems.extend(found.into_iter().map(|text| problem("integrity", None, text, None)));
        }
        for (task, blocker) in tx.stray_edges(scope, STRAYS).await? {
            let text = format!("the edge to '{blocker}' has an end that is not there");
            problems.push(problem("edges", Some(task), text, Some("remove the edge".to_owned())));
        }
        for task in tx.stray_events(scope, STRAYS).await? {
            let text = "the journal has events of it, the table does not have it".to_owned();
            problems.push(problem("journal", Some(task), text, None));
        }
        Ok(Surveyed { schema: tx.schema().await?, scopes: tx.scopes().await?, problems })
    }
}

/// Looks at the tasks behind an insertion number.
#[derive(Clone, Debug)]
pub struct Examine {
    /// Where, when, who.
    pub call: Call,
    /// Behind this number.
    pub after: u64,
}

#[async_trait]
impl Intent for Examine {
    type Output = Examined;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Examined> {
        let cx = Cx::open(tx, &self.call).await?;
        let page = tx.page(&cx.scope, self.after, PAGE).await?;
        let around = Around::load(tx, &cx, page.iter().map(|kept| &kept.row.task)).await?;
        let mut examined = Examined {
            tasks: page.len(),
            events: around.journal.values().map(Vec::len).sum(),
            last: page.last().filter(|_| page.len() == PAGE).map(|kept| kept.row.task.seq),
            problems: Vec::new(),
        };
        for kept in &page {
            examined.problems.extend(look_at(&cx, kept, &around));
        }
        Ok(examined)
    }
}

/// What stands around a page of tasks.
struct Around {
    edges: BTreeMap<TaskId, Vec<EdgeRow>>,
    parents: BTreeMap<TaskId, ParentFact>,
    journal: BTreeMap<TaskId, Vec<Event>>,
}

impl Around {
    async fn load<'a, T: Tx>(
        tx: &mut T,
        cx: &Cx,
        tasks: impl Iterator<Item = &'a Task> + Clone,
    ) -> Result<Self, Fault> {
        let ids: Vec<TaskId> = tasks.clone().map(|task| task.id.clone()).collect();
        let parents: BTreeSet<TaskId> = tasks.filter_map(|task| task.parent.clone()).collect();
        let parents: Vec<TaskId> = parents.into_iter().collect();
        let fact =
            |Row { task, .. }: Row| (task.id, ParentFact { status: task.status, iteration: task.iteration });
        let parents = tx.tasks(&cx.scope, &parents).await?.into_iter().map(fact).collect();
        let mut edges: BTreeMap<TaskId, Vec<EdgeRow>> = BTreeMap::new();
        for edge in tx.blocker_states(&cx.scope, &ids).await? {
            edges.entry(edge.task.clone()).or_default().push(edge);
        }
        let mut journal: BTreeMap<TaskId, Vec<Event>> = BTreeMap::new();
        for event in tx.events_of(&cx.scope, &ids).await? {
            if let Some(task) = event.task.clone() {
                journal.entry(task).or_default().push(event);
            }
        }
        Ok(Self { edges, parents, journal })
    }

    fn edges_of(&self, task: &Task) -> &[EdgeRow] {
        self.edges.get(&task.id).map_or(&[], Vec::as_slice)
    }

    fn open_blockers(&self, task: &Task) -> u32 {
        let open = self.edges_of(task).iter().filter(|edge| !edge.status.is_some_and(Status::satisfies_edge));
        u32::try_from(open.count()).unwrap_or(u32::MAX)
    }

    fn folded(&self, task: &Task) -> Result<Option<Folded>, BadJournal> {
        let events = self.journal.get(&task.id).map_or(&[][..], Vec::as_slice);
        events.iter().try_fold(None, |before, event| event::fold(before, event).map(Some))
    }
}

fn look_at(cx: &Cx, kept: &Kept, around: &Around) -> Vec<Problem> {
    let task = &kept.row.task;
    let mut found = Vec::new();
    let mut add = |check, problem: String, repair: Option<&str>| {
        let repair = repair.map(str::to_owned);
        found.push(Problem { check, scope: cx.scope.clone(), task: Some(task.id.clone()), problem, repair });
    };
    let counted = around.open_blockers(task);
    if kept.row.open_blockers != counted {
        let text = format!("{} open blockers are stored, there are {counted}", kept.row.open_blockers);
        add("blockers", text, Some("store the count"));
    }
    for (what, stored, right) in derived(cx, kept, around, counted) {
        add("derived", format!("{what} is {stored}, it should be {right}"), Some("derive it anew"));
    }
    if (task.status == Status::Active) != task.lease_expires_at.is_some() {
        let text = if task.lease_expires_at.is_some() {
            "has a lease and is not active"
        } else {
            "is active without a lease"
        };
        add("leases", text.to_owned(), None);
    }
    match around.folded(task) {
        Err(error) => add("journal", error.to_string(), None),
        Ok(None) => add("journal", "has no events".to_owned(), None),
        Ok(Some(folded)) => {
            let fields: Vec<String> = folded.task.changes_to(task).into_keys().collect();
            let repair =
                (!fields.iter().any(|field| field == "queue")).then_some("take them from the journal");
            if !fields.is_empty() || folded.task.seq != task.seq || folded.task.events != task.events {
                let fields = if fields.is_empty() { "its numbers".to_owned() } else { fields.join(", ") };
                add("journal", format!("the journal says otherwise about {fields}"), repair);
            }
            let stored: BTreeSet<&TaskId> = around.edges_of(task).iter().map(|edge| &edge.blocker).collect();
            if stored != folded.blocked_by.iter().collect() {
                add(
                    "journal",
                    "the journal says otherwise about its blockers".to_owned(),
                    Some("take them from the journal"),
                );
            }
        }
    }
    found
}

/// What differs from what core derives: name, stored, right. Only open tasks are kept current, others are judged when
/// they open.
fn derived(cx: &Cx, kept: &Kept, around: &Around, open_blockers: u32) -> Vec<(&'static str, i64, i64)> {
    let task = &kept.row.task;
    let policy = cx.policy(&task.queue);
    let parent = task.parent.as_ref().and_then(|parent| around.parents.get(parent)).cloned();
    let facts = Facts { parent, open_blockers, blocked_by: Vec::new() };
    let stage = Stage::of(task, &facts, cx.now);
    // Time moves tasks from cooling to ready without anybody writing it down.
    let obstructed = kept.stage == Stage::Obstructed.number();
    let waits_for_nothing = kept.stage == Stage::Cooling.number() && task.next_eligible_at.is_none();
    let mut wrong = Vec::new();
    if obstructed != (stage == Stage::Obstructed) || waits_for_nothing {
        wrong.push(("stage", kept.stage, stage.number()));
    }
    let guarded = policy.score.as_ref().is_some_and(|score| score.starvation_guard_minutes.is_some());
    let mut pairs = vec![
        ("sort_priority", kept.sort_priority, i64::from(task.sort_priority())),
        ("ready_at", kept.ready_at, task.ready_at().get()),
    ];
    if task.status == Status::Open {
        pairs.push(("static_score", kept.static_score, rank::static_score(task, policy)));
        pairs.push(("guarded", i64::from(kept.guarded), i64::from(guarded)));
        let bucketed = kept.bucketed.unwrap_or(policy.is_bucketed());
        pairs.push(("bucketed", i64::from(bucketed), i64::from(policy.is_bucketed())));
    }
    wrong.extend(pairs.into_iter().filter(|(_, stored, right)| stored != right));
    wrong
}

/// Derives tasks anew: their fields and edges from the journal where it folds, then everything else.
#[derive(Clone, Debug)]
pub struct Repair {
    /// Where, when, who.
    pub call: Call,
    /// Which tasks.
    pub tasks: Vec<TaskId>,
}

#[async_trait]
impl Intent for Repair {
    type Output = ();

    async fn run(&self, tx: &mut AnyTx) -> Outcome<()> {
        tx.lock_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        for (task, blocker) in tx.stray_edges(&cx.scope, STRAYS).await? {
            tx.remove_edge(&cx.scope, &task, &blocker).await?;
        }
        for id in &self.tasks {
            // Held until the end: nobody changes it between the look and the repair.
            if let Some(row) = tx.task(&cx.scope, id).await? {
                rewrite(tx, &cx, &row).await?;
            }
        }
        Ok(())
    }
}

async fn rewrite<T: Tx>(tx: &mut T, cx: &Cx, row: &Row) -> Result<(), Fault> {
    let around = Around::load(tx, cx, std::iter::once(&row.task)).await?;
    let mut next = row.task.clone();
    if let Ok(Some(folded)) = around.folded(&row.task)
        && folded.task.queue == row.task.queue
        && folded.task.seq == row.task.seq
    {
        let stored: BTreeSet<TaskId> =
            around.edges_of(&next).iter().map(|edge| edge.blocker.clone()).collect();
        for extra in stored.difference(&folded.blocked_by) {
            tx.remove_edge(&cx.scope, &next.id, extra).await?;
        }
        for missing in folded.blocked_by.difference(&stored) {
            if tx.task(&cx.scope, missing).await?.is_some() {
                tx.add_edge(&cx.scope, &next.id, missing).await?;
            }
        }
        next = folded.task;
    }
    rederive(tx, cx, next).await
}

/// Writes a task with everything derived from it, whatever was stored.
pub(super) async fn rederive<T: Tx>(tx: &mut T, cx: &Cx, task: Task) -> Result<(), Fault> {
    let edges = tx.blocker_states(&cx.scope, std::slice::from_ref(&task.id)).await?;
    let open = edges.iter().filter(|edge| !edge.status.is_some_and(Status::satisfies_edge)).count();
    let row = Row { task, open_blockers: u32::try_from(open).unwrap_or(u32::MAX) };
    let standing = write::standing(tx, cx, &row).await?;
    // A blank one differs in every part, so that every part is written.
    let blank = Task::new(&cx.scope, row.task.id.clone(), "", "", rota_core::UnixMillis::MIN);
    tx.update(&blank, &row.task, &standing).await
}
