//! The one door. Everything that listens asks it first: is the request addressed to us and not sent by a page of
//! another site (403), does the caller show the token (401). Only then is anything routed.

mod hosts;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;
use http::header::AUTHORIZATION;
use http::request::Parts;

pub use hosts::Hosts;
pub use token::{Token, TokenFault};

/// Who may come in.
#[derive(Clone)]
pub struct Door {
    hosts: Hosts,
    token: Arc<Token>,
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

    /// Lets a request in, or says why not.
    pub fn check(&self, request: &Parts) -> Result<(), Denied> {
        self.check_address(request)?;
        self.check_token(request)
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

    /// Whether the caller shows the token.
    pub fn check_token(&self, request: &Parts) -> Result<(), Denied> {
        let mut shown = request.headers.get_all(AUTHORIZATION).iter();
        match (shown.next().and_then(|value| bearer(value.as_bytes())), shown.next()) {
            (Some(token), None) if self.token.is(token) => Ok(()),
            _ => Err(Denied::Token),
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
}
