//! The description of the API, made from the types that inputs are read into and payloads are written from.

use rota_core::limits;
use rota_gateway::panel::Panel;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::GATE;
use super::operations::{Operation, PREFIX};
use super::request::{SURROUNDINGS, takes};
use crate::listen::Told;

/// What a verb may answer instead of its payload.
const PROBLEMS: [(&str, &str); 11] = [
    ("400", "What was sent cannot be read, or is refused for what it says."),
    ("401", "No token, or a wrong one."),
    ("403", "Sent to another host or by another site, or the lease does not allow it."),
    ("404", "Not found."),
    ("405", "Not by this method."),
    ("408", "The body took too long."),
    ("409", "Not possible as things stand."),
    ("413", "The body is too long."),
    ("415", "The body is not JSON."),
    ("500", "The store failed."),
    ("503", "May pass by itself: try again."),
];

/// The document.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Told>().to_value();
    let mut paths: Map<String, Value> = Map::new();
    for operation in Operation::all() {
        let described = described(operation, &mut generator);
        let path = paths.entry(format!("{PREFIX}{}", operation.route.path)).or_insert_with(|| json!({}));
        path[operation.route.method.word().to_ascii_lowercase()] = described;
    }
    paths.insert(format!("{PREFIX}/events"), events());
    let panel = generator.subschema_for::<Panel>().to_value();
    paths.insert(GATE.to_owned(), gate(&panel));
    let responses: Map<String, Value> =
        PROBLEMS.iter().map(|(code, about)| ((*code).to_owned(), refused(about, &problem))).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Rota",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Whose turn is it, why (not) this one, may it call the model now.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "parameters": surroundings(),
            "responses": responses,
            "schemas": generator.take_definitions(true),
        },
    })
}

fn surroundings() -> Map<String, Value> {
    let parameter = |(name, about): (&str, &str)| {
        let schema = call_option(name);
        (name.to_owned(), json!({"name": name, "in": "query", "description": about, "schema": schema}))
    };
    SURROUNDINGS.into_iter().map(parameter).collect()
}

fn refused(about: &str, problem: &Value) -> Value {
    json!({"description": about, "content": {"application/problem+json": {"schema": problem}}})
}

fn responses(kind: &str, schema: Value) -> Map<String, Value> {
    let mut responses = Map::new();
    responses.insert("200".into(), json!({"description": "Done.", "content": {kind: {"schema": schema}}}));
    for (code, _) in PROBLEMS {
        responses.insert(code.into(), json!({"$ref": format!("#/components/responses/{code}")}));
    }
    responses
}

fn described(operation: &Operation, generator: &mut schemars::SchemaGenerator) -> Value {
    let route = operation.route;
    let has_no_body = route.method.has_no_body();
    let named: Vec<&str> =
        route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
    let bounded = |name: &str, is_in_address: bool| bounded(&operation.fields[name], is_in_address);
    let in_path =
        |name: &&str| json!({"name": name, "in": "path", "required": true, "schema": bounded(name, true)});
    let mut parameters: Vec<Value> = named.iter().map(in_path).collect();
    let required = &operation.required;
    let others = operation.fields.keys().filter(|name| !named.contains(&name.as_str()));
    let others: Map<String, Value> = others.map(|name| (name.clone(), bounded(name, has_no_body))).collect();
    let mut described = json!({
        "operationId": route.name.replace([' ', '-'], "_"),
        "summary": operation.about,
        "tags": [route.name.split(' ').next()],
    });
    if has_no_body {
        parameters.extend(others.iter().map(|(name, schema)| {
            let required = required.iter().any(|wanted| wanted == name);
            json!({"name": name, "in": "query", "required": required, "schema": schema})
        }));
    } else {
        let required: Vec<&String> = required.iter().filter(|name| others.contains_key(*name)).collect();
        let mut schema = json!({
            "type": "object",
            "properties": others,
            "required": required,
            "additionalProperties": false,
        });
        let mut is_needed = !required.is_empty();
        if let Some(alternatives) = &operation.alternatives {
            // A body may be left out only if an empty one would do.
            let needs_a_field = |alternative: &Value| alternative.get("required").is_some();
            is_needed |= alternatives.as_array().is_some_and(|all| all.iter().all(needs_a_field));
            schema["anyOf"] = alternatives.clone();
        }
        described["requestBody"] =
            json!({"required": is_needed, "content": {"application/json": {"schema": schema}}});
    }
    let own_lease = operation.names_lease.then(own_lease);
    parameters.extend(SURROUNDINGS.map(|(name, about)| match &own_lease {
        Some(schema) if name == "leaseId" => {
            json!({"name": name, "in": "query", "description": about, "schema": schema})
        }
        _ => json!({"$ref": format!("#/components/parameters/{name}")}),
    }));
    let payload = (operation.payload)(generator).to_value();
    described["parameters"] = parameters.into();
    described["responses"] = responses("application/json", versioned(&payload)).into();
    described
}

