//! One provider: where it is, its key, its gate, the connections to it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Response};
use rota_gate::Gate;
use rota_store::Secret;

use crate::config::{Api, Target, UpstreamConfig};
use crate::link::Links;

pub(crate) struct Upstream {
    pub name: Arc<str>,
    pub api: Api,
    pub target: Target,
    /// Host, as the provider knows itself.
    pub host: HeaderValue,
    pub key: Option<Key>,
    pub key_env: Option<String>,
    pub gate: Gate,
    pub links: Links,
    /// The provider's own words when its quota was used up: what callers get until it is renewed.
    last_quota: Mutex<Option<Response<Bytes>>>,
}

/// A provider's key in its two forms, marked so that it is never shown.
pub(crate) struct Key {
    pub bare: HeaderValue,
    pub bearer: HeaderValue,
}

impl Key {
    /// None if it cannot be part of a header.
    pub fn new(key: &Secret) -> Option<Self> {
        let text = key.expose().trim();
        let secret = |text: &str| {
            let mut value = HeaderValue::from_str(text).ok().filter(|value| !value.is_empty())?;
            value.set_sensitive(true);
            Some(value)
        };
        Some(Self {
            bare: secret(text)?,
            bearer: secret(&format!("Bearer {text}")).filter(|_| !text.is_empty())?,
        })
    }
}

impl Upstream {
    pub fn new(name: &str, config: &UpstreamConfig, key: Option<Key>, gate: Gate, links: Links) -> Self {
        let host = HeaderValue::from_str(config.url.authority.as_str());
        Self {
            name: Arc::from(name),
            api: config.api,
            target: config.url.clone(),
            host: host.unwrap_or_else(|_| unreachable!("an authority is visible ASCII")),
            key,
            key_env: config.key_env.clone(),
            gate,
            links,
            last_quota: Mutex::new(None),
        }
    }

    pub fn remember_quota(&self, answer: Response<Bytes>) {
        *self.last_quota.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }

    pub fn last_quota(&self) -> Option<Response<Bytes>> {
        self.last_quota.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
