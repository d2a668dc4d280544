//! The gateway beside the daemon: it listens while the daemon runs, and every child gets a token of its own.

use std::sync::{Arc, Mutex, PoisonError};

use rota_auth::Token;
use rota_daemon::gateway::{Identities, Way};
use rota_daemon::manager::Setup;
use rota_daemon::manager::happening::Happening;
use rota_gateway::Notices;
use rota_verbs::Context;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{AllRunning, Show};
use crate::commands::gate::{Opened, Opening, told_as};
use crate::errors::{CliError, CliResult};
use crate::locate;

/// What is shown, by the daemon and the gateway.
#[derive(Clone)]
pub struct SharedShow(Arc<Mutex<Box<dyn Show>>>);

impl SharedShow {
    pub fn new(show: Box<dyn Show>) -> Self {
        Self(Arc::new(Mutex::new(show)))
    }

    /// Shows it; see [`Show::see`].
    pub fn see(&self, happening: &Happening, running: Option<AllRunning<'_>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).see(happening, running);
    }
}

/// A gateway that runs beside the daemon, if any.
pub struct Beside(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Beside {
    /// Starts it where the configuration has a section for it, and lets the daemon's children know.
    pub async fn start(
        cx: &Context,
        setup: &mut Setup,
        is_unwanted: bool,
        show: &SharedShow,
    ) -> CliResult<Self> {
        let Some(section) = setup.config.gateway.clone().filter(|_| !is_unwanted) else {
            return Ok(Self(None));
        };
        setup.has_gateway = true;
        let io = |error: std::io::Error| CliError::Io(error.to_string());
        let rota = setup.folders.rota.clone();
        let token =
            Token::of_file(&locate::token_file()?).map_err(|error| CliError::Io(error.to_string()))?;
        if let Some(url) = section.url {
            let way = Way { url: url.to_string(), credentials: section.config.credentials };
            let identities = Identities::new(way, token, None, &rota).map_err(io)?;
            setup.companions.push(Arc::new(identities));
            return Ok(Self(None));
        }
        let shown = show.clone();
        let notices: Notices = Arc::new(move |notice| shown.see(&told_as(notice), None));
        let opened = Opened::new(Opening {
            cx,
            whole: &setup.config,
            config_file: setup.config_file.clone(),
            config: &section.config,
            rota: &rota,
            publishes_to: setup.publish.then(|| setup.policy_copy.clone()),
            notices,
        })
        .await?;
        let keeper = Arc::clone(opened.gateway.keeper());
        let identities = Identities::new(opened.way.clone(), token, Some(keeper), &rota).map_err(io)?;
        setup.companions.push(Arc::new(identities));
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move { opened.serve(async { drop(stopped.await) }).await });
        Ok(Self(Some((stop, serving))))
    }

    /// Lets it end.
    pub async fn stop(self) {
        if let Some((stop, serving)) = self.0 {
            drop(stop);
            // A gateway that broke has told so itself.
            let _ended = serving.await;
        }
    }
}
