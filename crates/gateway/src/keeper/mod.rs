//! What the gateway knows beyond one call: who callers are, what was used, which upstream is blocked. All of it is in
//! the store, so a restart and other hosts know it too; calls never wait for a write.

mod blocks;
mod callers;
mod ledger;

use std::sync::Arc;
use std::time::Duration;

use rota_door::Door;
use rota_gate::{BlockStore, Gate};
use rota_store::intents::Call;
use rota_store::{AnyStore, Outcome};

use crate::config::Budget;
use crate::meter::Reading;
use crate::refusal::Refusal;

pub use callers::{Caller, TOKEN_PREFIX, hash_of, priority_of};
pub(crate) use ledger::Spending;

use blocks::Blocks;
use callers::Callers;
use ledger::Ledger;

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
    notices: Notices,
}

impl Keeper {
    /// Over a store; reads what is blocked.
    ///
    /// # Errors
    /// The store cannot be read: it might say that nothing may start.
    pub async fn open(
        store: AnyStore,
        call: Call,
        door: Door,
        budget: Budget,
        upstreams: Vec<String>,
        notices: Notices,
    ) -> Outcome<Self> {
        let blocks = Arc::new(Blocks::read(&store, &call, upstreams).await?);
        let callers = Callers::new(store.clone(), call.clone(), door);
        Ok(Self { ledger: Ledger::new(budget), store, call, callers, blocks, notices })
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
            Ok(Some(refusal)) => Err(refusal),
            Err(error) => Err(self.trouble(&error)),
        }
    }

    fn trouble(&self, error: &rota_store::Error) -> Refusal {
        (self.notices)(Notice::StoreFault { problem: error.to_string() });
        Refusal::Store
    }

    pub(crate) fn note(&self, spending: &Spending, reading: &Reading) {
        self.ledger.note(spending, reading);
    }

    /// Keeps the store and the gates in agreement, until it is dropped.
    pub(crate) async fn attend(&self, gates: &[(String, Gate)]) {
        let mut seen = blocks::Seen::default();
        let mut is_in_trouble = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                () = self.blocks.changed() => {}
            }
            let kept = self.keep(gates, &mut seen).await;
            if let Err(error) = &kept
                && !is_in_trouble
            {
                self.trouble(error);
            }
            is_in_trouble = kept.is_err();
        }
    }

    async fn keep(&self, gates: &[(String, Gate)], seen: &mut blocks::Seen) -> Outcome<()> {
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
