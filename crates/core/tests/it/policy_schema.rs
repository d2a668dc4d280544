//! The JSON Schema and the reader agree: judged by a validator that is not ours.

use boon::{Compiler, SchemaIndex, Schemas};
use proptest::prelude::*;
use rota_core::policy::Policy;
use serde_json::{Value, json};

use crate::policy::{a_policy, closed_objects};
use crate::support::config;

struct Judge {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Judge {
    fn new() -> Self {
        let mut schemas = Schemas::new();
        let mut compiler = Compiler::new();
        compiler.add_resource("rota.policy.schema.json", Policy::schema()).unwrap();
        let index = compiler.compile("rota.policy.schema.json", &mut schemas).unwrap();
        Self { schemas, index }
    }

    fn accepts(&self, document: &Value) -> bool {
        self.schemas.validate(document, self.index).is_ok()
    }
}

/// What a schema cannot say well, by the words of the refusal.
fn only_reading_finds(problem: &str) -> bool {
    ["expected at least ", "has no effect", "missing", "queue name ", "expected a number from 1 to 1000 "]
        .iter()
        .any(|words| problem.starts_with(words))
}

#[test]
fn the_schema_accepts_and_refuses_what_reading_does() {
    let judge = Judge::new();
    let default: Value = serde_json::from_str(Policy::default().to_json().as_str()).unwrap();
    for (document, accepted) in [
        (default, true),
        (json!({}), true),
        (json!({"$schema": "rota.policy.schema.json", "schemaVersion": 1, "basedOn": "0123"}), true),
        (json!({"queues": {"mine": {"perKind": {"a": 1}, "maxConcurrent": null, "backoff": null}}}), true),
        (json!({"maxConcurrent": 4, "maxAttempts": 5, "leaseTtlMs": 1, "backoffFactor": 1.5}), true),
        (json!({"maxConcurrent": 4, "queues": {}}), false),
        (json!([]), false),
        (json!({"schemaVersion": 2}), false),
        (json!({"queue": {}}), false),
        (json!({"queues": {"runs": {"maxConcurent": 1}}}), false),
        (json!({"queues": {"runs": {"maxConcurrent": 0}}}), false),
        (json!({"queues": {"runs": {"maxConcurrent": 1.5}}}), false),
        (json!({"queues": {"runs": {"maxConcurrent": "4"}}}), false),
        (json!({"queues": {"runs": {"maxConcurrent": 1_000_001}}}), false),
        (json!({"queues": {"runs": {"leaseTtlMs": -1}}}), false),
        (json!({"queues": {"runs": {"leaseTtlMs": 0}}}), false),
        (json!({"queues": {"runs": {"leaseTtlMs": null}}}), false),
        (json!({"queues": {"runs": {"backoff": {"factor": 0.5}}}}), false),
        (json!({"queues": {"runs": {"reclaim": "never"}}}), false),
        (json!({"queues": {"runs": {"requireLease": 1}}}), false),
        (json!({"queues": {"mine": {"score": {"base": {"x": -1}}}}}), false),
        (json!({"gate": {"burst": 0}}), false),
        (json!({"gate": {"defaultPriority": "urgent"}}), false),
        (json!({"gate": {"groups": {"g": {"models": "x"}}}}), false),
        (json!({"maxConcurrent": 0}), false),
        (json!({"maxConcurrent": 1, "backofFactor": 2}), false),
    ] {
        assert_eq!(judge.accepts(&document), accepted, "{document}");
        assert_eq!(Policy::parse(&document.to_string()).is_ok(), accepted, "{document}");
    }
}

/// Every key tells what it is for, so that an editor can.
#[test]
fn every_key_is_described() {
    fn undescribed(path: &str, value: &Value, found: &mut Vec<String>) {
        let Some(object) = value.as_object() else { return };
        if object.get("additionalProperties").is_some() {
            for (name, property) in object["properties"].as_object().unwrap() {
                let about = property["description"].as_str().unwrap_or_default();
                if !about.ends_with('.') {
                    found.push(format!("{path}.{name}"));
                }
            }
        }
        for (name, inner) in object {
            undescribed(&format!("{path}.{name}"), inner, found);
        }
    }
    let mut found = Vec::new();
    let schema = Policy::schema();
    schema["anyOf"].as_array().unwrap().iter().for_each(|form| undescribed("", form, &mut found));
    assert_eq!(found, Vec::<String>::new());
}

/// Values that are right in some place and wrong in most.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        Just(json!(1.5)),
        Just(json!("auto")),
        Just(json!("x")),
        Just(json!(["x"])),
        Just(json!({})),
        Just(json!({"x": 1})),
    ]
}

proptest! {
    #![proptest_config(config(300))]

    /// Whatever is written fits the schema; with one key changed the two still agree.
    #[test]
    fn the_schema_and_reading_agree(
        policy in a_policy(),
        place: prop::sample::Index,
        key: prop::sample::Index,
        value in odd_value(),
    ) {
        let judge = Judge::new();
        let mut document: Value = serde_json::from_str(policy.to_json().as_str()).unwrap();
        prop_assert!(judge.accepts(&document), "{}", document);
        let places = closed_objects(&document);
        let object = document.pointer_mut(place.get::<String>(&places)).and_then(Value::as_object_mut).unwrap();
        let keys: Vec<String> = object.keys().cloned().collect();
        prop_assume!(!keys.is_empty());
        object.insert(key.get(&keys).clone(), value);
        let read = Policy::parse(&document.to_string());
        let agreed = match &read {
            Err(error) if only_reading_finds(&error.problem) => true,
            read => judge.accepts(&document) == read.is_ok(),
        };
        prop_assert!(agreed, "{} {:?}", document, read);
    }
}
