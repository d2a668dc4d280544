//! The gate in front of an LLM API as an HTTP proxy, for agents that know nothing of it.
//!
//! An agent is pointed here by a base URL and shows a token of ours as its API key. Its call waits for the gate, goes to
//! the provider with the provider's key, and comes back byte for byte as it arrives. What the provider refuses for a
//! while (429, 529, 503, no connection) is held here and sent again when the gate opens; so no agent ever sees it, unless
//! it lasts longer than any agent would wait.
//!
//! | to find out | look at |
//! |---|---|
//! | what happens to a call, from head to end | [`call`] |
//! | which calls pass the gate, and where they go | [`route`] |
//! | what is held and what is passed on | [`verdict`] |
//! | which headers pass | [`headers`] |
//! | how bytes flow, and when a slot is free again | [`relay`] |
//! | who may call, how urgent it is, what was used and may be spent | [`keeper`] |
//! | which calls can be counted against a budget | `metered` |
//! | what a client can send or hold at most | [`limits`] |
//!
//! What it must never do: send a key anywhere but to its upstream; put a token, a key or a body into a log, an error or
//! the store; turn an answer that was cut into one that ended; follow a redirect.

pub mod asking;
mod bound;
pub mod call;
pub mod config;
pub mod control;
pub mod headers;
pub mod keeper;
pub mod limits;
mod link;
mod members;
mod meter;
mod metered;
pub mod panel;
mod quiet;
mod refusal;
pub mod relay;
pub mod route;
mod server;
mod stalled;
mod tls;
mod upstream;
pub mod verdict;
mod wire;

pub use config::{Api, Budget, Credentials, GatewayConfig, Price, Target, UpstreamConfig};
pub use keeper::{Keeper, Notice, Notices};
pub use keeper::{TOKEN_PREFIX, hash_of, priority_of};
pub use server::{Gateway, Reload, Setup, StartFault};
