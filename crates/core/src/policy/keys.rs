//! The keys of a policy document and of its flat form.

use serde_json::{Value, json};

use super::{BUILT_IN_QUEUES, Policy};
use crate::shape::{Key, Notation, Shape, key};

const YEAR_SECS: u64 = 365 * 24 * 3_600;
const YEAR_MS: u64 = YEAR_SECS * 1_000;
const COUNT: Shape = Shape::Whole(1, 1_000_000);
const POINTS: Shape = Shape::Whole(0, 1_000_000);
const LENGTH_MS: Shape = Shape::Whole(1, YEAR_MS);
const WAIT_MS: Shape = Shape::Whole(0, YEAR_MS);
const LENGTH_SECS: Shape = Shape::Whole(1, YEAR_SECS);
const WAIT_SECS: Shape = Shape::Whole(0, YEAR_SECS);
const FACTOR: Shape = Shape::Decimal(1_000, 1_000_000);
const TOKENS: Shape = Shape::Whole(1, u64::MAX);
const KINDS: [&str; 4] = ["plan", "spec", "phase", "ralph"];

/// The whole document.
pub(super) const DOCUMENT: Shape = Shape::Keys(&[
    key("$schema", Shape::Text, "Where editors find the JSON Schema of this document."),
    VERSION,
    key(
        "basedOn",
        Shape::Text,
        "The version this document was made from; refused if another one is in force.",
    ),
    key("queues", QUEUES, "The rules of each queue."),
    key("gate", GATE, "The rules of the gate in front of the LLM API."),
]);

const VERSION: Key = key("schemaVersion", Shape::Whole(1, 1), "The version of this form.");

/// The flat form of six keys, about queue `runs`.
pub(super) const FLAT: Shape = Shape::Keys(&[
    VERSION,
    key("maxConcurrent", COUNT, "Leases held at once."),
    key("maxAttempts", COUNT, "Counted attempts after which an entry parks."),
    key("leaseTtlMs", LENGTH_MS, "How long a lease lasts."),
    key("backoffBaseMs", WAIT_MS, "The first wait after a counted attempt."),
    key("backoffFactor", FACTOR, "What each further wait is multiplied by."),
    key("backoffCapMs", WAIT_MS, "The longest wait."),
]);

/// The rules of each queue, which `rota.yml` has too.
pub const QUEUES: Shape = Shape::Each(&QUEUE, &BUILT_IN_QUEUES);

const QUEUE: Shape = Shape::Keys(&[
    key("maxConcurrent", Shape::OrNull(&COUNT), "Leases held at once; null for no ceiling."),
    key("perKind", Shape::Each(&COUNT, &KINDS), "Leases held at once, by kind."),
    key(
        "maxAttempts",
        Shape::OrNull(&COUNT),
        "Counted attempts after which a task parks; null for no limit.",
    ),
    key("leaseTtlMs", LENGTH_MS, "How long a lease lasts."),
    key(
        "reclaim",
        Shape::Word(&["auto", "explicit"]),
        "Who takes expired leases back: every claim, or only `rota sched reclaim`.",
    ),
    key("requireLease", Shape::Truth, "Whether renewing and settling must name the lease."),
    key(
        "requireHolder",
        Shape::Truth,
        "Whether renewing and settling must name the lease or its holder; if false, a caller that names neither is accepted.",
    ),
    key("requireCommit", Shape::Truth, "Whether a result given to `task done` must have a `commit`."),
    key("agentsMayCreate", Shape::Truth, "Whether an agent may create tasks with its lease token."),
    key("backoff", Shape::OrNull(&BACKOFF), "The wait after a counted attempt; null for none."),
    key("counts", COUNTS, "Which ends count as attempts."),
    key("defaultPriority", Shape::Whole(0, u32::MAX as u64), "Given to tasks that come without one."),
    key("score", Shape::OrNull(&SCORE), "How tasks of one priority are ranked; null for by age."),
    key(
        "fastFailures",
        Shape::OrNull(&FAST_FAILURES),
        "The cool-down of a loop whose runs end unsuccessfully within 10 s, many times in a row; null for off.",
    ),
]);

