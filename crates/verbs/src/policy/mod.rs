//! `rota policy`: the whole document, published in the store.

mod apply;
mod diff;
mod schema;
mod show;

pub use apply::{Applied, ApplyPolicy, Unnamed};
pub use diff::{Change, Diff, DiffPolicy, between};
pub use schema::{DescribePolicy, PolicySchema, schema};
pub use show::{CheckPolicy, Checked, History, ListPolicies, PolicyPayload, ShowPolicy, Version, check};

use serde::Deserialize;

/// The version that a document was made from, where it says so.
fn based_on(document: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Based {
        #[serde(rename = "basedOn", alias = "based_on", alias = "based-on")]
        based_on: Option<String>,
    }
    serde_json::from_str::<Based>(document).ok().and_then(|based| based.based_on)
}
