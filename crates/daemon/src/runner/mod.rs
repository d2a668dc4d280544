//! Running a program for a task: its environment, its output, its end.
//!
//! | to find out | look at |
//! |---|---|
//! | what a program sees of our environment | [`environment`] |
//! | how it is started, and what its exit code means | [`process`] |
//! | where its output goes, and how much of it | [`output`] |
//! | how it is ended | [`terminate`] |

pub mod environment;
pub mod output;
pub mod process;
pub mod retry_after;
pub mod terminate;
