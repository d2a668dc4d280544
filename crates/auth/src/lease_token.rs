//! The token of a lease, which an agent uses instead of the operator's. It names its lease and is signed with the
//! operator's token, so no server has to store it, and a restarted daemon still accepts the tokens of agents that
//! outlived it. Whether the lease is still held is decided by the store.

use hmac::{Hmac, KeyInit, Mac};
use rota_store::Secret;
use sha2::Sha256;

use crate::Token;

/// How every lease token begins; an operator's token contains no dot.
pub const PREFIX: &str = "lease.";

/// The content of a lease token: the lease that its bearer acts for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseToken {
    /// The task's scope.
    pub scope: String,
    /// The task's id.
    pub task: String,
    /// The lease's id.
    pub lease: String,
}

impl Token {
    /// Signs a lease token with this operator's token.
    pub fn sign(&self, lease: &LeaseToken) -> Secret {
        let body = [&lease.scope, &lease.task, &lease.lease].map(|part| hex(part.as_bytes())).join(".");
        let signature = hex(&self.mac(&body).finalize().into_bytes());
        format!("{PREFIX}{body}.{signature}").into()
    }

    /// The content of a lease token, if this operator's token signed it.
    pub fn verify(&self, token: &[u8]) -> Option<LeaseToken> {
        let token = std::str::from_utf8(token).ok()?.strip_prefix(PREFIX)?;
        let (body, signature) = token.rsplit_once('.')?;
        self.mac(body).verify_slice(&unhex(signature)?).ok()?;
        let mut parts = body.split('.').map(|part| String::from_utf8(unhex(part)?).ok());
        let mut next = || parts.next().flatten();
        Some(LeaseToken { scope: next()?, task: next()?, lease: next()? })
    }

    fn mac(&self, body: &str) -> Hmac<Sha256> {
        let keyed = Hmac::<Sha256>::new_from_slice(self.text().as_bytes());
        // HMAC accepts a key of any length.
        let mut mac = keyed.unwrap_or_else(|_| unreachable!());
        mac.update(b"rota lease 1\n");
        mac.update(body.as_bytes());
        mac
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lower case only, so that a lease has exactly one token.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token::random().unwrap_or_else(|error| panic!("{error}"))
    }

    fn lease(scope: &str, task: &str, lease: &str) -> LeaseToken {
        LeaseToken { scope: scope.into(), task: task.into(), lease: lease.into() }
    }

    #[test]
    fn a_token_names_its_lease() {
        let token = token();
        for lease in [lease("", "a", "lease-a-1"), lease("/w/x y", "grüße 😀.b", "lease-grüße 😀.b-12")]
        {
            let signed = token.sign(&lease);
            assert!(signed.expose().bytes().all(|byte| byte.is_ascii_graphic()));
            assert_eq!(token.verify(signed.expose().as_bytes()), Some(lease));
        }
    }

    #[test]
    fn altered_and_foreign_tokens_are_rejected() {
        let (token, other) = (token(), self::token());
        let signed = token.sign(&lease("s", "a", "lease-a-1"));
        let text = signed.expose();
        let forged = format!("{PREFIX}{}", hex(b"s"));
        for wrong in [
            "",
            "lease.",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}0"),
            &text.to_uppercase(),
            &text.replacen(&hex(b"s"), &hex(b"t"), 1),
            &forged,
            other.sign(&lease("s", "a", "lease-a-1")).expose(),
        ] {
            assert_eq!(token.verify(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(!token.is(text.as_bytes()), "a lease token is no operator's token");
    }
}
