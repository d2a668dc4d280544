//! A verb is its input type: one struct whose fields are what the verb takes. The command line's flags, the fields of an
//! HTTP request, the schema of an MCP tool and their descriptions derive from it, and its doc comments are the help text.
//! [`registry`](crate::registry) lists all of them.

use std::borrow::Cow;

use async_trait::async_trait;
use rota_core::{LeaseId, TaskId};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::lease_token::Right;
use crate::{Context, Result};

/// A word of ours: as good as static where it is written, and it can be read back.
pub type Word = Cow<'static, str>;

/// One verb: the value is its input.
#[async_trait]
pub trait Verb: Serialize + DeserializeOwned + JsonSchema + Send + 'static {
    /// The answer, the same on every interface.
    type Payload: Serialize + DeserializeOwned + JsonSchema + Send;

    /// Its name, and its address over HTTP.
    const ROUTE: Route;

    /// How its refusals are reported.
    const ERRORS: ErrorStyle = ErrorStyle::WithHint;

    /// Who may call it.
    const ACCESS: Access = Access::Operator;

    /// Whether repeating a call changes nothing more. Reads always are.
    const IS_IDEMPOTENT: bool = matches!(Self::ROUTE.method, Method::Get);

    /// Whether the caller may name the lease it speaks for.
    const NAMES_LEASE: bool = false;

    /// Whether it publishes a policy, so that the copy beside `rota.yml` is written anew.
    const PUBLISHES: bool = false;

    /// The MCP tool, where it is offered to models.
    const TOOL: Option<Tool> = None;

    /// What a call did to leases. Those that it granted are released if its caller has gone.
    fn leases(_payload: &Self::Payload) -> LeaseChanges {
        LeaseChanges::default()
    }

    /// Carries it out.
    async fn run(self, cx: &Context) -> Result<Self::Payload>;
}

/// The name of a verb, and its address over HTTP.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Noun and verb of the command line.
    pub name: &'static str,
    /// How it is asked for over HTTP.
    pub method: Method,
    /// Below `/api/v1`; a name in braces is the field of the input of that name.
    pub path: &'static str,
}

impl Route {
    /// A read.
    pub const fn get(name: &'static str, path: &'static str) -> Self {
        Self { name, method: Method::Get, path }
    }

    /// A change.
    pub const fn post(name: &'static str, path: &'static str) -> Self {
        Self { name, method: Method::Post, path }
    }

    /// Adds what may be there already.
    pub const fn put(name: &'static str, path: &'static str) -> Self {
        Self { name, method: Method::Put, path }
    }

    /// Changes some fields.
    pub const fn patch(name: &'static str, path: &'static str) -> Self {
        Self { name, method: Method::Patch, path }
    }

    /// Removes.
    pub const fn delete(name: &'static str, path: &'static str) -> Self {
        Self { name, method: Method::Delete, path }
    }
}

/// How a verb is asked for over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the methods")]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Whether the input comes with the address instead of a body.
    pub const fn has_no_body(self) -> bool {
        matches!(self, Self::Get | Self::Delete)
    }
}

/// How a refusal is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorStyle {
    /// With a hint, and exit code 2 for what was not found.
    WithHint,
    /// In one line, and every refusal exits with 1.
    OneLine,
}

/// Who may call a verb.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// Callers with the token of the server.
    Operator,
    /// Also agents with a lease token, within this right.
    LeaseToken(Right),
}

/// How a verb is offered to models.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// For people.
    pub title: &'static str,
    /// For the model: what it does, when to use it, what to do with the answer.
    pub description: &'static str,
    /// Whether it is offered by default.
    pub is_core: bool,
    /// Whether it takes something away that another caller may still want.
    pub is_destructive: bool,
    /// What a call may say of its caller.
    pub caller: ToolCaller,
}

/// What a call of a tool may say of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolCaller {
    /// Nothing.
    Anonymous,
    /// The name of the agent; without a session, a claim must have it.
    Agent,
    /// The agent, or the lease that the call ends or extends.
    Holder,
}

impl Tool {
    /// Offered by default: an agent needs it to work through a backlog.
    pub const fn core(title: &'static str, description: &'static str) -> Self {
        Self { is_core: true, ..Self::extra(title, description) }
    }

    /// Offered with `--tools all`.
    pub const fn extra(title: &'static str, description: &'static str) -> Self {
        let (is_core, is_destructive) = (false, false);
        Self { title, description, is_core, is_destructive, caller: ToolCaller::Anonymous }
    }

    /// Takes something away that another caller may still want.
    #[must_use]
    pub const fn destructive(self) -> Self {
        Self { is_destructive: true, ..self }
    }

    /// The caller may name its agent.
    #[must_use]
    pub const fn with_agent(self) -> Self {
        Self { caller: ToolCaller::Agent, ..self }
    }

    /// The caller may name its agent and its lease.
    #[must_use]
    pub const fn with_lease(self) -> Self {
        Self { caller: ToolCaller::Holder, ..self }
    }
}

/// What a call did to leases.
#[derive(Clone, Debug, Default)]
pub struct LeaseChanges {
    /// Leases that it granted.
    pub granted: Vec<LeaseSpan>,
    /// The lease that it renewed.
    pub renewed: Option<LeaseSpan>,
    /// The task whose lease it ended.
    pub ended: Option<TaskId>,
}

/// A lease and how long it lasts.
#[derive(Clone, Debug)]
pub struct LeaseSpan {
    /// Its id.
    pub id: LeaseId,
    /// From the call on.
    pub lasts_ms: i64,
}

impl LeaseChanges {
    /// A call that ended the lease of a task.
    pub fn ending(task: &TaskId) -> Self {
        Self { ended: Some(task.clone()), ..Self::default() }
    }
}

/// Visits every verb of the registry.
pub trait Visitor {
    /// Visits one.
    fn visit<V: Verb>(&mut self);
}

/// Reads a payload whose first part is flattened into it. serde's own way goes through a buffer that does not keep
/// numbers as they were given.
macro_rules! read_flattened {
    ($name:ident { ..$flat:ident, $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? }) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                #[derive(serde::Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Rest {
                    $($(#[$attribute])* $field: $type,)*
                }
                let raw = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
                let $flat = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
                let Rest { $($field),* } = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
                Ok(Self { $flat, $($field),* })
            }
        }
    };
}
pub(crate) use read_flattened;
