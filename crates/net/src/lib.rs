//! Network code that listeners and clients share. It knows nothing of tasks, callers or verbs.
//!
//! [`accept_all`] is the accept loop of every listener; [`Connections`] limits how many connections it may have, and says
//! which are dropped for new ones. [`Target`] sends one HTTP request over a connection of its own, bounded in time and
//! size. [`tls`] trusts the certificates this system trusts. [`encode`] percent-encodes.

mod client;
mod connections;
pub mod tls;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

pub use client::{BoxError, Stream, Target, exchange};
pub use connections::{Connections, Requests, Slot, accept_all};

/// Unreserved characters of RFC 3986.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Percent-encodes a text as one segment of a path, or one name or value of a query.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn only_unreserved_characters_stay() {
        assert_eq!(encode("in-progress_1.2~"), "in-progress_1.2~");
        assert_eq!(encode("a/b ü?#"), "a%2Fb%20%C3%BC%3F%23");
    }
}
