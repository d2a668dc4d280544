//! Finds the operation of a request by method and path.

use std::sync::OnceLock;

pub use rota_verbs::registry::Operation;

/// Fields of an input, and what a path says of them.
pub type Named<'p> = Vec<(&'static str, &'p str)>;

/// What all verbs are below.
pub const PREFIX: &str = "/api/v1";

/// An operation, and the parts of its path.
struct Place {
    operation: &'static Operation,
    path: Vec<Part>,
}

enum Part {
    Word(&'static str),
    /// The field of the input of this name.
    Field(&'static str),
}

fn places() -> &'static [Place] {
    static PLACES: OnceLock<Vec<Place>> = OnceLock::new();
    PLACES.get_or_init(|| {
        let place = |operation: &'static Operation| {
            let path = operation.route.path.split('/').map(Part::of).collect();
            Place { operation, path }
        };
        Operation::all().iter().map(place).collect()
    })
}

/// The operation at a path, with what its path names; else the methods by which something is there.
pub fn find<'p>(
    method: &http::Method,
    path: &'p str,
) -> Result<(&'static Operation, Named<'p>), Vec<&'static str>> {
    let parts: Vec<&str> = path.split('/').collect();
    let mut methods = Vec::new();
    for place in places().iter().filter(|place| is_at(place, &parts)) {
        let word = place.operation.route.method.word();
        if word == method.as_str() {
            return Ok((place.operation, named(place, &parts)));
        }
        methods.push(word);
    }
    Err(methods)
}

fn is_at(place: &Place, given: &[&str]) -> bool {
    let fits = |(given, wanted): (&&str, &Part)| match wanted {
        Part::Word(word) => word == given,
        Part::Field(_) => !given.is_empty(),
    };
    given.len() == place.path.len() && given.iter().zip(&place.path).all(fits)
}

fn named<'p>(place: &Place, given: &[&'p str]) -> Named<'p> {
    let named = given.iter().zip(&place.path).filter_map(|(given, wanted)| match wanted {
        Part::Word(_) => None,
        Part::Field(name) => Some((*name, *given)),
    });
    named.collect()
}

impl Part {
    fn of(text: &'static str) -> Self {
        let name = text.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        name.map_or(Self::Word(text), Self::Field)
    }
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
            places()
                .iter()
                .filter(|place| is_at(place, &parts))
                .map(|place| place.operation.route.name)
                .collect()
        };
        assert_eq!(found("/tasks/a/done"), ["task done"]);
        assert_eq!(found("/tasks/a%2Fb"), ["task show", "task update", "task delete"]);
        assert_eq!(found("/tasks/"), [""; 0]);
        assert_eq!(found("/policies/schema"), ["policy schema"]);
    }
}
