//! What a verb is to an interface: an input that can be read and written, a payload that can be read and written, where
//! it is found over HTTP. The [table](crate::table) lists them all, once: the server makes its routes
//! and its description from it, and whoever asks a server asks by the same types.

use std::borrow::Cow;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Context, Result};

/// A word of ours: as good as static where it is written, and it can be read back.
pub type Word = Cow<'static, str>;

/// One verb: the value is its input.
#[async_trait]
pub trait Verb: Serialize + DeserializeOwned + JsonSchema + Send + 'static {
    /// What it answers.
    type Payload: Serialize + DeserializeOwned + JsonSchema;

    /// Where it is found.
    const ROUTE: Route;

    /// Carries it out.
    async fn run(self, cx: &Context) -> Result<Self::Payload>;
}

/// Where a verb is found.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Its name: noun and verb of the command line.
    pub name: &'static str,
    /// How it is asked for over HTTP.
    pub method: Method,
    /// Below `/api/v1`; a name in braces is the field of the input of that name.
    pub path: &'static str,
    /// One line.
    pub about: &'static str,
    /// How it tells a refusal.
    pub telling: Telling,
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

/// How a refusal is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// With a hint, and 2 for what was not found.
    WithHint,
    /// In one line, and every refusal is 1.
    OneLine,
}

/// Somebody who looks at every verb.
pub trait Visitor {
    /// Looks at one.
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
