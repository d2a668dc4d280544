//! The JSON Schema of a document, for editors: made from the table that checks documents.
//!
//! It says all that a schema can say well. Only reading finds what concerns two keys at once (a cap below its base, a
//! kind of loop that is not configured), bad names and a fourth decimal.

use serde_json::{Map, Value, json};

use super::{Key, Notation, Shape};

impl Shape {
    /// The schema of this shape. Keys have the document's own spelling; YAML may use the other ones too.
    pub fn schema(&self, notation: Notation) -> Value {
        match self {
            Self::Whole(from, to) if from == to => json!({ "const": from }),
            Self::Whole(from, to) => json!({ "type": "integer", "minimum": from, "maximum": to }),
            // No `multipleOf`: validators that divide floats refuse 1.1 as a multiple of a thousandth.
            Self::Decimal(from, to) => {
                json!({ "type": "number", "minimum": units(*from), "maximum": units(*to) })
            }
            Self::Truth => json!({ "type": "boolean" }),
            Self::Word(words) => json!({ "enum": words }),
            Self::Text | Self::TextAs(_) | Self::Name(_) => json!({ "type": "string" }),
            Self::Texts(_) => json!({ "type": "array", "items": { "type": "string" } }),
            Self::TextOrTexts(noun) => {
                json!({ "anyOf": [Self::Text.schema(notation), Self::Texts(noun).schema(notation)] })
            }
            Self::List(shape, _) => json!({ "type": "array", "items": shape.schema(notation) }),
            Self::OrNull(shape) => json!({ "anyOf": [shape.schema(notation), { "type": "null" }] }),
            Self::OrFalse(shape) => json!({ "anyOf": [shape.schema(notation), { "const": false }] }),
            Self::Each(shape, known) => {
                // The names are for completion; the pattern, which every name matches, is for checking.
                let names: Map<String, Value> =
                    known.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
                let each = json!({ "": shape.schema(notation) });
                json!({ "type": notation.object_type(), "properties": names, "patternProperties": each })
            }
            Self::Keys(keys) => object(keys, false.into(), notation),
            Self::KeysAndEach(keys, each) => object(keys, each.schema(notation), notation),
            Self::Policy(shape) => shape.schema(notation),
        }
    }
}

impl Notation {
    /// A section of YAML without a single key is `null`.
    fn object_type(self) -> Value {
        match self {
            Self::Json => json!("object"),
            Self::Yaml => json!(["object", "null"]),
        }
    }
}

fn object(keys: &[Key], rest: Value, notation: Notation) -> Value {
    let (mut properties, mut patterns) = (Map::new(), Map::new());
    for key in keys {
        let schema = property(key, notation);
        if notation == Notation::Yaml {
            let snake = snake_case(key.name);
            let mut others = vec![snake.replace('_', "-"), key.name.to_owned()];
            others.retain(|other| *other != snake);
            others.dedup();
            if !others.is_empty() {
                patterns.insert(format!("^({})$", others.join("|")), schema.clone());
            }
            properties.insert(snake, schema);
        } else {
            properties.insert(key.name.to_owned(), schema);
        }
    }
    let kind = notation.object_type();
    let mut object = json!({ "type": kind, "properties": properties, "additionalProperties": rest });
    if !patterns.is_empty() {
        object["patternProperties"] = patterns.into();
    }
    object
}

fn property(key: &Key, notation: Notation) -> Value {
    let mut schema = key.shape.schema(notation);
    schema["description"] = key.about.into();
    if let Some(default) = key.default {
        schema["default"] = serde_json::from_str(default).unwrap_or_default();
    }
    schema
}

/// camelCase in snake_case.
fn snake_case(key: &str) -> String {
    let mut snake = String::with_capacity(key.len() + 4);
    for character in key.chars() {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

/// Thousandths as a number of JSON.
fn units(thousandths: u64) -> Value {
    serde_json::from_str(&super::decimal(thousandths)).unwrap_or_default()
}
