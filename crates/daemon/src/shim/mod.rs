//! A shim stands between the daemon and each agent: the same binary, started again. A daemon can be killed at any
//! moment; its shims go on, and the next daemon finds them.
//!
//! | to find out | look at |
//! |---|---|
//! | what a shim does | [`guard`] |
//! | what is written down about a run, and when | [`record`] |
//! | how a daemon starts, follows and finds its shims | [`attend`] |
//! | whether a process is the one that is meant | [`identity`] |
//! | how a tree of processes is ended | [`crate::runner::terminate`] |

mod alarm;
pub mod attend;
pub mod cgroup;
pub mod guard;
pub mod identity;
pub mod orders;
pub mod record;

/// The word on the command line that makes a `rota` a shim.
pub const COMMAND: &str = "shim";
