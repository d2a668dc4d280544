//! libpq's file of passwords: `host:port:database:user:password` lines, `*` for any, `\` before `:` and `\`.
//!
//! It comes from `passfile`, `PGPASSFILE` or `~/.pgpass`. One that others may read is left alone, as by libpq.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio_postgres::config::Host;

use super::url::SOCKET_FOLDERS;
use crate::secret::Secret;

/// The lines of a file.
#[derive(Clone, Default)]
pub(super) struct Passfile {
    lines: Vec<([String; 4], Secret)>,
}

impl Passfile {
    /// Reads a file that is there, a regular one, and its owner's alone; none is an empty one.
    pub fn read(path: Option<PathBuf>) -> Self {
        let private = |path: &PathBuf| {
            std::fs::metadata(path)
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o077 == 0)
        };
        let text = path.filter(private).and_then(|path| std::fs::read_to_string(path).ok());
        Self::parse(&text.unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let mut fields = fields(line).into_iter();
            let key = [fields.next()?, fields.next()?, fields.next()?, fields.next()?];
            Some((key, Secret::from(fields.next()?)))
        });
        Self { lines: lines.collect() }
    }

    /// The password of the first line that fits.
    pub fn password(&self, host: &Host, port: u16, database: &str, user: &str) -> Option<&Secret> {
        let host = match host {
            Host::Tcp(name) => name.clone(),
            // Where servers usually are.
            Host::Unix(folder) if SOCKET_FOLDERS.iter().any(|usual| folder == Path::new(usual)) => {
                "localhost".to_owned()
            }
            Host::Unix(folder) => folder.display().to_string(),
        };
        let wanted = [host, port.to_string(), database.to_owned(), user.to_owned()];
        let fits = |key: &[String; 4]| key.iter().zip(&wanted).all(|(key, is)| key == "*" || key == is);
        self.lines.iter().find(|(key, _)| fits(key)).map(|(_, password)| password)
    }
}

/// At most five: colons in the password need no backslash, but may have one.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        let taken = match character {
            '\\' => rest.next(),
            ':' if fields.len() < 5 => {
                fields.push(String::new());
                continue;
            }
            other => Some(other),
        };
        if let Some(field) = fields.last_mut() {
            field.extend(taken);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# comment\ndb:5432:work:ann:first\n\
         db:*:*:ann:second\n[odd line]\nlocalhost:5432:work:ann:by:socket\n\
         /a\\:b:1:d:u:col\\:on\\\\\n*:*:*:bob:any\n";

    #[test]
    fn the_first_line_that_fits() {
        let file = Passfile::parse(FILE);
        let tcp = |name: &str| Host::Tcp(name.to_owned());
        let unix = |path: &str| Host::Unix(path.into());
        let cases = [
            (tcp("db"), 5432, "work", "ann", Some("first")),
            (tcp("db"), 5433, "work", "ann", Some("second")),
            (tcp("other"), 5432, "work", "ann", None),
            (unix("/var/run/postgresql"), 5432, "work", "ann", Some("by:socket")),
            (unix("/a:b"), 1, "d", "u", Some("col:on\\")),
            (tcp("anywhere"), 1, "x", "bob", Some("any")),
        ];
        for (host, port, database, user, expected) in cases {
            let found = file.password(&host, port, database, user).map(Secret::expose);
            assert_eq!(found, expected, "{port} {database} {user}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pgpass");
        std::fs::write(&path, FILE).unwrap();
        for (mode, lines) in [(0o600, 5), (0o400, 5), (0o640, 0), (0o604, 0)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(Passfile::read(Some(path.clone())).lines.len(), lines, "{mode:o}");
        }
        assert!(Passfile::read(Some(folder.path().to_owned())).lines.is_empty());
        assert!(Passfile::read(None).lines.is_empty());
    }
}
