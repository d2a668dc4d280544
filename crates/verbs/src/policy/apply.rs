//! `policy apply`: validates a document, tells what it changes, publishes it.

use std::sync::Arc;

use rota_store::intents::policy::{CurrentPolicy, PublishPolicy};
use rota_store::{Fault, Published, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::diff::{Change, between};
use super::read;
use crate::context::Context;
use crate::{Error, Result};

/// What was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Applied {
    /// The version now in force.
    pub version: String,
    /// What it changed.
    pub changes: Vec<Change>,
}

/// Publishes a document; refused if it was made from a version that is no longer current. What is in force may be
/// unreadable: this is the way out.
pub async fn apply(cx: &Context, document: &str) -> Result<(Applied, Arc<Published>)> {
    let (policy, based_on) = read(document)?;
    let before = match cx.store.perform(&CurrentPolicy { call: cx.call() }).await {
        Ok((before, _)) => Some(before),
        Err(Error::Fault(Fault::UnreadablePolicy { .. })) => None,
        Err(other) => return Err(other),
    };
    // What the diff was made from is what must still be in force.
    let based_on = based_on.or_else(|| before.as_ref().map(|before| before.version.clone()));
    let changes = between(before.as_ref().map(|before| &before.policy), &policy).changes;
    let published = cx.store.perform(&PublishPolicy { call: cx.call(), policy, based_on }).await?;
    Ok((Applied { version: published.version.clone(), changes }, published))
}
