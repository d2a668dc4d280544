//! What a field takes beyond its type, for the description: whoever reads it knows beforehand what will be refused. The names
//! of fields mean the same in every verb, but for those that are named with theirs.

use rota_core::{Front, Status, limits};
use rota_verbs::verb::Route;
use serde_json::{Value, json};

/// No control characters, and no dash in front.
const NAME: &str = r"^[^\-\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$";
/// The same, or nothing.
const NAME_OR_NONE: &str = r"^([^\-\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*)?$";
/// A task and the number of a grant.
const LEASE: &str = r"^lease-[^\-\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*-[1-9][0-9]{0,17}$";
/// A path that stays below its folder.
const PATH: &str = r"^[A-Za-z0-9_]+([./\-][A-Za-z0-9_]+)*$";
const CURSOR: &str = "^[0-9]{1,18}-[0-9]{1,18}$";
const SOMETHING: &str = r"\S";
/// Any text that both stores can keep.
const WITHOUT_NUL: &str = r"^[^\u0000]*$";

/// The schema of a field of a verb's input, with its bounds. In an address nothing can be null.
pub fn bounded(verb: &str, field: &str, schema: &Value, is_in_address: bool) -> Value {
    let mut schema = if schema.is_object() { schema.clone() } else { json!({}) };
    if let Some(kinds) = schema.get("type").and_then(Value::as_array).filter(|_| is_in_address) {
        schema["type"] = kinds.iter().find(|kind| *kind != "null").cloned().unwrap_or_default();
    }
    if takes(&schema, "integer") {
        schema["maximum"] = greatest(verb, field, schema.get("format").and_then(Value::as_str)).into();
    }
    if (verb, field) == ("task page", "limit") {
        schema["minimum"] = 1.into();
    }
    for (key, bound) in text_bounds(verb, field, takes(&schema, "string")) {
        schema[key] = bound;
    }
    if takes(&schema, "array") {
        let item = bounded(verb, item_of(field), schema.get("items").unwrap_or(&Value::Null), false);
        schema["items"] = item;
    }
    schema
}

/// Alternatives that a body must satisfy one of, where its fields depend on each other.
pub fn together(verb: &str) -> Option<Value> {
    let one_of = |fields: [&str; 2], schema: Value| {
        let alternatives = fields.map(|field| json!({"required": [field], "properties": {field: schema}}));
        Some(json!(alternatives))
    };
    match verb {
        "issue edit" => one_of(["title", "body"], json!({"type": "string"})),
        "issue label" => one_of(["add", "remove"], json!({"type": "array", "minItems": 1})),
        "task done" => {
            let absent = json!({"type": "null"});
            let none = json!({"lease": absent, "category": absent, "specs": absent, "queue": absent});
            let next = json!({"required": ["next"], "properties": {"next": {"const": true}}});
            Some(json!([next, {"properties": none}]))
        }
        _ => None,
    }
}

/// What every operation takes in its query. A lease is looked at only by who settles it, or adds below its task.
pub fn surrounding(name: &str) -> Value {
    match name {
        "now" => json!({"type": "string", "format": "date-time"}),
        "leaseId" | "ambientLease" => json!({"type": "string", "pattern": WITHOUT_NUL}),
        _ => json!({"type": "string", "pattern": NAME_OR_NONE, "maxLength": limits::NAME_BYTES}),
    }
}

/// What `leaseId` takes where it is looked at: a lease, or nothing.
pub fn own_lease(route: &Route) -> Option<Value> {
    let is_looked_at = matches!(
        route.name,
        "task renew" | "task done" | "task fail" | "task release" | "task park" | "task update" | "loop add"
    );
    let pattern = format!("^$|{LEASE}");
    is_looked_at.then(|| json!({"type": "string", "pattern": pattern, "maxLength": limits::ID_BYTES}))
}

/// Whether a schema takes values of a type.
pub fn takes(schema: &Value, word: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == word,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == word),
        _ => false,
    }
}

fn item_of(field: &str) -> &str {
    match field {
        "deps" => "id",
        "labels" | "add" | "remove" => "label",
        other => other,
    }
}

fn greatest(verb: &str, field: &str, format: Option<&str>) -> u64 {
    match (verb, field) {
        ("task page", "limit") => 1_000,
        ("task page", "after") => i64::MAX.unsigned_abs(),
        _ if format == Some("uint32") => u32::MAX.into(),
        _ => u64::MAX,
    }
}

fn text_bounds(verb: &str, field: &str, is_text: bool) -> Vec<(&'static str, Value)> {
    let like = |pattern: &str, bytes: usize| vec![("pattern", pattern.into()), ("maxLength", bytes.into())];
    let words = |front: Front| Status::ALL.map(|status| status.word_for(front, false)).join("|");
    match (verb, field) {
        ("task done", "result") => {
            let commit = json!({"type": ["string", "number", "boolean", "object", "array"]});
            vec![
                ("type", json!(["object", "null"])),
                ("required", json!(["commit"])),
                ("properties", json!({"commit": commit})),
            ]
        }
        ("sched policy set", _) => vec![("type", json!(["number", "null"]))],
        _ if !is_text => Vec::new(),
        ("task list" | "task delete-many", "status") => {
            let words = words(Front::Task);
            vec![("pattern", format!("^({words})(,({words}))*$").into())]
        }
        ("loop list", "status") => {
            let words = words(Front::Loop);
            vec![("pattern", format!("^({words})(,({words}))*$").into())]
        }
        ("queue list", "status") => {
            vec![("pattern", format!("^(ready|{})$", words(Front::Sched)).into())]
        }
        ("task update", "status") => vec![("pattern", format!("^({})$", words(Front::Task)).into())],
        (verb, "number") if verb.starts_with("issue ") => {
            vec![("pattern", "^#?[1-9][0-9]{0,17}$".into())]
        }
        ("log follow", "after") => vec![("pattern", CURSOR.into())],
        ("task agent deregister", "id") => Vec::new(),
        ("queue add", "id") | ("loop add", "id" | "parent") => like(NAME_OR_NONE, limits::ID_BYTES),
        (_, "id" | "by" | "parent" | "task") => like(NAME, limits::ID_BYTES),
        (_, "lease") => like(LEASE, limits::ID_BYTES),
        ("loop add", "kind") | (_, "queue" | "label") => like(NAME, limits::NAME_BYTES),
        (_, "category" | "spec" | "ref" | "host" | "to" | "runId" | "app" | "workflow") => {
            like(NAME_OR_NONE, limits::NAME_BYTES)
        }
        (_, "triggeredBy") => like(PATH, limits::NAME_BYTES),
        ("loop add", "title") => like(r"^$|\S", limits::TITLE_BYTES),
        (_, "title") => like(SOMETHING, limits::TITLE_BYTES),
        ("issue comment", "body") => vec![("pattern", SOMETHING.into())],
        ("queue add", "repo" | "note") => like(WITHOUT_NUL, limits::TITLE_BYTES),
        ("task park", "reason") => vec![("minLength", 1.into())],
        _ => Vec::new(),
    }
}
