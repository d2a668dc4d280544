//! Policies: what is written reads back as itself, what is not known is refused, and nothing panics.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use rota_core::backoff::Backoff;
use rota_core::policy::{
    BUILT_IN_QUEUES, Counts, FastFailures, GateGroup, GateLevel, GatePolicy, Policy, QueuePolicy, Reclaim,
    ScorePolicy,
};
use serde_json::{Value, json};

use crate::support::config;

const YEAR_MS: u64 = 365 * 24 * 3_600 * 1_000;

fn count() -> impl Strategy<Value = u32> {
    prop_oneof![1_u32..10, Just(1_000_000)]
}

fn a_backoff() -> impl Strategy<Value = Backoff> {
    (0..=YEAR_MS, 1_000_u64..=1_000_000, 0..=YEAR_MS).prop_map(|(one, factor_thousandths, other)| Backoff {
        base_ms: one.min(other),
        factor_thousandths,
        cap_ms: one.max(other),
    })
}

/// A score always keeps the built-in kinds: a document can change them, not take them away.
fn a_score() -> impl Strategy<Value = ScorePolicy> {
    let points = || 0_i64..=1_000_000;
    let base = btree_map(select(vec!["plan", "ralph", "mine", "ü.x"]), points(), 0..4);
    (base, [points(), points(), points(), points(), points(), points()], of(count())).prop_map(
        |(base, points, starvation_guard_minutes)| {
            let mut score = ScorePolicy::default();
            score.base.extend(base.into_iter().map(|(kind, points)| (kind.to_owned(), points)));
            ScorePolicy {
                base: score.base,
                base_other: points[0],
                age_boost_per_minute: points[1],
                age_boost_max: points[2],
                depth_boost_per_level: points[3],
                retry_penalty_per_iteration: points[4],
                retry_penalty_max: points[5],
                starvation_guard_minutes,
            }
        },
    )
}

fn a_queue() -> impl Strategy<Value = QueuePolicy> {
    let kinds = btree_map("[a-z_-]{0,6}", count(), 0..3);
    let limits = (of(count()), kinds, of(count()), 1..=YEAR_MS, any::<u32>());
    let fast = (1_u32..100, 1_u64..1_000, 1_000_u64..1_000_000)
        .prop_map(|(after, base_ms, cap_ms)| FastFailures { after, base_ms, cap_ms });
    let rules = (
        any::<bool>(),
        any::<(bool, bool, bool, bool)>(),
        any::<(bool, bool)>(),
        of(a_backoff()),
        of(a_score()),
        of(fast),
    );
    (limits, rules).prop_map(
        |((max_concurrent, per_kind, max_attempts, lease_ttl_ms, default_priority), rules)| {
            let (auto, truths, (failed, lost), backoff, score, fast_failures) = rules;
            let (require_lease, require_holder, require_commit, agents_may_create) = truths;
            // Where nothing counts, limits on what is counted would have no effect.
            let counts_any = failed || lost;
            QueuePolicy {
                max_concurrent,
                per_kind,
                max_attempts: max_attempts.filter(|_| counts_any),
                lease_ttl_ms,
                reclaim: if auto { Reclaim::Auto } else { Reclaim::Explicit },
                require_lease,
                require_holder,
                require_commit,
                agents_may_create,
                backoff: backoff.filter(|_| counts_any),
                counts: Counts { failed, lost },
                default_priority,
                score,
                fast_failures,
            }
        },
    )
}

fn a_gate() -> impl Strategy<Value = GatePolicy> {
    let secs = || 1_u32..=31_536_000;
    let tokens = || of(1_u64..);
    let group = (vec(".{0,5}", 0..3), of(count()), of(secs()), of(count()), tokens(), tokens()).prop_map(
        |(models, max_requests_per_window, rate_window_secs, burst, input, output)| GateGroup {
            models,
            max_requests_per_window,
            rate_window_secs,
            burst,
            max_input_tokens_per_minute: input,
            max_output_tokens_per_minute: output,
        },
    );
    let numbers = (count(), count(), count(), secs(), secs(), secs(), secs(), secs());
    let rest = (
        select(GateLevel::ALL.to_vec()),
        tokens(),
        tokens(),
        of(0_u32..=60_000),
        btree_map(".{0,5}", group, 0..3),
    );
    (numbers, rest).prop_map(|((slots, window, burst, secs, spread, one, other, recovery), rest)| {
        let (default_priority, input, output, window_margin_ms, groups) = rest;
        GatePolicy {
            max_concurrent: slots,
            max_requests_per_window: window,
            rate_window_secs: secs,
            burst,
            default_priority,
            priority_spread_secs: spread,
            initial_backoff_secs: one.min(other),
            max_backoff_secs: one.max(other),
            recovery_period_secs: recovery,
            max_input_tokens_per_minute: input,
            max_output_tokens_per_minute: output,
            window_margin_ms,
            groups,
        }
    })
}

