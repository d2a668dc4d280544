//! What Rota runs: the loops of a hierarchy, the agents behind them, and the daemon that looks after both.

pub mod changes;
pub mod config;
pub mod desk;
pub mod runner;
pub mod signals;
pub mod work;
