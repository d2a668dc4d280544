//! Tools in the hands of an agent with a lease token: each call is passed on to the server that the agent's `ROTA_STORE`
//! names, as the operation of the same name, and what the server answers is the tool's answer.

use super::block_on;
use rota_verbs::Said;
use rota_verbs::said::Nature;
use serde_json::value::{RawValue, to_raw_value};

use super::arguments::{Argument, Given, Kind};
use super::tools::Tool;
use crate::client::{ClientFault, Endpoint};
use crate::http::{Operation, SURROUNDINGS};

/// The server of an agent, and what every call tells it: scope and lease.
pub struct Remote {
    /// With the lease token.
    pub endpoint: Endpoint,
    /// Names and values of the query.
    pub surroundings: Vec<(&'static str, String)>,
}

impl Remote {
    /// Passes a call on.
    pub fn call(&self, tool: &Tool, given: &Given) -> Result<String, Said> {
        let name = tool.name.trim_start_matches("rota_");
        let operation = Operation::all().iter().find(|one| one.route.name.replace([' ', '-'], "_") == name);
        let Some(operation) = operation else { unreachable!("every tool is a verb: {name}") };
        let mut surroundings = self.surroundings.clone();
        let mut fields = std::collections::BTreeMap::new();
        for argument in tool.arguments(false) {
            let Some(text) = given.text(argument.name) else { continue };
            if operation.fields.contains_key(argument.name) {
                fields.insert(argument.name.to_owned(), value(argument, &text));
            } else if argument.name == "leaseId"
                && operation.fields.contains_key("lease")
                && name.starts_with("sched")
            {
                fields.insert("lease".to_owned(), raw(&text));
            } else if let Some((known, _)) = SURROUNDINGS.iter().find(|(known, _)| *known == argument.name) {
                surroundings.retain(|(name, _)| name != known);
                surroundings.push((*known, text));
            }
        }
        if operation.route.path.contains("{queue}") {
            // A path cannot leave it out.
            let queue = if name.starts_with("task") { "tasks" } else { "runs" };
            fields.entry("queue".to_owned()).or_insert_with(|| raw(queue));
        }
        let answer = block_on(self.endpoint.ask_text(&operation.route, fields, &surroundings));
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

/// An argument as the field of its name takes it.
fn value(argument: &Argument, text: &str) -> Box<RawValue> {
    match argument.kind {
        Kind::Text => raw(text),
        _ => RawValue::from_string(text.to_owned()).unwrap_or_else(|_| raw(text)),
    }
}

fn raw(text: &str) -> Box<RawValue> {
    to_raw_value(text).unwrap_or_else(|error| unreachable!("a text is JSON: {error}"))
}
