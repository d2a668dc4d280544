//! Tools in the hands of an agent with a lease token: each call is passed on to the server that the agent's `ROTA_STORE`
//! names, as the operation of the same name, and what the server answers is the tool's answer.

use rota_verbs::Said;
use rota_verbs::error_report::Nature;
use rota_verbs::registry::Operation;
use serde_json::value::to_raw_value;

use super::arguments::Given;
use crate::client::{ClientFault, Endpoint};
use crate::http::SURROUNDINGS;

/// The server of an agent, and what every call tells it: scope and lease.
pub struct Remote {
    /// With the lease token.
    pub endpoint: Endpoint,
    /// Names and values of the query.
    pub surroundings: Vec<(&'static str, String)>,
}

impl Remote {
    /// Passes a call on.
    pub async fn call(&self, operation: &Operation, given: Given) -> Result<String, Said> {
        let Given { mut fields, options } = given;
        let mut surroundings = self.surroundings.clone();
        for (known, _) in SURROUNDINGS {
            if let Some(value) = options.get(known) {
                surroundings.retain(|(name, _)| *name != known);
                surroundings.push((known, value.clone()));
            }
        }
        let in_path =
            operation.route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        for name in in_path {
            // A path cannot leave a field out.
            let default = operation.fields.get(name).and_then(|schema| schema.get("default"));
            if let Some(default) = default.and_then(|default| to_raw_value(default).ok()) {
                fields.entry(name.to_owned()).or_insert(default);
            }
        }
        let answer = self.endpoint.ask_text(&operation.route, fields, &surroundings).await;
        answer.map_err(|fault| match fault {
            ClientFault::Refused(told) => Said {
                message: told.detail,
                hint: told.hint,
                code: told.code,
                exit_code: told.exit_code,
                nature: told.nature,
            },
            other => failed(other.to_string()),
        })
    }
}

fn failed(message: String) -> Said {
    Said { message, hint: None, code: "store_away".into(), exit_code: 75, nature: Nature::Fault }
}
