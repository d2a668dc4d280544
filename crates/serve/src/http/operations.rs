//! The verbs as operations of the API: found by method and path, called with the text of their input.

use std::pin::Pin;
use std::sync::OnceLock;

use rota_verbs::table::visit_all;
use rota_verbs::verb::{Method, Route, Visitor};
use rota_verbs::{Context, Error, Payload, Verb};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};

/// Fields of an input, and what a path says of them.
pub type Named<'p> = Vec<(&'static str, &'p str)>;

/// What all verbs are below.
pub const PREFIX: &str = "/api/v1";

/// One verb.
pub struct Operation {
    /// Where it is found, and who may use it.
    pub route: Route,
    /// Its path, in parts.
    path: Vec<Part>,
    /// Its input's fields, as JSON Schemas.
    pub fields: Map<String, Value>,
    /// Reads its input, carries it out, and writes the payload.
    pub run: for<'a> fn(&'a Context, &'a str) -> Running<'a>,
    /// Describes its input.
    pub input: fn(&mut SchemaGenerator) -> Schema,
    /// Describes its payload.
    pub payload: fn(&mut SchemaGenerator) -> Schema,
}

/// An operation under way.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<String, Failure>> + Send + 'a>>;

/// One part of a path.
enum Part {
    /// As it is.
    Word(&'static str),
    /// The field of the input of this name.
    Name(&'static str),
}

/// Why an operation has no payload.
pub enum Failure {
    /// The input is not one.
    Input(serde_json::Error),
    /// The verb says why.
    Verb(Error),
}

impl Operation {
    /// Every operation.
    pub fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<Operation>> = OnceLock::new();
        ALL.get_or_init(|| {
            let mut list = Listed(Vec::new());
            visit_all(&mut list);
            list.0
        })
    }

    /// The operation at a path, with what its path names; else the methods by which something is there.
    pub fn find<'p>(
        method: &http::Method,
        path: &'p str,
    ) -> Result<(&'static Self, Named<'p>), Vec<&'static str>> {
        let parts: Vec<&str> = path.split('/').collect();
        let mut methods = Vec::new();
        for operation in Self::all() {
            if !operation.is_at(&parts) {
                continue;
            }
            if operation.has_method(method) {
                return Ok((operation, operation.named(&parts)));
            }
            methods.push(operation.route.method.word());
        }
        Err(methods)
    }

    /// Whether it is found at this path.
    fn is_at(&self, given: &[&str]) -> bool {
        let fits = |(given, wanted): (&&str, &Part)| match wanted {
            Part::Word(word) => word == given,
            Part::Name(_) => !given.is_empty(),
        };
        given.len() == self.path.len() && given.iter().zip(&self.path).all(fits)
    }

    /// The parts of its path that are named.
    fn named<'p>(&self, given: &[&'p str]) -> Named<'p> {
        let named = given.iter().zip(&self.path).filter_map(|(given, wanted)| match wanted {
            Part::Word(_) => None,
            Part::Name(name) => Some((*name, *given)),
        });
        named.collect()
    }

    /// The method as the request says it.
    pub fn has_method(&self, method: &http::Method) -> bool {
        self.route.method.word() == method.as_str()
    }

    /// Whether its input comes with the address alone.
    pub fn has_no_body(&self) -> bool {
        self.route.method.has_no_body()
    }

    /// Whether it changes nothing.
    pub fn reads(&self) -> bool {
        self.route.method == Method::Get
    }
}

impl Part {
    fn of(text: &'static str) -> Self {
        let name = text.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        name.map_or(Self::Word(text), Self::Name)
    }
}

struct Listed(Vec<Operation>);

impl Visitor for Listed {
    fn visit<V: Verb>(&mut self) {
        let schema = schemars::schema_for!(V);
        let fields = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        self.0.push(Operation {
            route: V::ROUTE,
            path: V::ROUTE.path.split('/').map(Part::of).collect(),
            fields,
            run: run::<V>,
            input: |generator| generator.subschema_for::<V>(),
            payload: |generator| generator.subschema_for::<V::Payload>(),
        });
    }
}

fn run<'a, V: Verb>(cx: &'a Context, input: &'a str) -> Running<'a> {
    Box::pin(async move {
        let input: V = serde_json::from_str(input).map_err(Failure::Input)?;
        let payload = input.run(cx).await.map_err(Failure::Verb)?;
        Ok(Payload::new(payload).to_text())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_operations_are_found_at_one_place() {
        let mut seen = BTreeSet::new();
        for Operation { route, .. } in Operation::all() {
            let shape: Vec<&str> =
                route.path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part }).collect();
            assert!(seen.insert((route.method.word(), shape.join("/"))), "{}", route.name);
            assert!(seen.insert(("name", route.name.to_owned())), "{}", route.name);
        }
    }

    #[test]
    fn what_a_path_names_is_a_field() {
        for Operation { route, fields, .. } in Operation::all() {
            let named = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
            for name in named {
                assert!(fields.contains_key(name), "{}: {name}", route.name);
            }
        }
    }

    #[test]
    fn paths() {
        let found = |path: &str| -> Vec<&str> {
            let parts: Vec<&str> = path.split('/').collect();
            Operation::all().iter().filter(|one| one.is_at(&parts)).map(|one| one.route.name).collect()
        };
        assert_eq!(found("/tasks/a/done"), ["task done"]);
        assert_eq!(found("/tasks/a%2Fb"), ["task show", "task update", "task delete"]);
        assert_eq!(found("/tasks/"), [""; 0]);
        assert_eq!(found("/policies/schema"), ["policy schema"]);
    }
}