const FAST_FAILURES: Shape = Shape::Keys(&[
    key("after", COUNT, "The number of fast failures in a row from which on the loop cools down."),
    key("baseMs", LENGTH_MS, "The first cool-down; each further one is twice as long."),
    key("capMs", LENGTH_MS, "The longest cool-down."),
]);

const BACKOFF: Shape = Shape::Keys(&[
    key("baseMs", WAIT_MS, "The first wait."),
    key("factor", FACTOR, "What each further wait is multiplied by."),
    key("capMs", WAIT_MS, "The longest wait."),
]);

const COUNTS: Shape = Shape::Keys(&[
    key("failed", Shape::Truth, "Reported failures."),
    key("lost", Shape::Truth, "Leases that expired."),
]);

const SCORE: Shape = Shape::Keys(&[
    key("base", Shape::Each(&POINTS, &KINDS), "Points by kind."),
    key("baseOther", POINTS, "Points for kinds not named."),
    key("ageBoostPerMinute", POINTS, "Points per whole minute since creation."),
    key("ageBoostMax", POINTS, "The most that age can add."),
    key("depthBoostPerLevel", POINTS, "Points per level below the root."),
    key("retryPenaltyPerIteration", POINTS, "Points lost per try after the first."),
    key("retryPenaltyMax", POINTS, "The most that tries can take away."),
    key(
        "starvationGuardMinutes",
        Shape::OrNull(&COUNT),
        "Runnable for longer than this: before all others of its priority; null for off.",
    ),
]);

const GATE: Shape = Shape::Keys(&[
    key("maxConcurrent", COUNT, "Calls at once."),
    key("maxRequestsPerWindow", COUNT, "Starts in any window."),
    key("rateWindowSecs", LENGTH_SECS, "Length of the window."),
    key("burst", COUNT, "Starts at once inside the window."),
    key(
        "defaultPriority",
        Shape::Word(&["critical", "high", "normal", "low"]),
        "For callers that name none.",
    ),
    key("prioritySpreadSecs", WAIT_SECS, "How much later each level stands."),
    key("initialBackoffSecs", LENGTH_SECS, "The block after the first 429."),
    key("maxBackoffSecs", LENGTH_SECS, "The longest block."),
    key("recoveryPeriodSecs", WAIT_SECS, "The ramp after a block."),
    key("maxInputTokensPerMinute", Shape::OrNull(&TOKENS), "Input tokens a minute; null for no window."),
    key("maxOutputTokensPerMinute", Shape::OrNull(&TOKENS), "Output tokens a minute; null for no window."),
    key(
        "windowMarginMs",
        Shape::OrNull(&Shape::Whole(0, 60_000)),
        "How much longer each window is kept; null for the default.",
    ),
    key("groups", Shape::Each(&GROUP, &["*"]), "Budgets of model groups under the common slots."),
]);

const GROUP: Shape = Shape::Keys(&[
    key("models", Shape::Texts("texts"), "Globs on the model's name."),
    key("maxRequestsPerWindow", COUNT, "Starts in any window."),
    key("rateWindowSecs", LENGTH_SECS, "Length of the window."),
    key("burst", COUNT, "Starts at once inside the window."),
    key("maxInputTokensPerMinute", TOKENS, "Input tokens a minute."),
    key("maxOutputTokensPerMinute", TOKENS, "Output tokens a minute."),
]);

impl Policy {
    /// The JSON Schema of a document, in the draft that most editors know.
    pub fn schema() -> Value {
        let form = |shape: Shape, about: &str| {
            let mut schema = shape.schema(Notation::Json);
            schema["description"] = about.into();
            schema
        };
        json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Rota policy",
            "anyOf": [
                form(DOCUMENT, "The whole policy: every queue, and the gate."),
                form(FLAT, "The flat form: the rules of queue runs alone."),
            ],
        })
    }
}
