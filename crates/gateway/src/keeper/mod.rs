//! What the gateway knows beyond one call: who callers are, what was used, which upstream is blocked. All of it is in
//! the store, so a restart and other hosts know it too; calls never wait for a write.

mod blocks;
mod callers;
mod ledger;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rota_auth::Authenticator;
use rota_core::{TaskId, UnixMillis, Usd};
use rota_gate::{BlockStore, Gate};
use rota_store::intents::Call;
use rota_store::intents::blocks::NoteBudget;
use rota_store::intents::gateway::ParkSpent;
use rota_store::{AnyStore, Outcome, Store};

use crate::config::Budget;
use crate::meter::Reading;
use crate::refusal::Refusal;

pub use callers::{Caller, TOKEN_PREFIX, hash_of, priority_of};
pub(crate) use ledger::{DayBudget, Spending};

use blocks::Blocks;
use callers::Callers;
use ledger::{Denied, Ledger};

/// How often the store is told what was used, and asked what others know.
const TICK: Duration = Duration::from_secs(1);

/// Something an operator should see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Nothing goes to an upstream for a while.
    Blocked {
        /// Which.
        upstream: String,
        /// For how long yet; none until somebody unblocks it.
        secs: Option<u64>,
        /// A quota is used up: calls are refused instead of held.
        is_quota: bool,
        /// Limits in a row.
        hits: u32,
    },
    /// It is open again.
    Open {
        /// Which.
        upstream: String,
    },
    /// The budget of the day is spent: calls are refused, and loops wait.
    BudgetSpent {
        /// What could be spent.
        limit: Usd,
        /// What was spent.
        spent: Usd,
        /// When the budget begins anew.
        until: UnixMillis,
    },
    /// There is money again.
    BudgetOpen,
    /// A task has spent its budget and is parked: it needs a person.
    TaskParked {
        /// The task.
        task: String,
        /// What it could spend.
        limit: Usd,
    },
    /// A configuration that was edited is refused; the old one stays.
    NotReloaded {
        /// What is wrong with it.
        problem: String,
    },
    /// The store cannot be written or read; it is tried again.
    StoreFault {
        /// What it said.
        problem: String,
    },
}

/// Who is told.
pub type Notices = Arc<dyn Fn(Notice) + Send + Sync>;

/// Callers, usage and blocks over one store.
pub struct Keeper {
    store: AnyStore,
    call: Call,
    callers: Callers,
    ledger: Ledger,
    blocks: Arc<Blocks>,
    upstreams: Vec<String>,
    /// Whether loops are told that the day's money is spent.
    is_spent_told: AtomicBool,
    /// Until when the store says that the day's money is spent; none before it was looked at.
    noted_budget: tokio::sync::Mutex<Option<Option<UnixMillis>>>,
    notices: Notices,
}

/// The budget's key in the configuration, by which loops are told what they wait for.
const DAY_BUDGET: &str = "usd_per_day";

impl Keeper {
    /// Over a store; reads what is blocked.
    ///
    /// # Errors
    /// The store cannot be read: it might say that nothing may start.
    pub async fn open(
        store: AnyStore,
        call: Call,
        auth: Authenticator,
        budget: Budget,
        upstreams: Vec<String>,
        notices: Notices,
    ) -> Outcome<Self> {
        let blocks = Arc::new(Blocks::read(&store, &call, upstreams.clone()).await?);
        let callers = Callers::new(store.clone(), call.clone(), auth);
        let is_spent_told = AtomicBool::new(false);
        Ok(Self {
            ledger: Ledger::new(budget),
            store,
            call,
            callers,
            blocks,
            upstreams,
            is_spent_told,
            noted_budget: tokio::sync::Mutex::default(),
            notices,
        })
    }

    /// Where gates keep their blocks.
    pub fn block_store(&self) -> Arc<dyn BlockStore> {
        Arc::clone(&self.blocks) as Arc<dyn BlockStore>
    }

    /// Who shows this token; nobody, or nobody any longer, is none.
    pub(crate) async fn identify(&self, shown: &[u8]) -> Result<Option<Arc<Caller>>, Refusal> {
        self.callers.identify(shown).await.map_err(|error| self.trouble(&error))
    }

    /// The token of a lease is no longer good.
    pub fn revoke(&self, lease: &str) {
        self.callers.revoke(lease);
    }

    /// The token of a lease is good again, if the store says so.
    pub fn expect(&self, lease: &str) {
        self.callers.expect(lease);
    }

