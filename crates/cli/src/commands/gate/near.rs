//! The gateway of this workspace, for whoever runs commands beside it: each command gets a token of its own lease.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rota_auth::Token;
use rota_daemon::companion::{Companion, Held};
use rota_daemon::gateway::{Identities, Way};

use super::{run, section};
use crate::args::Common;
use crate::errors::CliResult;
use crate::{locate, output};

/// How long to wait for one that may be gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// Looks for it whenever a command begins: it may come and go.
pub struct NearGateway {
    rota: PathBuf,
    token_file: PathBuf,
    /// Where `rota.yml` says it is; else it says so itself.
    named: Option<String>,
    credentials: rota_gateway::Credentials,
    known: Mutex<Option<(String, Arc<Identities>)>>,
}

impl NearGateway {
    /// Of this workspace, whether it runs or not.
    pub fn new(common: &Common) -> CliResult<Self> {
        let section = section(common)?;
        Ok(Self {
            rota: locate::workspace()?.1,
            token_file: locate::token_file()?,
            named: section.url.map(|url| url.to_string()),
            credentials: section.config.credentials,
            known: Mutex::new(None),
        })
    }

    fn identities(&self) -> Option<Arc<Identities>> {
        let url = self.named.clone().or_else(|| run::listening(&self.rota).filter(|url| is_open(url)))?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((place, identities)) = &*known
            && *place == url
        {
            return Some(Arc::clone(identities));
        }
        match self.made(&url) {
            Ok(identities) => {
                let identities = Arc::new(identities);
                *known = Some((url, Arc::clone(&identities)));
                Some(identities)
            }
            Err(error) => {
                // The command runs all the same, past the gateway.
                let _told = output::warn(&format!("no token for the gateway: {error}"));
                None
            }
        }
    }

    fn made(&self, url: &str) -> std::io::Result<Identities> {
        let token = Token::of_file(&self.token_file).map_err(std::io::Error::other)?;
        let way = Way { url: url.to_owned(), credentials: self.credentials };
        Identities::new(way, token, None, &self.rota)
    }
}

/// A file says where it listens; one that was killed left it behind.
fn is_open(url: &str) -> bool {
    let address: Option<SocketAddr> = url.strip_prefix("http://").and_then(|place| place.parse().ok());
    address.is_some_and(|address| TcpStream::connect_timeout(&address, PATIENCE).is_ok())
}

impl Companion for NearGateway {
    fn begun(&self, held: &Held) -> Vec<(String, String)> {
        self.identities().map_or(Vec::new(), |identities| identities.begun(held))
    }

    /// The gateway asks the store, which knows that the lease has ended.
    fn ended(&self, _held: &Held) {}
}
