//! A supervisor as `rota.yml` configures it: its settings, the token of its tracker, and the source it opens.
#![allow(missing_docs, reason = "the names say it")]

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rota_daemon::config::{LoopKind, SourceConfig, SupervisorConfig, TokenPlace, TrackerConfig, TrackerKind};
use rota_daemon::folders::Folders;
use rota_store::intents::Call;
use rota_store::{AnyStore, Secret};
use serde::Deserialize;

use crate::Shared;
use crate::sources::gitea::Gitea;
use crate::sources::github::GitHub;
use crate::sources::local::Local;
use crate::sources::{Connection, Patience, Source};

/// Seconds that a file of settings may give.
const SECONDS: std::ops::RangeInclusive<u64> = 1..=86_400;

/// The section `supervisor` of `rota.yml`.
pub struct Configured {
    pub config: SupervisorConfig,
    /// The folder of `rota.yml`, which its paths are relative to.
    pub folder: PathBuf,
    /// How loops that issues become are run.
    pub kind: LoopKind,
    pub folders: Folders,
}

/// Why a supervisor cannot be set up as configured.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(String);

/// An operation on a supervisor, whatever its source.
pub trait WithSource {
    type Output;
    fn run<S: Source>(self, shared: Shared<S>) -> Self::Output;
}

/// Settings that may come in a file of their own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    cycle_interval_seconds: Option<u64>,
    cycle_max_runtime_seconds: Option<u64>,
}

impl Configured {
    pub fn state_file(&self) -> PathBuf {
        self.folder.join(&self.config.state_file)
    }

    /// The holder of the leases: the same after a restart, another for every state file.
    pub fn agent(&self, host: &str) -> String {
        format!("supervisor@{host}:{}", self.state_file().display())
    }

    /// Overrides the configuration with a file of settings.
    pub fn apply_settings(&mut self, file: &str) -> Result<(), SetupError> {
        let wrong = |problem: String| SetupError(format!("--settings {file}: {problem}"));
        let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
        let given: SettingsFile = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let settings = [
            ("cycle_interval_seconds", given.cycle_interval_seconds, &mut self.config.cycle_interval_secs),
            (
                "cycle_max_runtime_seconds",
                given.cycle_max_runtime_seconds,
                &mut self.config.cycle_max_runtime_secs,
            ),
        ];
        for (key, given, setting) in settings {
            let Some(seconds) = given else { continue };
            if !SECONDS.contains(&seconds) {
                return Err(wrong(format!("{key}: expected a whole number from 1 to 86400")));
            }
            *setting = seconds;
        }
        Ok(())
    }

    /// The token of the tracker, from the variable or the file that the configuration names; none for local issues.
    /// `variable` reads the environment.
    pub fn token<E: From<SetupError>>(
        &self,
        variable: impl Fn(&str) -> Result<Option<String>, E>,
    ) -> Result<Option<Secret>, E> {
        let SourceConfig::Tracker(tracker) = &self.config.source else { return Ok(None) };
        let text = match &tracker.token {
            TokenPlace::Variable(name) => variable(name)?.ok_or_else(|| {
                SetupError(format!("the variable {name}, which supervisor.token_env names, is not set"))
            })?,
            TokenPlace::File(path) => token_file(&self.folder.join(path), tracker)?,
        };
        if text.trim().is_empty() {
            return Err(SetupError("the token of the tracker is empty".to_owned()).into());
        }
        Ok(Some(Secret::from(text.trim())))
    }

    /// Opens the source and runs an operation on the supervisor. The token is that of [`Self::token`].
    pub fn with_source<W: WithSource>(
        &self,
        (store, call, agent): (AnyStore, Call, String),
        token: Option<&Secret>,
        then: W,
    ) -> Result<W::Output, SetupError> {
        let call = Call { actor: Some(agent.clone()), ..call };
        let label = self.config.claim_label.clone();
        match (self.config.source.clone(), token) {
            (SourceConfig::Tracker(tracker), Some(token)) => {
                let connection = Connection::new(&tracker, token, Patience::default())
                    .map_err(|error| SetupError(error.to_string()))?;
                Ok(match tracker.kind {
                    TrackerKind::Gitea => {
                        let source = Gitea::new(connection, tracker, label);
                        then.run(self.shared(store, call, agent, source)?)
                    }
                    TrackerKind::GitHub => {
                        let source = GitHub::new(connection, tracker, label);
                        then.run(self.shared(store, call, agent, source)?)
                    }
                })
            }
            (SourceConfig::Tracker(_), None) => {
                Err(SetupError("the token of the tracker is missing".to_owned()))
            }
            (SourceConfig::Local, _) => {
                let source = Local::new(store.clone(), call.clone(), label);
                Ok(then.run(self.shared(store, call, agent, source)?))
            }
        }
    }

    fn shared<S: Source>(
        &self,
        store: AnyStore,
        call: Call,
        agent: String,
        source: S,
    ) -> Result<Shared<S>, SetupError> {
        let shared = Shared::new(store, call, agent, source, self.config.clone(), self.folder.clone());
        let mut shared = shared.map_err(|error| SetupError(error.to_string()))?;
        (shared.kind, shared.folders) = (self.kind.clone(), Some(self.folders.clone()));
        Ok(shared)
    }
}

/// The content of a token file, which only its owner may be able to read.
fn token_file(path: &Path, tracker: &TrackerConfig) -> Result<String, SetupError> {
    let failed =
        |error: std::io::Error| SetupError(format!("supervisor.token_file {}: {error}", path.display()));
    let mut file = rota_store::open_regular(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 && !tracker.allows_shared_token_file {
        return Err(SetupError(format!(
            "supervisor.token_file {}: other users can read it (mode {:03o}): chmod 600 it, or accept that with \
             allow_insecure: [token_file]",
            path.display(),
            mode & 0o777
        )));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}
