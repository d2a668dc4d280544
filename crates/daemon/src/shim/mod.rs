//! A shim stands between the daemon and each agent: a small process of its own. A daemon can be killed at any moment; its
//! shims go on, and the next daemon finds them.
//!
//! | to find out | look at |
//! |---|---|
//! | what a shim does | [`guard`] |
//! | what is written down about a run, and when | [`record`] |
//! | how a daemon starts, follows and finds its shims | [`attend`] |
//! | which process they are forked from | [`nursery`] |
//! | whether a process is the one that is meant | [`identity`] |
//! | how a tree of processes is ended | [`crate::runner::terminate`] |

mod alarm;
pub mod attend;
pub mod cgroup;
pub mod guard;
pub mod identity;
pub mod nursery;
pub mod orders;
pub mod record;
