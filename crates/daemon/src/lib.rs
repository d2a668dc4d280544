//! What Rota runs: the loops of a hierarchy, the agents behind them, and the daemon that looks after both.

pub mod config;
