//! The whole at a glance, and tasks in pages: for programs that show a store rather than work on it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rota_core::{Status, UnixMillis, Usd};
use rota_store::intents::overview::{Glance, Overview as OverviewIntent, Page};
use rota_store::{BlockRow, Store, UsageRow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, bad_value};
use crate::verb::{Route, Verb};
use crate::{Result, TaskPayload};

/// The whole at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields say it")]
pub struct Overview {
    pub now: UnixMillis,
    pub queues: Vec<QueueOverview>,
    pub blocks: Vec<BlockPayload>,
    /// Budgets that are spent now.
    #[serde(default)]
    pub budgets: Vec<SpentBudget>,
    pub usage: Vec<UsagePayload>,
    #[serde(default)]
    pub usage_by_kind: Vec<KindUsage>,
}

/// A queue, and how many of its tasks stand where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueOverview {
    /// Its name.
    pub queue: String,
    /// Held back by a person.
    pub paused: bool,
    /// By state; open and active ones with an unresolved blocker are under `blocked` only.
    pub counts: BTreeMap<String, u64>,
}

/// An upstream that pushed back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockPayload {
    /// Which API.
    pub upstream: String,
    /// Whether calls are held back now.
    pub blocked: bool,
    /// Until when; none for until somebody unblocks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_until: Option<UnixMillis>,
    /// Limits in a row.
    pub hits: u32,
    /// What the provider said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was written.
    pub updated_at: UnixMillis,
}

/// A budget that is spent: loops that call the upstream wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpentBudget {
    /// The upstream whose calls it pays for.
    pub upstream: String,
    /// The budget's key in the configuration.
    pub budget: String,
    /// When it begins anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixMillis>,
}

/// What was used of a model today, by all tasks together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields say it")]
pub struct UsagePayload {
    pub upstream: String,
    pub model: String,
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub wait_ms: u64,
    pub usd: Usd,
}

/// What was used today by all tasks of a kind together; the kind is empty for those that have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields say it")]
pub struct KindUsage {
    pub kind: String,
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub usd: Usd,
}

/// See how many tasks of each queue stand where, which upstreams are blocked, and what was used today
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowOverview {}

#[async_trait]
impl Verb for ShowOverview {
    type Payload = Overview;
    const ROUTE: Route = Route::get("overview", "/overview");

    async fn run(self, cx: &Context) -> Result<Overview> {
        overview(cx).await
    }
}

/// Looks at everything.
pub async fn overview(cx: &Context) -> Result<Overview> {
    let seen = cx.store.perform(&OverviewIntent { call: cx.call() }).await?;
    let queue = |(row, counts): (rota_store::QueueRow, Vec<rota_store::StatusCount>)| {
        let mut by_state = BTreeMap::new();
        for count in counts {
            let is_blocked = count.blocked && matches!(count.status, Status::Open | Status::Active);
            let word = if is_blocked { "blocked" } else { count.status.word() };
            *by_state.entry(word.to_owned()).or_default() += count.count;
        }
        QueueOverview { queue: row.name, paused: row.paused, counts: by_state }
    };
    let (blocks, budgets) = split(seen.blocks, seen.now);
    Ok(Overview {
        queues: seen.queues.into_iter().map(queue).collect(),
        blocks,
        budgets,
        usage_by_kind: usage_by_kind(&seen.usage, &seen.kinds),
        usage: usage(seen.usage),
        now: seen.now,
    })
}

/// Whether there is anything to do, and who is blocked: what is cheap to see of the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glimpse {
    /// When.
    pub now: UnixMillis,
    /// Whether a task is active, or open and not blocked.
    pub is_busy: bool,
    /// Every upstream that pushed back.
    pub blocks: Vec<BlockPayload>,
    /// Budgets that are spent now.
    pub budgets: Vec<SpentBudget>,
}

/// Looks whether anything is to be done. Cheap on a store of any size, unless all of it waits for something.
pub async fn glance(cx: &Context) -> Result<Glimpse> {
    let seen = cx.store.perform(&Glance { call: cx.call() }).await?;
    let (blocks, budgets) = split(seen.blocks, seen.now);
    Ok(Glimpse { now: seen.now, is_busy: seen.is_busy, blocks, budgets })
}

