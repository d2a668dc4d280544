//! The JSON Schema of a policy document, for editors: made from the table that checks documents.
//!
//! It describes the form that is written (camelCase) and says all that a schema can say well. What concerns two keys at
//! once (a cap below its base, a limit on what is not counted), names and a fourth decimal only reading finds.

use serde_json::{Map, Value, json};

use super::Policy;
use super::shape::{DOCUMENT, FLAT, Key, Shape};

impl Policy {
    /// The schema, in the draft that most editors know.
    pub fn schema() -> Value {
        json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Rota policy",
            "anyOf": [
                with(schema(&DOCUMENT), "The whole policy: every queue, and the gate."),
                with(schema(&FLAT), "The flat form: the rules of queue runs alone."),
            ],
        })
    }
}

fn with(mut schema: Value, about: &str) -> Value {
    if let Value::Object(object) = &mut schema {
        object.insert("description".to_owned(), about.into());
    }
    schema
}

fn schema(shape: &Shape) -> Value {
    match shape {
        Shape::Whole(from, to) if from == to => json!({ "const": from }),
        Shape::Whole(from, to) => json!({ "type": "integer", "minimum": from, "maximum": to }),
        // No `multipleOf`: validators that divide floats refuse 1.1 as a multiple of a thousandth.
        Shape::Decimal => json!({ "type": "number", "minimum": 1, "maximum": 1000 }),
        Shape::Truth => json!({ "type": "boolean" }),
        Shape::Word(words) => json!({ "enum": words }),
        Shape::Text => json!({ "type": "string" }),
        Shape::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Shape::OrNull(shape) => json!({ "anyOf": [schema(shape), { "type": "null" }] }),
        Shape::Each(shape, known) => {
            // The names are for completion; the pattern, which every name matches, is for checking.
            let names: Map<String, Value> =
                known.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
            json!({ "type": "object", "properties": names, "patternProperties": { "": schema(shape) } })
        }
        Shape::Keys(keys) => {
            let property = |key: &Key| (key.name.to_owned(), with(schema(&key.shape), key.about));
            let properties: Map<String, Value> = keys.iter().map(property).collect();
            json!({ "type": "object", "properties": properties, "additionalProperties": false })
        }
    }
}
