//! What Rota remembers: tasks, edges, queues, policies, agents and the journal, in one transaction per intent.
//!
//! [`Store`] begins transactions, [`Tx`] is what one can do, [`intents`] is what callers want. Three stores share
//! them: [`memory`] is the reference, [`sqlite`] the default, [`postgres`] for many hosts.

mod any;
mod batcher;
pub mod clock;
pub mod crash;
pub mod environment;
pub mod fault;
mod files;
mod in_context;
pub mod intents;
pub mod memory;
pub mod postgres;
mod secret;
pub mod sqlite;
mod store;
mod tx;
mod unlinked;
pub mod upkeep;
mod usage;
mod warning;
mod watch;

pub use any::{AnyStore, Location};
pub use fault::{Error, Fault, Outcome};
pub use files::{
    GROUP, PRIVATE, create_private, make_rota_folder, make_whole, open_own, open_regular, part_of,
    replace_for_owner,
};
pub use in_context::InContext;
pub use secret::Secret;
pub use store::{Access, ErasedIntent, Intent, Pending, Store};
pub use tx::{
    AgentRow, AnyTx, BlockRow, Blocker, ClaimReads, EventFilter, Filter, GateTokenRow, HeadQuery, Level,
    ListFilter, PolicyRow, Prefetch, Published, QueueRow, Ranked, Row, SettlementRow, Standing, StatusCount,
    Transition, Tx, UsageFilter, UsageRow,
};
pub use upkeep::{BadCursor, Cursor, Upkeep};
pub use warning::send_warnings_to;
pub use watch::Watch;
