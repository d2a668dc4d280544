//! The operator's token: a secret that is never printed, and the file it is kept in.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rota_store::Secret;
use rustix::fs::OFlags;
use subtle::ConstantTimeEq;

/// Random bytes in a generated token.
const RANDOM_BYTES: usize = 32;
/// A shorter token could be guessed.
const SHORTEST: usize = 32;
/// A longer file is not a token file.
const LONGEST: usize = 1_024;

/// The operator's token: a secret, compared in constant time and never printed.
pub struct Token(Secret);

/// Why a token file was rejected.
#[derive(Debug, thiserror::Error)]
pub enum TokenFault {
    /// Other users can read or replace it.
    #[error("{} can be read or changed by others (mode {mode:04o}): run chmod 600 {}", path.display(), path.display())]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Owned by another user.
    #[error("{} belongs to another user: remove it, and a new one is made", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// A link, a folder, a device.
    #[error("{} is not a regular file: remove it, and a new one is made", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// Too short, too long or not printable ASCII.
    #[error(
        "{} holds no token: {SHORTEST} to {LONGEST} visible ASCII characters are wanted; remove it, and a new one is \
         made", path.display()
    )]
    NotAToken {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The system has no random bits.
    #[error("no random bits for a token: {0}")]
    NoRandom(getrandom::Error),
}

impl Token {
    /// A new random token.
    pub fn random() -> Result<Self, TokenFault> {
        let mut bytes = [0_u8; RANDOM_BYTES];
        getrandom::fill(&mut bytes).map_err(TokenFault::NoRandom)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()))
    }

    /// The token in a file, which is created if it is missing. Processes that do so concurrently get the same token.
    pub fn of_file(path: &Path) -> Result<Self, TokenFault> {
        match Self::read(path) {
            Err(TokenFault::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            found => return found,
        }
        Self::random()?.write_new(path)?;
        Self::read(path)
    }

    /// A token that was accepted before, kept to recognise it. None if it is not UTF-8.
    pub fn seen(shown: &[u8]) -> Option<Self> {
        std::str::from_utf8(shown).ok().map(|text| Self(text.into()))
    }

    /// Compares in constant time for a given length.
    pub fn is(&self, shown: &[u8]) -> bool {
        self.0.expose().as_bytes().ct_eq(shown).into()
    }

    /// For the operator's own clients.
    pub fn secret(&self) -> &Secret {
        &self.0
    }

    /// The key of signatures.
    pub(crate) fn text(&self) -> &str {
        self.0.expose()
    }

    fn read(path: &Path) -> Result<Self, TokenFault> {
        let at = || path.to_owned();
        let options = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let opened = File::options().read(true).custom_flags(options.cast_signed()).open(path);
        let file = opened.map_err(|source| {
            let is_link = source.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
            if is_link { TokenFault::NotAFile { path: at() } } else { TokenFault::Io { path: at(), source } }
        })?;
        let failed = |source| TokenFault::Io { path: at(), source };
        let seen = file.metadata().map_err(failed)?;
        if !seen.is_file() {
            return Err(TokenFault::NotAFile { path: at() });
        }
        if seen.uid() != rustix::process::geteuid().as_raw() {
            return Err(TokenFault::NotOurs { path: at() });
        }
        if seen.mode() & 0o077 != 0 {
            return Err(TokenFault::TooOpen { path: at(), mode: seen.mode() & 0o7777 });
        }
        let mut text = String::new();
        let read = file.take(LONGEST as u64 + 2).read_to_string(&mut text);
        let token = text.trim_end();
        let fits =
            (SHORTEST..=LONGEST).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
        match read {
            Ok(_) if fits => Ok(Self(token.into())),
            Ok(_) => Err(TokenFault::NotAToken { path: at() }),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                Err(TokenFault::NotAToken { path: at() })
            }
            Err(source) => Err(failed(source)),
        }
    }

    /// Creates the file atomically: a hard link to a complete file succeeds, or another process was first.
    fn write_new(&self, path: &Path) -> Result<(), TokenFault> {
        let failed = |source| TokenFault::Io { path: path.to_owned(), source };
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(format!(".{}.{}", std::process::id(), &Self::random()?.0.expose()[..8]));
        let fresh = PathBuf::from(fresh);
        let mut file =
            File::options().write(true).create_new(true).mode(0o600).open(&fresh).map_err(failed)?;
        let written = file
            .write_all(format!("{}\n", self.0.expose()).as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| match std::fs::hard_link(&fresh, path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
                linked => linked,
            });
        let removed = std::fs::remove_file(&fresh);
        written.and(removed).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"))
    }

    fn made(path: &Path) -> Token {
        Token::of_file(path).unwrap_or_else(|error| panic!("{error}"))
    }

    fn refused(path: &Path) -> String {
        match Token::of_file(path) {
            Ok(_) => panic!("{} was taken", path.display()),
            Err(error) => error.to_string().replace(&path.display().to_string(), "F"),
        }
    }

    fn put(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap_or_else(|error| panic!("{error}"));
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn one_is_made_once_for_its_owner_alone() {
        let folder = folder();
        let path = folder.path().join("token");
        let tokens: Vec<Token> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| made(&path))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| panic!("a thread failed")))
                .collect()
        });
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text.trim_end().len(), 2 * RANDOM_BYTES);
        assert!(tokens.iter().all(|token| token.is(text.trim_end().as_bytes())));
        assert_eq!(path.metadata().map(|seen| seen.mode() & 0o777).ok(), Some(0o600));
        let left: Vec<_> = std::fs::read_dir(folder.path()).into_iter().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn two_tokens_differ_and_only_the_whole_one_counts() {
        let (one, other) = (Token::random(), Token::random());
        let (Ok(one), Ok(other)) = (one, other) else { panic!("no random bits") };
        assert!(one.is(one.0.expose().as_bytes()) && !one.is(other.0.expose().as_bytes()));
        let text = one.0.expose();
        for wrong in ["", &text[1..], &format!("{text}0"), &text.to_uppercase()] {
            assert!(!one.is(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn what_others_could_have_made_is_refused() {
        let folder = folder();
        let path = folder.path().join("token");
        let good = "x".repeat(SHORTEST);
        for mode in [0o644, 0o640, 0o620, 0o604, 0o602, 0o660] {
            put(&path, &good, mode);
            let wanted = format!("F can be read or changed by others (mode {mode:04o}): run chmod 600 F");
            assert_eq!(refused(&path), wanted);
        }
        put(&path, &good, 0o600);
        assert!(made(&path).is(good.as_bytes()));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap_or_else(|error| panic!("{error}"));
        assert!(refused(&link).starts_with("F is not a regular file"), "{}", refused(&link));
        assert!(refused(folder.path()).starts_with("F is not a regular file"));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let folder = folder();
        let path = folder.path().join("token");
        for text in ["", "short", &"x".repeat(LONGEST + 1), &format!("{} {}", "x".repeat(20), "x".repeat(20))]
        {
            put(&path, text, 0o600);
            assert!(refused(&path).starts_with("F holds no token"), "{text}");
        }
        std::fs::write(&path, [0xff; 64]).unwrap_or_else(|error| panic!("{error}"));
        assert!(refused(&path).starts_with("F holds no token"));
    }
}
