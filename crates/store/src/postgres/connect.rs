//! `postgres://…`: where the server is, which schema is ours, how to get in.

use std::str::FromStr;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use tokio_postgres::{Config, NoTls};

use super::PATIENCE;
use crate::fault::Fault;

/// Connections of one process.
const POOL_SIZE: usize = 32;

/// A parsed URL.
pub(super) struct Target {
    config: Config,
    pub place: String,
    pub schema: String,
}

impl Target {
    pub fn parse(url: &str) -> Result<Self, Fault> {
        let bad = |problem: String| Fault::BadUrl { problem };
        let (base, own) = take_own_parameters(url);
        let mut config = Config::from_str(&base).map_err(|error| {
            let source =
                std::error::Error::source(&error).map_or(String::new(), |source| format!(": {source}"));
            bad(format!("{error}{source}"))
        })?;
        config.connect_timeout(PATIENCE).keepalives(true).application_name("rota");
        let mut schema = "rota".to_owned();
        for (key, value) in own {
            match key.as_str() {
                "schema" if is_plain(&value) => schema = value,
                "schema" => return Err(bad(format!("schema '{value}' must be letters, digits and '_'"))),
                other => return Err(bad(format!("unknown parameter '{other}'"))),
            }
        }
        let place = place(&config);
        Ok(Self { config, place, schema })
    }

    pub fn pool(&self) -> Result<Pool, Fault> {
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(self.config.clone(), NoTls, manager);
        let timeouts = Timeouts { wait: Some(PATIENCE), create: Some(PATIENCE), recycle: Some(PATIENCE) };
        let built =
            Pool::builder(manager).max_size(POOL_SIZE).timeouts(timeouts).runtime(Runtime::Tokio1).build();
        built.map_err(|error| Fault::Away { place: self.place.clone(), problem: error.to_string() })
    }
}

/// Takes out of the URL what is ours and not libpq's.
fn take_own_parameters(url: &str) -> (String, Vec<(String, String)>) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), Vec::new()) };
    let (mut own, mut rest) = (Vec::new(), Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("schema", value)) => own.push(("schema".to_owned(), value.to_owned())),
            _ => rest.push(pair),
        }
    }
    let base = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    (base, own)
}

fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn place(config: &Config) -> String {
    use tokio_postgres::config::Host;
    let host = config.get_hosts().first().map_or("localhost".to_owned(), |host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let port = config.get_ports().first().copied().unwrap_or(5432);
    format!("postgres://{host}:{port}/{}", config.get_dbname().unwrap_or_default())
}
