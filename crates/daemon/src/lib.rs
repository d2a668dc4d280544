//! What Rota runs: the loops of a hierarchy, the agents behind them, and the daemon that looks after both.

pub mod agent_user;
pub mod boot;
pub mod changes;
pub mod children;
pub mod companion;
pub mod config;
pub mod control;
pub mod files;
pub mod folders;
pub mod gateway;
pub mod git;
pub mod iteration;
mod lease_holder;
pub mod manager;
pub mod prompt;
pub mod publish;
pub mod room;
pub mod runner;
pub mod shim;
pub mod signals;
pub mod sweep;
pub mod tenure;
pub mod work;
pub mod worktree;