pub fn a_policy() -> impl Strategy<Value = Policy> {
    let own = btree_map("[a-z][a-z_-]{0,6}", a_queue(), 0..3);
    (vec(a_queue(), BUILT_IN_QUEUES.len()), own, a_gate()).prop_map(|(built_in, own, gate)| {
        let mut queues = own;
        queues.extend(BUILT_IN_QUEUES.iter().map(|name| (*name).to_owned()).zip(built_in));
        // A user's own queue with a score starts from that of `tasks`, kinds included.
        let tasks = queues["tasks"].score.as_ref().map_or(BTreeMap::new(), |score| score.base.clone());
        for (name, queue) in &mut queues {
            let own = !BUILT_IN_QUEUES.contains(&name.as_str());
            if let Some(score) = queue.score.as_mut().filter(|_| own) {
                score.base.extend(tasks.clone());
            }
        }
        Policy { queues, gate }
    })
}

/// A document as a person writes it: some queues, some keys, sometimes `null` for none.
fn a_document() -> impl Strategy<Value = Value> {
    let values = [
        ("maxConcurrent", vec![json!(4), Value::Null]),
        ("perKind", vec![json!({}), json!({"plan": 2})]),
        ("maxAttempts", vec![json!(2), Value::Null]),
        ("leaseTtlMs", vec![json!(1), json!(60_000)]),
        ("reclaim", vec![json!("auto"), json!("explicit")]),
        ("requireLease", vec![json!(true), json!(false)]),
        ("backoff", vec![json!({"baseMs": 5, "factor": 1.25, "capMs": 50}), Value::Null]),
        (
            "counts",
            vec![json!({"failed": false}), json!({"lost": false}), json!({"failed": false, "lost": false})],
        ),
        ("defaultPriority", vec![json!(0), json!(2), json!(100)]),
        ("score", vec![json!({}), json!({"base": {"mine": 3}, "starvationGuardMinutes": null}), Value::Null]),
    ];
    let key = select(values.to_vec()).prop_flat_map(|(key, values)| (Just(key.to_owned()), select(values)));
    let queue = vec(key, 0..5).prop_map(|keys| Value::Object(keys.into_iter().collect()));
    let name = select(vec!["tasks", "runs", "loops", "issues", "mine", "other"]);
    btree_map(name, queue, 0..5).prop_map(|queues| json!({ "queues": queues }))
}

/// Any JSON, with keys that are often known ones.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0_i64..5).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    let known = [
        "queues",
        "gate",
        "schemaVersion",
        "basedOn",
        "tasks",
        "runs",
        "mine",
        "maxConcurrent",
        "per_kind",
        "max-attempts",
        "leaseTtlMs",
        "reclaim",
        "backoff",
        "baseMs",
        "factor",
        "capMs",
        "counts",
        "failed",
        "score",
        "base",
        "groups",
        "models",
        "burst",
        "maxBackoffSecs",
        "starvationGuardMinutes",
    ];
    let key = prop_oneof![4 => select(known.to_vec()).prop_map(str::to_owned), 1 => ".{0,8}"];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            1 => vec(inner.clone(), 0..4).prop_map(Value::from),
            5 => vec((key.clone(), inner), 0..6).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Every object of a written policy whose keys are fixed, as JSON pointers.
