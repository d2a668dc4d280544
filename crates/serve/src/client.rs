//! Asking a `rota serve`: the verbs by their input types, over HTTP. One request per
//! connection, bounded in time and size; redirects are not followed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::Full;
use rota_gateway::panel::Panel;
pub use rota_net::Target;
use rota_net::{encode, exchange};
use rota_store::Secret;
use rota_verbs::Verb;
use rota_verbs::verb::{Method, Route};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::http::{GATE, PREFIX};
use crate::listen::Told;

/// How long an answer may take: a store may make a call wait for half a minute, and a doctor looks at everything.
const ANSWER: Duration = Duration::from_secs(600);
/// The longest answer that is read.
const ANSWER_BYTES: usize = 1 << 30;

/// A server, and what it wants to see.
#[derive(Clone)]
pub struct Endpoint {
    target: Target,
    token: Secret,
}

/// Why a server was not asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientFault {
    /// Not the address of a server.
    #[error("'{given}' is no address of a rota serve (e.g. http://127.0.0.1:8788)")]
    BadAddress {
        /// What was given.
        given: String,
    },
    /// It cannot be reached, or went away.
    #[error("{server}: {problem}")]
    Away {
        /// Which.
        server: String,
        /// Why.
        problem: String,
    },
    /// It does not speak as we do.
    #[error("{server} is no rota serve: {problem}")]
    Stranger {
        /// Which.
        server: String,
        /// What it does.
        problem: String,
    },
    /// It says why not.
    #[error("{}", .0.detail)]
    Refused(Box<Told>),
}

impl Endpoint {
    /// Of an address, and the token to show there.
    pub fn new(address: &str, token: Secret) -> Result<Self, ClientFault> {
        let bad = || ClientFault::BadAddress { given: without_user(address) };
        let mut target =
            Target::parse(address).filter(|target| !target.path.contains('?')).ok_or_else(bad)?;
        target.path.truncate(target.path.trim_end_matches('/').len());
        Ok(Self { target, token })
    }

    /// How it is named to people.
    pub fn name(&self) -> String {
        let Target { scheme, authority, path } = &self.target;
        format!("{scheme}://{authority}{path}")
    }

    fn away(&self, problem: impl std::fmt::Display) -> ClientFault {
        ClientFault::Away { server: self.name(), problem: problem.to_string() }
    }

    fn stranger(&self, problem: impl std::fmt::Display) -> ClientFault {
        ClientFault::Stranger { server: self.name(), problem: problem.to_string() }
    }

