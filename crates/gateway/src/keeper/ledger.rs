//! What was used, per task and model, and what may still be spent. Notes are taken in memory and written about once a
//! second; a crash loses at most that.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use foldhash::quality::RandomState;
use rota_core::{UnixMillis, Usd};
use rota_store::intents::Call;
use rota_store::intents::gateway::{NoteUsage, Used, end_of_day};
use rota_store::{AnyStore, Outcome, Store, UsageFilter, UsageRow};
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
    day: Option<Day>,
    /// In the store, by scope and task.
    tasks: HashMap<(String, String), (u64, Instant)>,
}

/// What the store has of a day.
#[derive(Clone, Copy)]
struct Day {
    number: i64,
    stored: u64,
    /// When it was read; none once it is known to be outdated.
    since: Option<Instant>,
}

/// How the budget of the day stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DayBudget {
    /// What may be spent.
    pub limit: Usd,
    /// What is spent.
    pub spent: Usd,
    /// When it begins anew.
    pub until: UnixMillis,
}

impl DayBudget {
    pub fn is_spent(&self) -> bool {
        self.spent >= self.limit
    }
}

/// Why a call may not begin.
pub(super) enum Denied {
    NoPrice(String),
    Day(DayBudget),
    Task { limit: Usd, spent: Usd },
}

impl Notes {
    fn unsaved(&self, is_counted: impl Fn(&UsageRow) -> bool) -> u64 {
        let rows = self.fresh.values().chain(&self.saving);
        rows.filter(|row| is_counted(row)).fold(0, |sum, row| sum.saturating_add(row.spend_nanos))
    }
}

pub(super) struct Ledger {
    budget: RwLock<Arc<Budget>>,
    /// Whether there is a limit; asked at every call.
    is_bounded: AtomicBool,
    notes: Mutex<Notes>,
    /// Sums are not read while notes are being written: each note is counted once, in the store or here.
    store_turn: tokio::sync::RwLock<()>,
}

impl Ledger {
    pub fn new(budget: Budget) -> Self {
        let is_bounded = AtomicBool::new(budget.is_set());
        let budget = RwLock::new(Arc::new(budget));
        Self { budget, is_bounded, notes: Mutex::default(), store_turn: tokio::sync::RwLock::default() }
    }

    /// Takes over other limits and prices; what was noted stays as it was priced.
    pub fn set_budget(&self, budget: Budget) {
        self.is_bounded.store(budget.is_set(), Ordering::Relaxed);
        *self.budget.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(budget);
    }

    fn budget(&self) -> Arc<Budget> {
        Arc::clone(&self.budget.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn note(&self, spending: &Spending, reading: &Reading) {
        let Spending { caller, upstream, model, wait_ms } = spending;
        let spend_nanos = self.budget().price(model).map_or(0, |price| reading.cost(&price));
        let mut notes = self.notes();
        let key = (Arc::clone(caller), Arc::clone(upstream), Arc::clone(model));
        let row = notes.fresh.entry(key).or_insert_with(|| UsageRow {
            scope: caller.scope.clone(),
            task: caller.task.clone(),
            upstream: upstream.to_string(),
            model: model.to_string(),
            ..UsageRow::default()
        });
        row.add(&UsageRow {
            requests: 1,
            input_tokens: reading.counted_input(),
            output_tokens: reading.output,
            cache_read_tokens: reading.cache_read,
            wait_ms: *wait_ms,
            spend_nanos,
            ..UsageRow::default()
        });
    }

    /// Whether there is anything to check.
    pub fn has_budget(&self) -> bool {
        self.is_bounded.load(Ordering::Relaxed)
    }

    /// Why a call may not begin, if so.
    pub async fn check(
        &self,
        store: &AnyStore,
        call: &Call,
        caller: &Caller,
        model: &str,
    ) -> Outcome<Option<Denied>> {
        let budget = self.budget();
        if budget.price(model).is_none() {
            return Ok(Some(Denied::NoPrice(rota_core::text::escaped(model).into_owned())));
        }
        if let Some(day) = self.day(store, call).await?.filter(DayBudget::is_spent) {
            return Ok(Some(Denied::Day(day)));
        }
        if let Some(limit) = budget.task_nanos.filter(|_| !caller.task.is_empty()) {
            let spent = self.spent_by(store, call, caller).await?;
            if spent >= limit {
                let [limit, spent] = [limit, spent].map(Usd::from_nanos);
                return Ok(Some(Denied::Task { limit, spent }));
            }
        }
        Ok(None)
    }

    /// How the budget of the day stands; none where there is none.
    pub async fn day(&self, store: &AnyStore, call: &Call) -> Outcome<Option<DayBudget>> {
        if self.budget().day_nanos.is_none() {
            return Ok(None);
        }
        let _reading = self.store_turn.read().await;
        let is_fresh = |day: &Day| day.since.is_some_and(|since| since.elapsed() < FRESH);
        let known = self.notes().day.filter(is_fresh);
        if known.is_none() {
            let ask = |filter| Used { call: call.clone(), filter };
            // The first answer only says which day it is.
            let none = UsageFilter { day: Some(i64::MIN), ..UsageFilter::default() };
            let (number, _) = store.perform(&ask(none)).await?;
            let today = UsageFilter { day: Some(number), ..UsageFilter::default() };
            let (_, rows) = store.perform(&ask(today)).await?;
            self.notes().day = Some(Day { number, stored: sum(&rows), since: Some(Instant::now()) });
        }
        Ok(self.last_day())
    }

    /// How the budget of the day stood when the store was last asked, with what was used since.
    pub fn last_day(&self) -> Option<DayBudget> {
        let limit = self.budget().day_nanos?;
        let notes = self.notes();
        let Day { number, stored, .. } = notes.day?;
        let spent = stored.saturating_add(notes.unsaved(|_| true));
        let [limit, spent] = [limit, spent].map(Usd::from_nanos);
        Some(DayBudget { limit, spent, until: end_of_day(number) })
    }

    async fn spent_by(&self, store: &AnyStore, call: &Call, caller: &Caller) -> Outcome<u64> {
        let _reading = self.store_turn.read().await;
        let key = (caller.scope.clone(), caller.task.clone());
        let known = self.notes().tasks.get(&key).copied().filter(|(_, since)| since.elapsed() < FRESH);
        let stored = match known {
            Some((stored, _)) => stored,
            None => {
                let (scope, task) = key.clone();
                let filter = UsageFilter { scope: Some(scope), task: Some(task), day: None };
                let (_, rows) = store.perform(&Used { call: call.clone(), filter }).await?;
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
        let _writing = self.store_turn.write().await;
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
        store.perform(&NoteUsage { call: call.clone(), rows }).await?;
        let mut notes = self.notes();
        // They are in the store now; sums from before they were are no longer good.
        let saved = std::mem::take(&mut notes.saving);
        if let Some(day) = &mut notes.day {
            day.stored = day.stored.saturating_add(sum(&saved));
            day.since = None;
        }
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

impl Denied {
    pub fn refusal(self, caller: &Caller) -> Refusal {
        let shown = |usd: Usd| format!("${}", usd.rounded());
        let (whose, limit, spent) = match self {
            Self::NoPrice(model) => return Refusal::NoPrice(model),
            Self::Day(DayBudget { limit, spent, .. }) => ("today".to_owned(), limit, spent),
            Self::Task { limit, spent } => {
                (format!("task {}", rota_core::text::escaped(&caller.task)), limit, spent)
            }
        };
        Refusal::Budget { whose, limit: shown(limit), spent: shown(spent) }
    }
}
