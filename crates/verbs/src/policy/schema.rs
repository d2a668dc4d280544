//! `rota policy schema`

use async_trait::async_trait;
use rota_core::{Json, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;
use crate::verb::{Route, Verb};

/// The schema as a payload; by itself it is what an editor reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicySchema {
    /// The schema.
    pub schema: Json,
}

/// Print the JSON Schema of the document, for editors
///
/// With --json it is inside of a payload; without, it is the schema alone.
///
/// Example: rota policy schema > rota.policy.schema.json
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DescribePolicy {}

#[async_trait]
impl Verb for DescribePolicy {
    type Payload = PolicySchema;
    const ROUTE: Route = Route::get("policy schema", "/policies/schema");

    async fn run(self, _cx: &Context) -> Result<PolicySchema> {
        Ok(schema())
    }
}

/// Made from the table that checks documents. Needs no store.
pub fn schema() -> PolicySchema {
    PolicySchema { schema: Json::of(&Policy::schema()) }
}
