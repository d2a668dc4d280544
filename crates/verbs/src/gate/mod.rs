//! `gate`: what the gateway keeps in the store.

mod token;
mod unblock;
mod usage;

pub use token::{MadeToken, NewToken, token};
pub use unblock::{Unblocked, unblock};
pub use usage::{UsageList, UsagePayload, UsageSum, sum_of, usage};
