//! `rota policy`: the whole document, published in the store.

mod apply;
mod diff;
mod schema;
mod show;

pub use apply::{Applied, apply};
pub use diff::{Change, Diff, diff};
pub use schema::{PolicySchema, schema};
pub use show::{Checked, History, PolicyPayload, Version, check, history, show};

use rota_core::{Policy, Refusal};
use serde::Deserialize;

use crate::Result;

/// Reads a document; `basedOn` is the version it was made from, where it says so.
pub(crate) fn read(document: &str) -> Result<(Policy, Option<String>)> {
    #[derive(Deserialize)]
    struct Based {
        #[serde(rename = "basedOn", alias = "based_on", alias = "based-on")]
        based_on: Option<String>,
    }
    let policy = Policy::parse(document).map_err(Refusal::from)?;
    let based_on = serde_json::from_str::<Based>(document).ok().and_then(|based| based.based_on);
    Ok((policy, based_on))
}
