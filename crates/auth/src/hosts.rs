//! The host names that a request may be addressed to and come from. A page of another site can make a browser send
//! requests here, and can let its own name resolve to this host (DNS rebinding); it cannot choose the Host and Origin
//! headers that the browser sends.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use http::uri::{Authority, Uri};

/// The accepted names of a listener, which no other site can make resolve to it: `localhost` and numeric addresses.
/// Ports are not compared, since a tunnel may have changed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    address: IpAddr,
    /// The address as most clients write it, compared without parsing.
    usual: Arc<str>,
}

impl Hosts {
    /// For a listener at `address`.
    pub fn of(address: SocketAddr) -> Self {
        Self { address: address.ip().to_canonical(), usual: Arc::from(address.to_string()) }
    }

    /// Whether the one Host header, and the request target if it has an authority, name this server.
    pub fn is_addressed(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut named = headers.get_all(HOST).iter();
        let (Some(host), None) = (named.next(), named.next()) else { return false };
        let is_named = host.as_bytes() == self.usual.as_bytes() && !self.address.is_unspecified()
            || host.to_str().ok().and_then(|text| text.parse().ok()).is_some_and(|host| self.knows(&host));
        is_named && uri.authority().is_none_or(|target| self.knows(target))
    }

    /// Whether every Origin header names this server. Clients other than browsers send none.
    pub fn is_origin(&self, headers: &HeaderMap) -> bool {
        headers.get_all(ORIGIN).iter().all(|origin| {
            let origin = origin.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
            let is_web = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https"));
            origin
                .filter(is_web)
                .and_then(|uri| uri.authority().cloned())
                .is_some_and(|from| self.knows(&from))
        })
    }

    fn knows(&self, authority: &Authority) -> bool {
        let host = authority.host();
        let port = authority.as_str().strip_prefix(host);
        // No user info, and nothing after the host but a port.
        if !port.is_some_and(|port| port.is_empty() || authority.port_u16().is_some()) {
            return false;
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        match bare.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(address) => {
                address == self.address
                    || self.address.is_unspecified()
                    || self.is_near(address.is_loopback())
            }
            Err(_) => self.is_near(name.eq_ignore_ascii_case("localhost")),
        }
    }

    /// Loopback names reach only a listener on loopback or on every address.
    fn is_near(&self, name_is_near: bool) -> bool {
        name_is_near && (self.address.is_loopback() || self.address.is_unspecified())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(address: &str) -> Hosts {
        Hosts::of(address.parse().unwrap_or_else(|error| panic!("{address}: {error}")))
    }

    fn headers(name: http::HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, value.parse().unwrap_or_else(|error| panic!("{value}: {error}")));
        }
        headers
    }

    #[test]
    fn hosts_that_lead_here() {
        let near = [
            "127.0.0.1",
            "127.0.0.1:8789",
            "localhost",
            "LOCALHOST:1",
            "localhost.:80",
            "[::1]:8789",
            "127.9.9.9",
        ];
        let far = [
            "evil.example",
            "evil.example:8789",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "10.0.0.7",
            "0.0.0.0",
            "user@localhost",
            "[::2]",
            "",
            "localhost:http",
            "2130706433",
        ];
        let listener = hosts("127.0.0.1:8789");
        let target = Uri::from_static("/mcp");
        for host in near {
            assert!(listener.is_addressed(&target, &headers(HOST, &[host])), "{host}");
        }
        for host in far {
            assert!(!listener.is_addressed(&target, &headers(HOST, &[host])), "{host}");
        }
        assert!(!listener.is_addressed(&target, &headers(HOST, &[])), "no host");
        assert!(!listener.is_addressed(&target, &headers(HOST, &["localhost", "localhost"])), "two hosts");
        let elsewhere = Uri::from_static("http://evil.example/mcp");
        assert!(!listener.is_addressed(&elsewhere, &headers(HOST, &["localhost"])), "another target");
    }

    #[test]
    fn a_listener_for_others_knows_its_numbers() {
        for (address, host, known) in [
            ("10.0.0.7:1", "10.0.0.7:1", true),
            ("10.0.0.7:1", "10.0.0.8", false),
            ("10.0.0.7:1", "localhost", false),
            ("0.0.0.0:1", "10.0.0.8", true),
            ("0.0.0.0:1", "localhost", true),
            ("0.0.0.0:1", "evil.example", false),
            ("[::]:1", "[fe80::1]", true),
            ("[::1]:1", "127.0.0.1", true),
        ] {
            let seen = hosts(address).is_addressed(&Uri::from_static("/"), &headers(HOST, &[host]));
            assert_eq!(seen, known, "{address} {host}");
        }
    }

    #[test]
    fn origins() {
        let listener = hosts("127.0.0.1:8789");
        for (origins, known) in [
            (&[][..], true),
            (&["http://localhost:3000"], true),
            (&["https://127.0.0.1"], true),
            (&["http://[::1]:5"], true),
            (&["null"], false),
            (&["http://evil.example"], false),
            (&["http://localhost.evil.example"], false),
            (&["file://localhost"], false),
            (&["http://localhost", "http://evil.example"], false),
            (&[""], false),
        ] {
            assert_eq!(listener.is_origin(&headers(ORIGIN, origins)), known, "{origins:?}");
        }
    }
}
