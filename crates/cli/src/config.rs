//! `rota.yml`: for now where the store is and which scope applies.

use std::path::Path;

use rota_store::Secret;
use serde_yaml_ng::Value;

use crate::errors::{CliError, CliResult};

/// What a configuration file says that every command needs.
#[derive(Default, PartialEq, Eq)]
pub struct Config {
    pub store: Option<Secret>,
    pub scope: Option<String>,
}

/// Reads a file; none if it does not exist and nobody asked for it.
pub fn read(path: &Path, required: bool) -> CliResult<Option<Config>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !required => return Ok(None),
        Err(error) => return Err(CliError::Io(format!("{}: {error}", path.display()))),
    };
    parse(&text).map(Some).map_err(|problem| CliError::Io(format!("{}: {problem}", path.display())))
}

fn parse(text: &str) -> Result<Config, String> {
    let document: Value = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
    let text_of = |key: &str| match document.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{key}: expected a text")),
    };
    if !matches!(document, Value::Mapping(_) | Value::Null) {
        return Err("expected a mapping at the top".to_owned());
    }
    Ok(Config { store: text_of("store")?.map(Secret::from), scope: text_of("scope")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(secret: Secret) -> String {
        secret.expose().to_owned()
    }

    #[test]
    fn reads_what_every_command_needs() {
        let read = |text: &str| parse(text).map(|config| (config.store.map(shown), config.scope));
        let expected = (Some("sqlite:x.db".to_owned()), Some("a/b@main".to_owned()));
        assert_eq!(read("scope: a/b@main\nstore: sqlite:x.db\nloops: {}\n"), Ok(expected));
        assert_eq!(read(""), Ok((None, None)));
        assert_eq!(read("scope: [1]"), Err("scope: expected a text".to_owned()));
        assert!(parse("- a").is_err());
        assert!(parse("a: [").is_err());
    }
}