fn versioned(payload: &Value) -> Value {
    let version = json!({"type": "object", "properties": {"schemaVersion": {"const": 1}}, "required": ["schemaVersion"]});
    json!({"allOf": [version, payload]})
}

fn gate(panel: &Value) -> Value {
    json!({"get": {
        "operationId": "gate_status",
        "summary": "The gates, as they are now; not found where no gateway runs",
        "tags": ["gate"],
        "responses": responses("application/json", versioned(panel)),
    }})
}

/// The schema of a field. In an address nothing can be null, and every number has a greatest value.
fn bounded(schema: &Value, is_in_address: bool) -> Value {
    let mut schema = if schema.is_object() { schema.clone() } else { json!({}) };
    if let Some(kinds) = schema.get("type").and_then(Value::as_array).filter(|_| is_in_address) {
        schema["type"] = kinds.iter().find(|kind| *kind != "null").cloned().unwrap_or_default();
    }
    if takes(&schema, "integer") && schema.get("maximum").is_none() {
        let is_short = schema.get("format").and_then(Value::as_str) == Some("uint32");
        schema["maximum"] = if is_short { u32::MAX.into() } else { u64::MAX.into() };
    }
    schema
}

/// The schema of an option that every call takes in its query.
fn call_option(name: &str) -> Value {
    const NAME_OR_NONE: &str = r"^([^\-\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*)?$";
    match name {
        "now" => json!({"type": "string", "format": "date-time"}),
        "leaseId" | "ambientLease" => json!({"type": "string", "pattern": r"^[^\u0000]*$"}),
        _ => json!({"type": "string", "pattern": NAME_OR_NONE, "maxLength": limits::NAME_BYTES}),
    }
}

/// The schema of `leaseId` where a verb speaks for it: a lease, or nothing.
fn own_lease() -> Value {
    let pattern = format!("^$|{}", rota_verbs::input::LEASE);
    json!({"type": "string", "pattern": pattern, "maxLength": limits::ID_BYTES})
}

fn events() -> Value {
    json!({"get": {
        "operationId": "events",
        "summary": "Follow the journal as server-sent events",
        "description": "Every event carries an id; a client that comes back with Last-Event-ID goes on behind it, and \
            misses nothing and sees nothing twice. Never ends by itself.",
        "tags": ["log"],
        "parameters": [
            {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}},
            {"name": "after", "in": "query", "description": "The same, for a first request.", "schema": {"type": "string"}},
            {"name": "task", "in": "query", "description": "Only this task's.", "schema": {"type": "string"}},
            {"name": "scope", "in": "query", "description": "Of this scope.", "schema": {"type": "string"}},
        ],
        "responses": responses("text/event-stream", json!({"type": "string"})),
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page that programs are written against is what the server says of itself.
    #[test]
    fn the_page_is_what_the_types_say() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let wanted = format!("{:#}\n", document());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &wanted).unwrap_or_else(|error| panic!("{error}"));
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == wanted,
            "docs/openapi.json is not what the types say: UPDATE_DOCS=1 cargo test -p rota-serve"
        );
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            match value {
                Value::Object(map) => {
                    if let Some(path) = map.get("$ref").and_then(Value::as_str) {
                        let found = path.strip_prefix('#').and_then(|path| document.pointer(path));
                        assert!(found.is_some(), "{path}");
                    }
                    open.extend(map.values());
                }
                Value::Array(list) => open.extend(list),
                _ => {}
            }
        }
    }
}
