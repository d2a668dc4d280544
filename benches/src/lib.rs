//! Measuring: ours beside the bare limit, in interleaved rounds of one run, so that a noisy machine is noisy for both.
//!
//! These are plain programs, never tests: nothing here fails because a machine is slow. `docs/benchmarks.md` has the
//! commands, the targets and the results.

pub mod backlog;
pub mod bare;
pub mod options;
pub mod stats;
pub mod worker;

/// Failures end a benchmark with their text; nobody handles them.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
