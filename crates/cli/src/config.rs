//! `rota.yml`: for now where the store is and which scope applies.

use std::path::Path;

use serde_yaml_ng::Value;

use crate::errors::{CliError, CliResult};

/// What a configuration file says that every command needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub store: Option<String>,
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
    Ok(Config { store: text_of("store")?, scope: text_of("scope")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_every_command_needs() {
        let config = parse("scope: a/b@main\nstore: sqlite:x.db\nloops: {}\n");
        assert_eq!(config, Ok(Config { store: Some("sqlite:x.db".into()), scope: Some("a/b@main".into()) }));
        assert_eq!(parse(""), Ok(Config::default()));
        assert_eq!(parse("scope: [1]"), Err("scope: expected a text".to_owned()));
        assert!(parse("- a").is_err());
        assert!(parse("a: [").is_err());
    }
}