    /// Whether a call may still be paid for.
    pub(crate) async fn check_budget(&self, caller: &Caller, model: &str) -> Result<(), Refusal> {
        if !self.ledger.has_budget() {
            return Ok(());
        }
        match Box::pin(self.ledger.check(&self.store, &self.call, caller, model)).await {
            Ok(None) => Ok(()),
            Ok(Some(denied)) => {
                match &denied {
                    // Loops that use the upstream wait from now on. The store says so before the caller hears of it,
                    // so that the end of this run is not taken for a failure of the loop.
                    Denied::Day(_) if !self.is_spent_told.load(Ordering::Relaxed) => {
                        if let Err(error) = Box::pin(self.keep_budget()).await {
                            self.trouble(&error);
                        }
                    }
                    Denied::Task { limit, .. } => self.park(caller, *limit).await,
                    Denied::Day(_) | Denied::NoPrice(_) => {}
                }
                Err(denied.refusal(caller))
            }
            Err(error) => Err(self.trouble(&error)),
        }
    }

    /// Whether calls must be counted against a budget.
    pub(crate) fn has_budget(&self) -> bool {
        self.ledger.has_budget()
    }

    /// Takes over other limits and prices.
    pub(crate) fn set_budget(&self, budget: Budget) {
        self.ledger.set_budget(budget);
        self.blocks.nudge();
    }

    /// How the budget of the day stood a moment ago.
    pub(crate) fn day_budget(&self) -> Option<DayBudget> {
        self.ledger.last_day()
    }

    /// A task without money cannot go on, and trying again would not help it.
    async fn park(&self, caller: &Caller, limit: Usd) {
        let Ok(task) = TaskId::new(&caller.task) else { return };
        let actor = Some(self.call.actor.clone().unwrap_or_else(|| "gateway".to_owned()));
        let call = Call { scope: caller.scope.clone(), actor, ..self.call.clone() };
        let reason = format!("its budget of ${} (gateway.budget.usd_per_task) is spent", limit.rounded());
        match self.store.perform(&ParkSpent { call, task, reason }).await {
            Ok(true) => (self.notices)(Notice::TaskParked { task: caller.task.clone(), limit }),
            Ok(false) => {}
            Err(error) => drop(self.trouble(&error)),
        }
    }

    /// Writes down whether the day's money is spent, where that has changed.
    async fn keep_budget(&self) -> Outcome<()> {
        let mut told = self.noted_budget.lock().await;
        let day = self.ledger.day(&self.store, &self.call).await?;
        let spent = day.filter(DayBudget::is_spent);
        let until = spent.map(|day| day.until);
        if *told == Some(until) {
            return Ok(());
        }
        let note = NoteBudget {
            call: self.call.clone(),
            upstreams: self.upstreams.clone(),
            spent: until.map(|until| (DAY_BUDGET.to_owned(), until)),
        };
        self.store.perform(&note).await?;
        self.is_spent_told.store(until.is_some(), Ordering::Relaxed);
        let was_spent = told.replace(until).flatten().is_some();
        match spent {
            Some(DayBudget { limit, spent, until }) => {
                (self.notices)(Notice::BudgetSpent { limit, spent, until });
            }
            None if was_spent => (self.notices)(Notice::BudgetOpen),
            None => {}
        }
        Ok(())
    }

    fn trouble(&self, error: &rota_store::Error) -> Refusal {
        (self.notices)(Notice::StoreFault { problem: error.to_string() });
        Refusal::Store
    }

    pub(crate) fn note(&self, spending: &Spending, reading: &Reading) {
        self.ledger.note(spending, reading);
        // Told before the next loop begins, not at the next tick.
        let is_news = self.ledger.has_budget() && !self.is_spent_told.load(Ordering::Relaxed);
        if is_news && self.ledger.last_day().is_some_and(|day| day.is_spent()) {
            self.blocks.nudge();
        }
    }

    /// Keeps the store and the gates in agreement, until it is dropped.
    pub(crate) async fn attend(&self, gates: &[(String, Gate)]) {
        let mut seen = blocks::Seen::default();
        let mut is_in_trouble = false;
        loop {
            let kept = self.keep(gates, &mut seen).await;
            if let Err(error) = &kept
                && !is_in_trouble
            {
                self.trouble(error);
            }
            is_in_trouble = kept.is_err();
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                () = self.blocks.changed() => {}
            }
        }
    }

    async fn keep(&self, gates: &[(String, Gate)], seen: &mut blocks::Seen) -> Outcome<()> {
        self.keep_budget().await?;
        self.blocks.write(&self.store, &self.call).await?;
        self.blocks.look(&self.store, &self.call, gates, seen).await?;
        seen.tell(gates, &self.notices);
        self.ledger.save(&self.store, &self.call).await?;
        self.callers.tidy();
        Ok(())
    }

    /// Writes what is not yet in the store.
    pub(crate) async fn close(&self) {
        let written = async {
            self.blocks.write(&self.store, &self.call).await?;
            self.ledger.save(&self.store, &self.call).await
        };
        if let Err(error) = written.await {
            self.trouble(&error);
        }
    }
}
