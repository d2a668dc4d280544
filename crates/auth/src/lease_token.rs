//! A lease's own token: what an agent shows instead of the operator's. It says which lease it is for, under a seal
//! that only a holder of the token file can make; so nothing has to be remembered, and a daemon that was started again
//! still knows the tokens of the agents that outlived it. Whether the lease is still held is for the store to say.

use hmac::{Hmac, KeyInit, Mac};
use rota_store::Secret;
use sha2::Sha256;

use crate::Token;

/// The beginning of every lease token; an operator's token has no dot in it.
pub const PREFIX: &str = "lease.";

/// The lease that a caller speaks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseClaim {
    /// The scope of its task.
    pub scope: String,
    /// The task.
    pub task: String,
    /// The lease.
    pub lease: String,
}

impl Token {
    /// The token of a lease.
    pub fn seal(&self, claim: &LeaseClaim) -> Secret {
        let body = [&claim.scope, &claim.task, &claim.lease].map(|part| hex(part.as_bytes())).join(".");
        let seal = hex(&self.mac(&body).finalize().into_bytes());
        format!("{PREFIX}{body}.{seal}").into()
    }

    /// The lease that a text is the token of.
    pub fn unseal(&self, shown: &[u8]) -> Option<LeaseClaim> {
        let shown = std::str::from_utf8(shown).ok()?.strip_prefix(PREFIX)?;
        let (body, seal) = shown.rsplit_once('.')?;
        self.mac(body).verify_slice(&unhex(seal)?).ok()?;
        let mut parts = body.split('.').map(|part| String::from_utf8(unhex(part)?).ok());
        let mut next = || parts.next().flatten();
        Some(LeaseClaim { scope: next()?, task: next()?, lease: next()? })
    }

    fn mac(&self, body: &str) -> Hmac<Sha256> {
        let keyed = Hmac::<Sha256>::new_from_slice(self.text().as_bytes());
        // HMAC takes a key of any length.
        let mut mac = keyed.unwrap_or_else(|_| unreachable!());
        mac.update(b"rota lease 1\n");
        mac.update(body.as_bytes());
        mac
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lower case only: one lease has one token.
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

    fn claim(scope: &str, task: &str, lease: &str) -> LeaseClaim {
        LeaseClaim { scope: scope.into(), task: task.into(), lease: lease.into() }
    }

    #[test]
    fn a_seal_says_which_lease_it_is_for() {
        let token = token();
        for claim in [claim("", "a", "lease-a-1"), claim("/w/x y", "grüße 😀.b", "lease-grüße 😀.b-12")]
        {
            let sealed = token.seal(&claim);
            assert!(sealed.expose().bytes().all(|byte| byte.is_ascii_graphic()));
            assert_eq!(token.unseal(sealed.expose().as_bytes()), Some(claim));
        }
    }

    #[test]
    fn what_was_changed_or_sealed_by_another_is_nothing() {
        let (token, other) = (token(), self::token());
        let sealed = token.seal(&claim("s", "a", "lease-a-1"));
        let text = sealed.expose();
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
            other.seal(&claim("s", "a", "lease-a-1")).expose(),
        ] {
            assert_eq!(token.unseal(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(!token.is(text.as_bytes()), "a lease is no operator");
    }
}
