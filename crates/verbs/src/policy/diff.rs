//! `rota policy diff`

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use rota_core::{Json, Policy, Refusal};
use rota_store::Store;
use rota_store::intents::policy::CurrentPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Result;
use crate::context::Context;
use crate::verb::{Route, Verb};

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// How many keys.
    pub total: usize,
    /// By path.
    pub changes: Vec<Change>,
}

/// One key that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Dotted path.
    pub path: String,
    /// What is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Json>,
    /// What the document says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Json>,
}

impl Diff {
    /// One line: each path with its old and its new value.
    pub fn in_words(&self) -> String {
        let value = |json: &Option<Json>| json.as_ref().map_or("nothing", Json::as_str).to_owned();
        let change =
            |change: &Change| format!("{} {} → {}", change.path, value(&change.from), value(&change.to));
        self.changes.iter().map(change).collect::<Vec<_>>().join(", ")
    }
}

/// Tell what a document would change
///
/// Example: rota policy diff rota.policy.json
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiffPolicy {
    /// The text of the document
    pub document: String,
}

#[async_trait]
impl Verb for DiffPolicy {
    type Payload = Diff;
    const ROUTE: Route = Route::post("policy diff", "/policies/diff");

    async fn run(self, cx: &Context) -> Result<Diff> {
        Policy::parse(&self.document).map_err(Refusal::from)?;
        let (published, _) = cx.store.perform(&CurrentPolicy { call: cx.call() }).await?;
        let policy = published.policy.replaced(&self.document).map_err(Refusal::from)?;
        Ok(between(Some(&published.policy), &policy))
    }
}

/// None for an old one that cannot be read: everything is new then.
pub fn between(old: Option<&Policy>, new: &Policy) -> Diff {
    let (old, new) = (old.map_or(BTreeMap::new(), leaves), leaves(new));
    let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let change = |path: &String| Change {
        path: path.clone(),
        from: old.get(path).cloned(),
        to: new.get(path).cloned(),
    };
    let changes: Vec<Change> =
        paths.into_iter().filter(|path| old.get(*path) != new.get(*path)).map(change).collect();
    Diff { total: changes.len(), changes }
}

fn leaves(policy: &Policy) -> BTreeMap<String, Json> {
    let mut found = BTreeMap::new();
    let document = serde_json::from_str(policy.to_json().as_str()).unwrap_or(Value::Null);
    collect(String::new(), &document, &mut found);
    found
}

fn collect(path: String, value: &Value, found: &mut BTreeMap<String, Json>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(path, value, found);
            }
        }
        leaf => drop(found.insert(path, Json::of(leaf))),
    }
}
