//! `rota policy`: the whole document, published in the store.

mod apply;
mod diff;
mod schema;
mod show;

pub use apply::{Applied, Unnamed, apply};
pub use diff::{Change, Diff, between, diff};
pub use schema::{PolicySchema, schema};
pub use show::{Checked, History, PolicyPayload, Version, check, history, show};

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
