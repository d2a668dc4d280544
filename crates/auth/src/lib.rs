//! The one door. Everything that listens asks it first: is the request addressed to us and not sent by a page of
//! another site (403), does the caller show a token (401). Only then is anything routed.
//!
//! There are two kinds of callers: the operator, who can read the token file, and an agent, which was given the token
//! of its lease and may do what the lease allows.

mod connections;
mod hosts;
mod lease_token;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;
use http::header::AUTHORIZATION;
use http::request::Parts;

pub use connections::{Connections, FIRST_REQUEST, Requests, Slot};
pub use hosts::Hosts;
pub use lease_token::{LeaseClaim, PREFIX as LEASE_PREFIX};
pub use token::{Token, TokenFault};

/// Who may come in.
#[derive(Clone)]
pub struct Door {
    hosts: Hosts,
    token: Arc<Token>,
}

/// Who came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Somebody who can read the token file.
    Operator,
    /// Somebody who was given the token of this lease. It may have ended since.
    Lease(LeaseClaim),
}

/// Why a request stays outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// It is addressed to a name that is not ours.
    #[error("the Host header names no address of this server")]
    Host,
    /// It comes from a page of another site.
    #[error("the Origin header names another site")]
    Origin,
    /// It shows no token, or a wrong one.
    #[error("a token is wanted: Authorization: Bearer, with the text of the token file")]
    Token,
}

impl Denied {
    /// 403 or 401.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Host | Self::Origin => StatusCode::FORBIDDEN,
            Self::Token => StatusCode::UNAUTHORIZED,
        }
    }

    /// A stable word for scripts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Host => "host_denied",
            Self::Origin => "origin_denied",
            Self::Token => "token_denied",
        }
    }
}

impl Door {
    /// Of a listener.
    pub fn new(address: SocketAddr, token: Token) -> Self {
        Self { hosts: Hosts::of(address), token: Arc::new(token) }
    }

    /// Lets an operator's request in, or says why not.
    pub fn check(&self, request: &Parts) -> Result<(), Denied> {
        self.check_address(request)?;
        self.check_token(request)
    }

    /// Lets a request in and says who sent it, or says why not.
    pub fn admit(&self, request: &Parts) -> Result<Caller, Denied> {
        self.check_address(request)?;
        self.shown(request).and_then(|shown| self.caller(shown)).ok_or(Denied::Token)
    }

    /// Whose token this is.
    pub fn caller(&self, shown: &[u8]) -> Option<Caller> {
        if self.token.is(shown) {
            return Some(Caller::Operator);
        }
        self.token.unseal(shown).map(Caller::Lease)
    }

    /// Whether it is addressed to us, and not sent by a page of another site: all that what is open to everybody asks.
    pub fn check_address(&self, request: &Parts) -> Result<(), Denied> {
        if !self.hosts.is_addressed(&request.uri, &request.headers) {
            return Err(Denied::Host);
        }
        if !self.hosts.is_origin(&request.headers) {
            return Err(Denied::Origin);
        }
        Ok(())
    }

    /// Whether the caller shows the operator's token.
    pub fn check_token(&self, request: &Parts) -> Result<(), Denied> {
        let is_operator = self.shown(request).is_some_and(|shown| self.token.is(shown));
        if is_operator { Ok(()) } else { Err(Denied::Token) }
    }

    /// What the one Authorization header shows.
    fn shown<'a>(&self, request: &'a Parts) -> Option<&'a [u8]> {
        let mut shown = request.headers.get_all(AUTHORIZATION).iter();
        match (shown.next(), shown.next()) {
            (Some(value), None) => bearer(value.as_bytes()),
            _ => None,
        }
    }
}

/// What is behind `Bearer `; the scheme's case does not matter.
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
        Door::new(SocketAddr::from(([127, 0, 0, 1], 8789)), token).check(&parts)
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
    fn an_agent_is_let_in_as_its_lease_and_is_no_operator() {
        let token = Token::random().unwrap_or_else(|error| panic!("{error}"));
        let claim = LeaseClaim { scope: "/w".into(), task: "a".into(), lease: "lease-a-1".into() };
        let sealed = token.seal(&claim);
        let operator = token.text().to_owned();
        let door = Door::new(SocketAddr::from(([127, 0, 0, 1], 8789)), token);
        let request = |shown: &str| {
            let request = http::Request::builder().uri("/").header("host", "localhost");
            let request = request.header("authorization", format!("Bearer {shown}")).body(());
            request.unwrap_or_else(|error| panic!("{error}")).into_parts().0
        };
        assert_eq!(door.admit(&request(&operator)), Ok(Caller::Operator));
        assert_eq!(door.admit(&request(sealed.expose())), Ok(Caller::Lease(claim)));
        assert_eq!(door.check(&request(sealed.expose())), Err(Denied::Token));
        assert_eq!(door.admit(&request("lease.1.2.3.4")), Err(Denied::Token));
    }
}
