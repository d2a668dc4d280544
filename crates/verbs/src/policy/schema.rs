//! `policy schema`: the JSON Schema of a policy document, for editors.

use rota_core::{Json, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema as a payload; by itself it is what an editor reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicySchema {
    /// The schema.
    pub schema: Json,
}

/// Made from the table that checks documents. Needs no store.
pub fn schema() -> PolicySchema {
    PolicySchema { schema: Json::of(&Policy::schema()) }
}
