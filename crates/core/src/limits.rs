//! A limit for every external input.

/// Bytes in a task id.
pub const ID_BYTES: usize = 256;
/// Bytes in a scope, queue, kind, category, spec, ref, agent or host name.
pub const NAME_BYTES: usize = 1_024;
/// Bytes in a title.
pub const TITLE_BYTES: usize = 64 * 1_024;
/// Bytes in a description, result, payload or reason, and in one line of a plan.
pub const TEXT_BYTES: usize = 4 * 1_024 * 1_024;
/// Levels of objects and arrays in a JSON value: each level indents everything inside it where the value is shown.
pub const JSON_DEPTH: usize = 64;
/// Steps of one task.
pub const STEPS: usize = 10_000;
/// Blockers of one task.
pub const BLOCKERS: usize = 20_000;
/// Levels of a hierarchy.
pub const DEPTH: u32 = 64;
/// Tasks in one plan-sync, and in one batch of adds.
pub const BATCH: usize = 1_000_000;
/// Most children that the agent of a loop may add, with its lease token or by `children.jsonl`.
pub const AGENT_CHILDREN: usize = 1_000;
/// Tasks that the agents of one task may create with their lease tokens.
pub const TOKEN_TASKS: usize = 100;
/// A run that ends unsuccessfully in less time than this is a fast failure.
pub const FAST_RUN_MS: i64 = 10_000;
/// Consecutive rate limits after which a task is parked.
pub const RATE_LIMITED_IN_ROW: u32 = 20;
