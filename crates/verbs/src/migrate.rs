//! `migrate`: brings a store's schema up to date, under a role that may.

use rota_store::{AnyStore, Location};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;

/// Where a schema stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Schema {
    /// The store's.
    pub found: i64,
    /// The newest this program knows.
    pub known: i64,
    /// What it was before this call, where it was to be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
}

impl Schema {
    /// Whether nothing is pending.
    pub fn is_current(&self) -> bool {
        self.found == self.known
    }
}

/// Looks, and changes nothing.
pub async fn status(location: &Location) -> Result<Schema> {
    let (found, known) = AnyStore::schema_of(location).await?;
    Ok(Schema { found, known, before: None })
}

/// Runs what is pending; on a server, lets another role use the schema from then on.
pub async fn migrate(location: &Location, grant_to: Option<&str>) -> Result<Schema> {
    let before = status(location).await?;
    AnyStore::migrate(location, grant_to).await?;
    Ok(Schema { before: Some(before.found), ..status(location).await? })
}
