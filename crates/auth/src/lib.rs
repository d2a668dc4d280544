//! Authentication for every listener, before anything is routed: a request must be addressed to this server and not be
//! sent by a page of another site (403), and it must carry a token (401).
//!
//! There are two kinds of callers: the operator, who can read the token file, and an agent, which was given a
//! [`LeaseToken`] and may do what its lease allows.

mod hosts;
mod lease_token;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;
use http::header::AUTHORIZATION;
use http::request::Parts;

pub use hosts::Hosts;
pub use lease_token::{LeaseToken, PREFIX as LEASE_PREFIX};
pub use token::{Token, TokenFault};

/// Checks the head of a request: Host, Origin, token.
#[derive(Clone)]
pub struct Authenticator {
    hosts: Hosts,
    token: Arc<Token>,
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Can read the token file.
    Operator,
    /// Carries the token of a lease, which may have ended since.
    Lease(LeaseToken),
}

/// Why a request was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Addressed to a host name that is not this server's.
    #[error("the Host header names no address of this server")]
    Host,
    /// Sent by a page of another site.
    #[error("the Origin header names another site")]
    Origin,
    /// No token, or a wrong one.
    #[error("authentication required: pass the token from .rota/token as Authorization: Bearer")]
    Token,
}

impl Denied {
    /// The response's status, 401 or 403.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Host | Self::Origin => StatusCode::FORBIDDEN,
            Self::Token => StatusCode::UNAUTHORIZED,
        }
    }

    /// The response's `code`, which stays the same between releases.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Host => "host_denied",
            Self::Origin => "origin_denied",
            Self::Token => "token_denied",
        }
    }
}

impl Authenticator {
    /// For a listener at `address`.
    pub fn new(address: SocketAddr, token: Token) -> Self {
        Self { hosts: Hosts::of(address), token: Arc::new(token) }
    }

    /// Accepts only the operator's requests.
    pub fn check_operator(&self, request: &Parts) -> Result<(), Denied> {
        self.check_address(request)?;
        self.check_token(request)
    }

    /// The caller of a request.
    pub fn authenticate(&self, request: &Parts) -> Result<Caller, Denied> {
        self.check_address(request)?;
        self.presented(request).and_then(|token| self.identify(token)).ok_or(Denied::Token)
    }

    /// The caller that a token belongs to.
    pub fn identify(&self, token: &[u8]) -> Option<Caller> {
        if self.token.is(token) {
            return Some(Caller::Operator);
        }
        self.token.verify(token).map(Caller::Lease)
    }

    /// Checks Host and Origin but no token, which is enough for paths that are open to everyone.
    pub fn check_address(&self, request: &Parts) -> Result<(), Denied> {
        if !self.hosts.is_addressed(&request.uri, &request.headers) {
            return Err(Denied::Host);
        }
        if !self.hosts.is_origin(&request.headers) {
            return Err(Denied::Origin);
        }
        Ok(())
    }

    /// Checks for the operator's token.
    pub fn check_token(&self, request: &Parts) -> Result<(), Denied> {
        let is_operator = self.presented(request).is_some_and(|token| self.token.is(token));
        if is_operator { Ok(()) } else { Err(Denied::Token) }
    }

    /// The bearer token, if there is exactly one Authorization header.
    fn presented<'a>(&self, request: &'a Parts) -> Option<&'a [u8]> {
        let mut headers = request.headers.get_all(AUTHORIZATION).iter();
        match (headers.next(), headers.next()) {
            (Some(value), None) => bearer(value.as_bytes()),
            _ => None,
        }
    }
}

/// The text after `Bearer `; the scheme is not case-sensitive.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&str, &str)]) -> Result<(), Denied> {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let path = folder.path().join("token");
        let token = Token::of_file(&path).unwrap_or_else(|error| panic!("{error}"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut request = http::Request::builder().uri("/mcp");
        for (name, value) in headers {
            request = request.header(*name, value.replace("TOKEN", text.trim()));
        }
        let (parts, ()) = request.body(()).unwrap_or_else(|error| panic!("{error}")).into_parts();
        Authenticator::new(SocketAddr::from(([127, 0, 0, 1], 8789)), token).check_operator(&parts)
    }

    #[test]
    fn host_then_origin_then_token() {
        let (here, token) = (("host", "localhost:8789"), ("authorization", "Bearer TOKEN"));
        let (away, page) = (("host", "evil.example"), ("origin", "http://evil.example"));
        for (headers, wanted) in [
            (&[here, token][..], Ok(())),
            (&[here, ("authorization", "bearer  TOKEN")], Ok(())),
            (&[here, ("origin", "http://localhost:8789"), token], Ok(())),
            (&[token], Err(Denied::Host)),
            (&[away, token], Err(Denied::Host)),
            (&[away, page], Err(Denied::Host)),
            (&[here, page, token], Err(Denied::Origin)),
            (&[here, page], Err(Denied::Origin)),
            (&[here], Err(Denied::Token)),
            (&[here, ("authorization", "TOKEN")], Err(Denied::Token)),
            (&[here, ("authorization", "Basic TOKEN")], Err(Denied::Token)),
            (&[here, ("authorization", "Bearer TOKENx")], Err(Denied::Token)),
            (&[here, ("authorization", "Bearer ")], Err(Denied::Token)),
            (&[here, token, token], Err(Denied::Token)),
        ] {
            assert_eq!(check(headers), wanted, "{headers:?}");
        }
    }

    #[test]
    fn an_agent_is_authenticated_as_its_lease_and_is_no_operator() {
        let token = Token::random().unwrap_or_else(|error| panic!("{error}"));
        let lease = LeaseToken { scope: "/w".into(), task: "a".into(), lease: "lease-a-1".into() };
        let signed = token.sign(&lease);
        let operator = token.text().to_owned();
        let auth = Authenticator::new(SocketAddr::from(([127, 0, 0, 1], 8789)), token);
        let request = |shown: &str| {
            let request = http::Request::builder().uri("/").header("host", "localhost");
            let request = request.header("authorization", format!("Bearer {shown}")).body(());
            request.unwrap_or_else(|error| panic!("{error}")).into_parts().0
        };
        assert_eq!(auth.authenticate(&request(&operator)), Ok(Caller::Operator));
        assert_eq!(auth.authenticate(&request(signed.expose())), Ok(Caller::Lease(lease)));
        assert_eq!(auth.check_operator(&request(signed.expose())), Err(Denied::Token));
        assert_eq!(auth.authenticate(&request("lease.1.2.3.4")), Err(Denied::Token));
    }
}