/// Blocks of upstreams, and budgets that are spent.
fn split(rows: Vec<BlockRow>, now: UnixMillis) -> (Vec<BlockPayload>, Vec<SpentBudget>) {
    let (budgets, blocks): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.budget_of().is_some());
    let spent = |row: BlockRow| {
        let upstream = row.budget_of().filter(|_| row.holds(now))?.to_owned();
        Some(SpentBudget { upstream, until: row.blocked_until, budget: row.reason.unwrap_or_default() })
    };
    (blocks.into_iter().map(|row| block(row, now)).collect(), budgets.into_iter().filter_map(spent).collect())
}

fn block(row: BlockRow, now: UnixMillis) -> BlockPayload {
    let blocked = row.holds(now);
    let BlockRow { upstream, blocked_until, hits, reason, updated_at } = row;
    BlockPayload { upstream, blocked, blocked_until, hits, reason, updated_at }
}

fn usage(rows: Vec<UsageRow>) -> Vec<UsagePayload> {
    let mut by_model: BTreeMap<(String, String), UsagePayload> = BTreeMap::new();
    for row in rows {
        let sum = by_model.entry((row.upstream.clone(), row.model.clone())).or_default();
        (sum.upstream, sum.model) = (row.upstream, row.model);
        sum.requests = sum.requests.saturating_add(row.requests);
        sum.input_tokens = sum.input_tokens.saturating_add(row.input_tokens);
        sum.output_tokens = sum.output_tokens.saturating_add(row.output_tokens);
        sum.cache_read_tokens = sum.cache_read_tokens.saturating_add(row.cache_read_tokens);
        sum.wait_ms = sum.wait_ms.saturating_add(row.wait_ms);
        sum.usd = sum.usd.plus(Usd::from_nanos(row.spend_nanos));
    }
    by_model.into_values().collect()
}

fn usage_by_kind(rows: &[UsageRow], kinds: &BTreeMap<String, String>) -> Vec<KindUsage> {
    let mut by_kind: BTreeMap<&str, KindUsage> = BTreeMap::new();
    for row in rows {
        let kind = kinds.get(&row.task).map_or("", String::as_str);
        let sum = by_kind
            .entry(kind)
            .or_insert_with(|| KindUsage { kind: kind.to_owned(), ..KindUsage::default() });
        sum.requests = sum.requests.saturating_add(row.requests);
        sum.input_tokens = sum.input_tokens.saturating_add(row.input_tokens);
        sum.output_tokens = sum.output_tokens.saturating_add(row.output_tokens);
        sum.cache_read_tokens = sum.cache_read_tokens.saturating_add(row.cache_read_tokens);
        sum.usd = sum.usd.plus(Usd::from_nanos(row.spend_nanos));
    }
    by_kind.into_values().collect()
}

/// Tasks of every queue by insertion, and where to go on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskPage {
    /// How many.
    pub total: usize,
    /// In the order they were inserted.
    pub tasks: Vec<TaskPayload>,
    /// What to pass as `after` to go on; none at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// The longest page.
const LONGEST: usize = 1_000;

/// Read the tasks of every queue in pages, by insertion
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PageTasks {
    /// The place behind which the page begins
    #[serde(default)]
    #[schemars(range(max = i64::MAX))]
    pub after: u64,
    /// How many
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = LONGEST))]
    pub limit: usize,
}

#[async_trait]
impl Verb for PageTasks {
    type Payload = TaskPage;
    const ROUTE: Route = Route::get("task page", "/task-pages");

    async fn run(self, cx: &Context) -> Result<TaskPage> {
        page(cx, self.after, self.limit).await
    }
}

fn hundred() -> usize {
    100
}

/// Reads a page of tasks.
pub async fn page(cx: &Context, after: u64, limit: usize) -> Result<TaskPage> {
    if !(1..=LONGEST).contains(&limit) {
        return Err(bad_value(format!("limit must be from 1 to {LONGEST}, got: {limit}")).into());
    }
    if i64::try_from(after).is_err() {
        return Err(bad_value(format!("after is no place in the store, got: {after}")).into());
    }
    let views = cx.store.perform(&Page { call: cx.call(), after, limit }).await?;
    let next = views.last().filter(|_| views.len() == limit).map(|view| view.task.seq);
    let tasks: Vec<TaskPayload> = views.into_iter().map(TaskPayload::of_view).collect();
    Ok(TaskPage { total: tasks.len(), tasks, next })
}
