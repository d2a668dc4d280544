//! `gate usage`: what went through the gateway, per task and model, and what it cost.

use rota_core::Usd;
use rota_store::intents::gateway::Used;
use rota_store::{Store, UsageFilter, UsageRow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::{Context, task_id};

/// What was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UsageList {
    /// How many rows.
    pub total: usize,
    /// By task, upstream and model.
    pub usage: Vec<UsagePayload>,
    /// All of it together.
    pub sum: UsageSum,
}

/// What one task used of one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UsagePayload {
    /// The task; none for callers without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The provider.
    pub upstream: String,
    /// The model; none for calls that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much.
    #[serde(flatten)]
    pub sum: UsageSum,
}

/// How much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageSum {
    /// Calls that went through.
    pub requests: u64,
    /// Tokens sent, without those that the provider had.
    pub input_tokens: u64,
    /// Tokens that came back.
    pub output_tokens: u64,
    /// Tokens that the provider had.
    pub cache_read_tokens: u64,
    /// How long calls waited for the gate, together.
    pub wait_ms: u64,
    /// Dollars, by the prices of the configuration.
    pub usd: Usd,
}

impl UsageSum {
    fn add(&mut self, row: &UsageRow) {
        self.requests = self.requests.saturating_add(row.requests);
        self.input_tokens = self.input_tokens.saturating_add(row.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(row.output_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(row.cache_read_tokens);
        self.wait_ms = self.wait_ms.saturating_add(row.wait_ms);
        self.usd = self.usd.plus(Usd::from_nanos(row.spend_nanos));
    }
}

/// All rows together; none if there are none.
pub fn sum_of(rows: &[UsageRow]) -> Option<UsageSum> {
    let mut sum = UsageSum::default();
    rows.iter().for_each(|row| sum.add(row));
    (!rows.is_empty()).then_some(sum)
}

/// What tasks of this scope used: in all, or today; all tasks, or one.
pub async fn usage(cx: &Context, task: Option<&str>, today: bool) -> Result<UsageList> {
    let task = task.map(task_id).transpose()?.map(|id| id.to_string());
    let filter = UsageFilter { scope: Some(cx.scope.clone()), task, day: None };
    let (day, mut rows) = cx.store.perform(&Used { call: cx.call(), filter }).await?;
    rows.retain(|row| !today || row.day == day);
    let mut usage: Vec<UsagePayload> = Vec::new();
    for row in &rows {
        let named = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let (task, model) = (named(&row.task), named(&row.model));
        let is_same = |known: &&mut UsagePayload| {
            (&known.task, &known.upstream, &known.model) == (&task, &row.upstream, &model)
        };
        match usage.iter_mut().find(is_same) {
            Some(known) => known.sum.add(row),
            None => {
                let mut sum = UsageSum::default();
                sum.add(row);
                usage.push(UsagePayload { task, upstream: row.upstream.clone(), model, sum });
            }
        }
    }
    let sum = sum_of(&rows).unwrap_or_default();
    Ok(UsageList { total: usage.len(), usage, sum })
}