pub fn closed_objects(document: &Value) -> Vec<String> {
    let mut found = vec![String::new(), "/gate".to_owned()];
    let queues = document["queues"].as_object().unwrap();
    for (name, queue) in queues {
        let path = format!("/queues/{name}");
        for part in ["backoff", "counts", "score"] {
            found.extend(queue[part].is_object().then(|| format!("{path}/{part}")));
        }
        found.push(path);
    }
    found
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn what_is_written_reads_back(policy in a_policy()) {
        let written = policy.to_json();
        prop_assert_eq!(Policy::parse(written.as_str()), Ok(policy), "{}", written.as_str());
    }

    /// The canonical form is one: writing what was read from it gives the same bytes, so the version is stable.
    #[test]
    fn what_is_read_writes_back(document in a_document()) {
        if let Ok(policy) = Policy::parse(&document.to_string()) {
            let written = policy.to_json();
            let again = Policy::parse(written.as_str());
            prop_assert_eq!(again.as_ref(), Ok(&policy), "{} {}", document, written.as_str());
            prop_assert_eq!(again.map(|policy| policy.to_json()), Ok(written));
        }
    }

    #[test]
    fn any_json_is_read_or_refused(document in any_json(), text in ".{0,40}") {
        if let Ok(policy) = Policy::parse(&document.to_string()) {
            let written = policy.to_json();
            prop_assert_eq!(Policy::parse(written.as_str()), Ok(policy), "{}", written.as_str());
        }
        drop(Policy::parse(&text));
    }

    /// Wherever the keys are fixed, one more key is refused, and named with its path.
    #[test]
    fn an_unknown_key_is_always_refused(policy in a_policy(), pick: prop::sample::Index, key in "[a-zA-Z_.-]{1,12}") {
        let mut document: Value = serde_json::from_str(policy.to_json().as_str()).unwrap();
        let places = closed_objects(&document);
        let place = pick.get(&places);
        let object = document.pointer_mut(place).and_then(Value::as_object_mut).unwrap();
        prop_assume!(!object.contains_key(&key) && !KNOWN.contains(&key.as_str()));
        object.insert(key.clone(), json!(1));
        let refused = Policy::parse(&document.to_string()).unwrap_err();
        let path = format!("{place}/{key}")[1..].replace('/', ".");
        prop_assert_eq!(&refused.path, &path);
        prop_assert!(refused.problem.starts_with("unknown key"), "{}", refused);
    }
}

/// Keys that may be absent from a written policy, and would be known somewhere.
const KNOWN: [&str; 12] = [
    "basedOn",
    "perKind",
    "maxAttempts",
    "maxConcurrent",
    "backoff",
    "counts",
    "score",
    "groups",
    "defaultPriority",
    "windowMarginMs",
    "maxInputTokensPerMinute",
    "maxOutputTokensPerMinute",
];

#[test]
fn keys_that_only_look_known_are_refused() {
    for key in [
        "maxConcurrent_",
        "max__concurrent",
        "max-_concurrent",
        "_maxConcurrent",
        "maxconcurrent",
        "MaxConcurrent",
    ] {
        let refused = Policy::parse(&format!(r#"{{"queues":{{"tasks":{{"{key}":4}}}}}}"#)).unwrap_err();
        assert_eq!(refused.path, format!("queues.tasks.{key}"));
        assert!(refused.problem.starts_with("unknown key, did you mean 'maxConcurrent'?"), "{refused}");
    }
}

/// DESIGN 5: a key that would have no effect is refused; a default that would have none is dropped.
#[test]
fn limits_on_what_is_not_counted() {
    let nothing_counts = r#""counts":{"failed":false,"lost":false}"#;
    for (queue, wanted) in [
        (
            r#""maxAttempts":2"#,
            "queues.runs.maxAttempts: has no effect, because counts.failed and counts.lost are both false",
        ),
        (
            r#""backoff":{"baseMs":1}"#,
            "queues.runs.backoff: has no effect, because counts.failed and counts.lost are both false",
        ),
    ] {
        let document = format!(r#"{{"queues":{{"runs":{{{queue},{nothing_counts}}}}}}}"#);
        assert_eq!(Policy::parse(&document).unwrap_err().to_string(), wanted);
    }
    let policy = Policy::parse(&format!(r#"{{"queues":{{"runs":{{{nothing_counts}}}}}}}"#)).unwrap();
    assert_eq!((policy.queue("runs").max_attempts, policy.queue("runs").backoff), (None, None));
    assert_eq!(Policy::parse(policy.to_json().as_str()), Ok(policy));
}

/// Naming one kind's base leaves the others as they were.
#[test]
fn a_score_changes_only_the_kinds_it_names() {
    let document = r#"{"queues":{"loops":{"score":{"base":{"mine":3,"plan":41}}}}}"#;
    let policy = Policy::parse(document).unwrap();
    let base = &policy.queue("loops").score.as_ref().unwrap().base;
    let shown: Vec<String> = base.iter().map(|(kind, points)| format!("{kind} {points}")).collect();
    assert_eq!(shown, ["mine 3", "phase 80", "plan 41", "ralph 100", "spec 60"]);
}
