//! Where a verb runs: on the store itself, or on a `rota serve` in front of one. Either way a command has the same typed
//! input and gets the same payload or the same refusal, so what it prints cannot differ.

use std::borrow::Cow;

use crate::block_on;
use rota_gateway::panel::Panel;
use rota_serve::client::{ClientFault, Endpoint};
use rota_verbs::error_report::Nature;
use rota_verbs::{Context, Said, Verb};

use crate::errors::{CliError, CliResult};

/// Where verbs run.
pub enum Backend {
    /// The store, opened here.
    Store(Box<Context>),
    /// A server, by its address.
    Server(Box<Remote>),
}

/// A server, and what it is told of this call's surroundings.
pub struct Remote {
    pub endpoint: Endpoint,
    pub surroundings: Vec<(&'static str, String)>,
}

impl Backend {
    /// Asks for a verb and waits for the payload.
    pub fn ask<V: Verb>(&self, input: V) -> CliResult<V::Payload> {
        match self {
            Self::Store(cx) => Ok(block_on(input.run(cx))?),
            Self::Server(remote) => remote.ask(&input),
        }
    }

    /// The store, for what cannot be asked of a server.
    pub fn store(&self) -> CliResult<&Context> {
        match self {
            Self::Store(cx) => Ok(cx),
            Self::Server(remote) => Err(CliError::wants_store(&remote.endpoint.name())),
        }
    }
}

impl Remote {
    /// The gates, as far as the server knows any.
    pub fn panel(&self) -> CliResult<Option<Panel>> {
        Ok(block_on(self.endpoint.panel())?)
    }

    fn ask<V: Verb>(&self, input: &V) -> CliResult<V::Payload> {
        let surroundings: Vec<(&str, Cow<'_, str>)> =
            self.surroundings.iter().map(|(name, value)| (*name, Cow::from(value))).collect();
        Ok(block_on(self.endpoint.ask(input, &surroundings))?)
    }
}

impl From<ClientFault> for CliError {
    fn from(fault: ClientFault) -> Self {
        let message = fault.to_string();
        match fault {
            ClientFault::Refused(told) if told.code == "token_denied" => Self::Io(
                "the server does not take this token: set ROTA_TOKEN to the text of its .rota/token"
                    .to_owned(),
            ),
            ClientFault::Refused(told) => Self::Said(Said {
                message,
                hint: told.hint,
                code: told.code,
                exit_code: told.exit_code,
                nature: told.nature,
            }),
            ClientFault::Away { .. } => Self::Said(Said {
                message,
                hint: None,
                code: "store_away".into(),
                exit_code: 75,
                nature: Nature::Fault,
            }),
            ClientFault::BadAddress { .. } | ClientFault::Stranger { .. } => Self::Io(message),
        }
    }
}
