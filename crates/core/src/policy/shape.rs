//! What a policy document may say: every key with its range, as one table. Checking a document and the JSON Schema
//! that editors use are both made from it, so the two cannot differ.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{BUILT_IN_QUEUES, PolicyError};
use crate::text;

/// What a value must be.
pub(super) enum Shape {
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// A decimal from 1 to 1,000 with at most three decimals; read as thousandths.
    Decimal,
    /// `true` or `false`.
    Truth,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any text.
    Text,
    /// A list of texts.
    Texts,
    /// `null` too, which takes a default away.
    OrNull(&'static Shape),
    /// An object whose names are the user's own; some are well known.
    Each(&'static Shape, &'static [&'static str]),
    /// An object with exactly these keys, each of which may be absent.
    Keys(&'static [Key]),
}

/// One key of an object.
pub(super) struct Key {
    pub name: &'static str,
    pub shape: Shape,
    pub about: &'static str,
}

const fn key(name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { name, shape, about }
}

const YEAR_SECS: u64 = 365 * 24 * 3_600;
const YEAR_MS: u64 = YEAR_SECS * 1_000;
const COUNT: Shape = Shape::Whole(1, 1_000_000);
const POINTS: Shape = Shape::Whole(0, 1_000_000);
const LENGTH_MS: Shape = Shape::Whole(1, YEAR_MS);
const WAIT_MS: Shape = Shape::Whole(0, YEAR_MS);
const LENGTH_SECS: Shape = Shape::Whole(1, YEAR_SECS);
const WAIT_SECS: Shape = Shape::Whole(0, YEAR_SECS);
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
    key("queues", Shape::Each(&QUEUE, &BUILT_IN_QUEUES), "The rules of each queue."),
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
    key("backoffFactor", Shape::Decimal, "What each further wait is multiplied by."),
    key("backoffCapMs", WAIT_MS, "The longest wait."),
]);

pub(super) const QUEUE: Shape = Shape::Keys(&[
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
    key("factor", Shape::Decimal, "What each further wait is multiplied by."),
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
    key("models", Shape::Texts, "Globs on the model's name."),
    key("maxRequestsPerWindow", COUNT, "Starts in any window."),
    key("rateWindowSecs", LENGTH_SECS, "Length of the window."),
    key("burst", COUNT, "Starts at once inside the window."),
    key("maxInputTokensPerMinute", TOKENS, "Input tokens a minute."),
    key("maxOutputTokensPerMinute", TOKENS, "Output tokens a minute."),
]);

impl Shape {
    /// The value with its keys in the one form that is written, or where it is wrong.
    pub fn read(&self, path: &str, value: &Value) -> Result<Value, PolicyError> {
        let plain = |fits: bool| if fits { Ok(value.clone()) } else { Err(self.refuse(path, value)) };
        match self {
            Self::Whole(from, to) => {
                plain(value.as_u64().is_some_and(|number| (*from..=*to).contains(&number)))
            }
            Self::Decimal => thousandths(value).map(Value::from).ok_or_else(|| self.refuse(path, value)),
            Self::Truth => plain(value.is_boolean()),
            Self::Word(words) => plain(value.as_str().is_some_and(|word| words.contains(&word))),
            Self::Text => plain(value.is_string()),
            Self::Texts => {
                plain(value.as_array().is_some_and(|list| list.iter().all(serde_json::Value::is_string)))
            }
            Self::OrNull(shape) => {
                if value.is_null() {
                    Ok(Value::Null)
                } else {
                    shape.read(path, value)
                }
            }
            Self::Each(shape, _) => {
                let entry = |(name, value): (&String, &Value)| {
                    Ok((name.clone(), shape.read(&below(path, name), value)?))
                };
                self.object(path, value)?
                    .iter()
                    .map(entry)
                    .collect::<Result<Map<_, _>, _>>()
                    .map(Value::Object)
            }
            Self::Keys(keys) => read_keys(path, keys, self.object(path, value)?).map(Value::Object),
        }
    }

    fn object<'a>(&self, path: &str, value: &'a Value) -> Result<&'a Map<String, Value>, PolicyError> {
        value.as_object().ok_or_else(|| self.refuse(path, value))
    }

    fn refuse(&self, path: &str, value: &Value) -> PolicyError {
        let given: String = match value {
            Value::Array(_) => "an array".into(),
            Value::Object(_) => "an object".into(),
            plain => text::escaped(&plain.to_string()).chars().take(80).collect(),
        };
        let path = if path.is_empty() { "policy" } else { path };
        PolicyError { path: path.to_owned(), problem: format!("expected {}, got {given}", self.wanted()) }
    }

    /// What is allowed, in words.
    fn wanted(&self) -> String {
        match self {
            Self::Whole(from, to) if from == to => from.to_string(),
            Self::Whole(from, to) => format!("a whole number from {from} to {to}"),
            Self::Decimal => "a number from 1 to 1000 with at most three decimals".into(),
            Self::Truth => "true or false".into(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Text => "a text".into(),
            Self::Texts => "a list of texts".into(),
            Self::OrNull(shape) => shape.wanted(),
            Self::Each(..) | Self::Keys(_) => "an object".into(),
        }
    }
}

fn read_keys(
    path: &str,
    keys: &[Key],
    object: &Map<String, Value>,
) -> Result<Map<String, Value>, PolicyError> {
    let mut given: BTreeMap<String, (&str, &Value)> = BTreeMap::new();
    for (name, value) in object {
        let camel = camel_case(name);
        if given.insert(camel.clone(), (name, value)).is_some() {
            return Err(PolicyError { path: below(path, &camel), problem: "given twice".into() });
        }
    }
    let known = || keys.iter().map(|key| key.name);
    if let Some((camel, (name, _))) = given.iter().find(|(camel, _)| known().all(|name| name != *camel)) {
        let hint =
            text::nearest(camel, known()).map_or(String::new(), |word| format!(", did you mean '{word}'?"));
        let known = known().collect::<Vec<_>>().join(", ");
        let problem = format!("unknown key{hint} (known here: {known})");
        return Err(PolicyError { path: below(path, name), problem });
    }
    let mut read = Map::new();
    for key in keys {
        if let Some((_, value)) = given.get(key.name) {
            read.insert(key.name.to_owned(), key.shape.read(&below(path, key.name), value)?);
        }
    }
    Ok(read)
}

/// The dotted path of a key.
pub(super) fn below(path: &str, name: &str) -> String {
    let name = text::escaped(name);
    if path.is_empty() { name.into_owned() } else { format!("{path}.{name}") }
}

/// A key with a separator too many is nobody's, and stays as it is.
pub(super) fn camel_case(key: &str) -> String {
    if key.split(['_', '-']).any(str::is_empty) {
        return key.to_owned();
    }
    let mut camel = String::with_capacity(key.len());
    let mut upper = false;
    for character in key.chars() {
        if matches!(character, '_' | '-') {
            upper = true;
        } else {
            camel.push(if upper { character.to_ascii_uppercase() } else { character });
            upper = false;
        }
    }
    camel
}

/// Read from the digits: a float would round.
fn thousandths(value: &Value) -> Option<u64> {
    let Value::Number(number) = value else { return None };
    let digits = number.to_string();
    let (whole, decimals) = digits.split_once('.').unwrap_or((&digits, ""));
    let decimals = decimals.trim_end_matches('0');
    if decimals.len() > 3 {
        return None;
    }
    let fraction: u64 = format!("{decimals:0<3}").parse().ok()?;
    let thousandths = whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(fraction)?;
    (1_000..=1_000_000).contains(&thousandths).then_some(thousandths)
}
