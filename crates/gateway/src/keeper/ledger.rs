//! What was used, per task and model, and what may still be spent. Notes are taken in memory and written about once a
//! second; a crash loses at most that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::quality::RandomState;
use rota_store::intents::Call;
use rota_store::intents::gateway::{NoteUsage, Used, dollars};
use rota_store::{AnyStore, Outcome, UsageFilter, UsageRow};
use tokio::time::Instant;

use super::Caller;
use crate::config::Budget;
use crate::meter::Reading;
use crate::refusal::Refusal;

/// How long the sums of the store count: others may spend, too.
const FRESH: Duration = Duration::from_secs(5);

/// Whose usage an answer is.
pub(crate) struct Spending {
    pub caller: Arc<Caller>,
    pub upstream: Arc<str>,
    pub model: Arc<str>,
    pub wait_ms: u64,
}

/// Who, of which upstream and model.
type Key = (Arc<Caller>, Arc<str>, Arc<str>);

#[derive(Default)]
struct Notes {
    /// Not yet written.
    fresh: HashMap<Key, UsageRow, RandomState>,
    /// Being written.
    saving: Vec<UsageRow>,
    /// In the store, on the day it was read.
    day: Option<(u64, Instant)>,
    /// In the store, by scope and task.
    tasks: HashMap<(String, String), (u64, Instant)>,
}

impl Notes {
    fn unsaved(&self, is_counted: impl Fn(&UsageRow) -> bool) -> u64 {
        let rows = self.fresh.values().chain(&self.saving);
        rows.filter(|row| is_counted(row)).fold(0, |sum, row| sum.saturating_add(row.spend_nanos))
    }
}

pub(super) struct Ledger {
    budget: Budget,
    notes: Mutex<Notes>,
}

impl Ledger {
    pub fn new(budget: Budget) -> Self {
        Self { budget, notes: Mutex::default() }
    }

    pub fn note(&self, spending: &Spending, reading: &Reading) {
        let Spending { caller, upstream, model, wait_ms } = spending;
        let spend_nanos = self.budget.price(model).map_or(0, |price| reading.cost(&price));
        let mut notes = self.notes();
        let key = (Arc::clone(caller), Arc::clone(upstream), Arc::clone(model));
        let row = notes.fresh.entry(key).or_insert_with(|| UsageRow {
            scope: caller.scope.clone(),
            task: caller.task.clone(),
            upstream: upstream.to_string(),
            model: model.to_string(),
            ..UsageRow::default()
        });
        row.requests += 1;
        row.input_tokens += reading.counted_input();
        row.output_tokens += reading.output;
        row.cache_read_tokens += reading.cache_read;
        row.wait_ms += wait_ms;
        row.spend_nanos = row.spend_nanos.saturating_add(spend_nanos);
    }

    /// Whether there is anything to check.
    pub fn has_budget(&self) -> bool {
        self.budget.is_set()
    }

    /// Why a call may not begin, if so.
    pub async fn check(
        &self,
        store: &AnyStore,
        call: &Call,
        caller: &Caller,
        model: &str,
    ) -> Outcome<Option<Refusal>> {
        if self.budget.price(model).is_none() {
            let model = rota_core::text::escaped(model).into_owned();
            return Ok(Some(Refusal::NoPrice(model)));
        }
        if let Some(limit) = self.budget.day_nanos {
            let spent = self.spent_today(store, call).await?;
            if spent >= limit {
                return Ok(Some(refusal("today".to_owned(), limit, spent)));
            }
        }
        if let Some(limit) = self.budget.task_nanos.filter(|_| !caller.task.is_empty()) {
            let spent = self.spent_by(store, call, caller).await?;
            if spent >= limit {
                let task = rota_core::text::escaped(&caller.task);
                return Ok(Some(refusal(format!("task {task}"), limit, spent)));
            }
        }
        Ok(None)
    }

    async fn spent_today(&self, store: &AnyStore, call: &Call) -> Outcome<u64> {
        let known = self.notes().day.filter(|(_, since)| since.elapsed() < FRESH);
        let stored = match known {
            Some((stored, _)) => stored,
            None => {
                let ask = |filter| Used { call: call.clone(), filter };
                // The first answer only says which day it is.
                let none = UsageFilter { day: Some(i64::MIN), ..UsageFilter::default() };
                let (day, _) = store.perform_beside(ask(none)).await?;
                let (_, rows) = store
                    .perform_beside(ask(UsageFilter { day: Some(day), ..UsageFilter::default() }))
                    .await?;
                let stored = sum(&rows);
                self.notes().day = Some((stored, Instant::now()));
                stored
            }
        };
        Ok(stored.saturating_add(self.notes().unsaved(|_| true)))
    }

    async fn spent_by(&self, store: &AnyStore, call: &Call, caller: &Caller) -> Outcome<u64> {
        let key = (caller.scope.clone(), caller.task.clone());
        let known = self.notes().tasks.get(&key).copied().filter(|(_, since)| since.elapsed() < FRESH);
        let stored = match known {
            Some((stored, _)) => stored,
            None => {
                let (scope, task) = key.clone();
                let filter = UsageFilter { scope: Some(scope), task: Some(task), day: None };
                let (_, rows) = store.perform_beside(Used { call: call.clone(), filter }).await?;
                let stored = sum(&rows);
                self.notes().tasks.insert(key, (stored, Instant::now()));
                stored
            }
        };
        let is_theirs = |row: &UsageRow| row.scope == caller.scope && row.task == caller.task;
        Ok(stored.saturating_add(self.notes().unsaved(is_theirs)))
    }

    /// Writes what is not yet in the store; what cannot be written is kept for the next time.
    pub async fn save(&self, store: &AnyStore, call: &Call) -> Outcome<()> {
        let rows = {
            let mut notes = self.notes();
            let fresh = std::mem::take(&mut notes.fresh);
            notes.saving.extend(fresh.into_values());
            notes.tasks.retain(|_, (_, since)| since.elapsed() < FRESH);
            notes.saving.clone()
        };
        if rows.is_empty() {
            return Ok(());
        }
        store.perform_beside(NoteUsage { call: call.clone(), rows }).await?;
        let mut notes = self.notes();
        // They are in the store now; sums from before they were are no longer good.
        notes.saving.clear();
        notes.day = None;
        notes.tasks.clear();
        Ok(())
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sum(rows: &[UsageRow]) -> u64 {
    rows.iter().fold(0, |sum, row| sum.saturating_add(row.spend_nanos))
}

fn refusal(whose: String, limit: u64, spent: u64) -> Refusal {
    Refusal::Budget { whose, limit: format!("${}", dollars(limit)), spent: format!("${}", dollars(spent)) }
}