    /// Asks for a verb in surroundings that are names and values.
    pub async fn ask<V: Verb>(
        &self,
        input: &V,
        surroundings: &[(&str, Cow<'_, str>)],
    ) -> Result<V::Payload, ClientFault> {
        let answer = self.call(&V::ROUTE, fields_of(input), surroundings).await?;
        serde_json::from_slice(&answer).map_err(|error| self.stranger(error))
    }

    /// Asks for the verb of a route with the fields of its input; the text of the payload.
    pub async fn ask_text(
        &self,
        route: &Route,
        fields: Fields,
        surroundings: &[(&'static str, String)],
    ) -> Result<String, ClientFault> {
        let surroundings: Vec<(&str, Cow<'_, str>)> =
            surroundings.iter().map(|(name, value)| (*name, Cow::from(value))).collect();
        let answer = self.call(route, fields, &surroundings).await?;
        String::from_utf8(answer.into()).map_err(|error| self.stranger(error))
    }

    async fn call(
        &self,
        route: &Route,
        fields: Fields,
        surroundings: &[(&str, Cow<'_, str>)],
    ) -> Result<Bytes, ClientFault> {
        let (path, query, body) = address_of(route, fields, surroundings);
        let (status, answer) = self.send(route.method.word(), &path, &query, body).await?;
        if status != StatusCode::OK {
            let told: Told = serde_json::from_slice(&answer).map_err(|_| self.stranger(status))?;
            return Err(ClientFault::Refused(Box::new(told)));
        }
        Ok(answer)
    }

    /// The gates, as far as the server knows any.
    pub async fn panel(&self) -> Result<Option<Panel>, ClientFault> {
        let path = GATE.strip_prefix(PREFIX).unwrap_or(GATE);
        let (status, answer) = self.send("GET", path, "", None).await?;
        match status {
            StatusCode::OK => serde_json::from_slice(&answer).map(Some).map_err(|error| self.stranger(error)),
            StatusCode::NOT_FOUND => Ok(None),
            _ => {
                let told: Told = serde_json::from_slice(&answer).map_err(|_| self.stranger(status))?;
                Err(ClientFault::Refused(Box::new(told)))
            }
        }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        query: &str,
        body: Option<String>,
    ) -> Result<(StatusCode, Bytes), ClientFault> {
        let target = format!("{}{PREFIX}{path}{query}", self.target.path);
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, self.target.authority.as_str())
            .header(AUTHORIZATION, format!("Bearer {}", self.token.expose()));
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default())));
        let request = request.map_err(|error| self.stranger(error))?;
        let stream = self.target.connect().await.map_err(|error| self.away(error))?;
        let answer = tokio::time::timeout(ANSWER, exchange(stream, request, ANSWER_BYTES)).await;
        answer.map_err(|_| self.away("no answer"))?.map_err(|error| self.away(error))
    }
}

/// Nothing that could be a password is told.
fn without_user(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => address.to_owned(),
    }
}

/// The fields of a verb's input.
pub type Fields = BTreeMap<String, Box<RawValue>>;

/// Absent values and flags that are not set are left out.
fn fields_of<V: Verb>(input: &V) -> Fields {
    let value = serde_json::value::to_raw_value(input).unwrap_or_else(|error| unreachable!("{error}"));
    let mut fields: Fields =
        serde_json::from_str(value.get()).unwrap_or_else(|error| unreachable!("{error}"));
    fields.retain(|_, value| !matches!(value.get(), "null" | "false"));
    fields
}

/// Where an input goes: into the path what the path names, and the rest into the query or the body.
fn address_of(
    route: &Route,
    mut fields: Fields,
    surroundings: &[(&str, Cow<'_, str>)],
) -> (String, String, Option<String>) {
    let part = |part: &str, fields: &mut Fields| {
        let Some(name) = part.strip_prefix('{').and_then(|name| name.strip_suffix('}')) else {
            return part.to_owned();
        };
        let value = fields.remove(name).map(|value| text_of(value.get()));
        encode(&value.unwrap_or_default())
    };
    let path: Vec<String> = route.path.split('/').map(|name| part(name, &mut fields)).collect();
    let mut pairs: Vec<(String, String)> =
        surroundings.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
    let in_body = !matches!(route.method, Method::Get | Method::Delete);
    let body =
        in_body.then(|| serde_json::to_string(&fields).unwrap_or_else(|error| unreachable!("{error}")));
    if !in_body {
        pairs.extend(fields.into_iter().map(|(name, value)| (name, text_of(value.get()))));
    }
    let pairs: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
    (path.join("/"), query, body)
}

/// A text without its quotes; numbers and flags as they are.
fn text_of(json: &str) -> String {
    match serde_json::from_str::<Value>(json) {
        Ok(Value::String(text)) => text,
        _ => json.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rota_verbs::block::UnblockTask;
    use rota_verbs::claim::ClaimTask;
    use rota_verbs::list::ListTasks;
    use rota_verbs::show::ShowTask;

    use super::*;

    #[test]
    fn addresses() {
        fn address<V: Verb>(input: &V, here: &[(&str, Cow<'_, str>)]) -> (String, String, Option<String>) {
            address_of(&V::ROUTE, fields_of(input), here)
        }
        let here = [("scope", Cow::from("a b"))];
        fn input<V: Verb>(json: &str) -> V {
            rota_verbs::input::read(json).unwrap_or_else(|unread| panic!("{unread:?}"))
        }
        let show: ShowTask = input(r#"{"id": "a/b", "withDeps": true}"#);
        assert_eq!(address(&show, &here), ("/tasks/a%2Fb".into(), "?scope=a%20b&withDeps=true".into(), None));
        let unblock: UnblockTask = input(r#"{"id": "ä", "by": ".."}"#);
        assert_eq!(address(&unblock, &[]), ("/tasks/%C3%A4/blockers/..".into(), String::new(), None));
        let list: ListTasks = input(r#"{"queue": "q"}"#);
        assert_eq!(address(&list, &[]), ("/tasks".into(), "?queue=q".into(), None));
        let claim: ClaimTask = input(r#"{"queue": "q", "lease": 5}"#);
        let body = Some(r#"{"lease":5,"queue":"q"}"#.to_owned());
        assert_eq!(address(&claim, &here), ("/claims".into(), "?scope=a%20b".into(), body));
    }

    #[test]
    fn endpoints() {
        let named = |address: &str| match Endpoint::new(address, "t".into()) {
            Ok(endpoint) => endpoint.name(),
            Err(error) => error.to_string(),
        };
        assert_eq!(named("http://127.0.0.1:8788"), "http://127.0.0.1:8788");
        assert_eq!(named("https://rota.example/team/"), "https://rota.example/team");
        assert_eq!(named("http://[::1]:1"), "http://[::1]:1");
        for bad in ["http://", "ftp://a", "http://u:secret@a", "http://a?b"] {
            assert!(named(bad).contains("is no address of a rota serve"), "{bad}");
            assert!(!named(bad).contains("secret"));
        }
    }
}
