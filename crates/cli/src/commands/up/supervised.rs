//! The supervisor inside of `rota up`. Its lines go to `.rota/run/supervise.log`; while another process holds the state
//! file's lock it waits.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rota_daemon::manager;
use rota_daemon::manager::happening::Happening;
use rota_supervise::configured::WithSource;
use rota_supervise::sources::Source;
use rota_supervise::state_file::{StateError, StateFile};
use rota_supervise::{Shared, Stop, Told, Until};
use rota_verbs::Context;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::gateway::SharedShow;
use crate::args::Common;
use crate::commands::supervise::{configured, with_source};
use crate::errors::{CliError, CliResult};

/// A longer log is put aside before more is written.
const LOG_BYTES: u64 = 16 * 1_024 * 1_024;
/// How long a cycle may take to end when the daemon does.
const GRACE: Duration = Duration::from_secs(5);
/// How often the state file's lock is tried.
const LOCK: Duration = Duration::from_secs(1);

/// A supervisor that runs beside the daemon, if any.
pub struct Supervised(Option<(mpsc::Sender<()>, JoinHandle<()>)>);

impl Supervised {
    /// Starts it where `--supervise` or the configuration asks for it, in a daemon that does not end by itself.
    pub fn start(
        common: &Common,
        cx: &Context,
        (until, is_wanted): (manager::Until, bool),
        rota: &Path,
        show: &SharedShow,
    ) -> CliResult<Self> {
        if until != manager::Until::Stopped {
            return Ok(Self(None));
        }
        let supervisor = configured(common)?;
        let Some(supervisor) = supervisor.filter(|found| is_wanted || found.config.in_up) else {
            if is_wanted {
                return Err(CliError::Io(
                    "--supervise: rota.yml has no section 'supervisor' (try supervisor: {source: local})"
                        .to_owned(),
                ));
            }
            return Ok(Self(None));
        };
        let (ask, asked) = mpsc::channel(2);
        let begin = Begin {
            state_file: supervisor.state_file(),
            log: rota.join("run/supervise.log"),
            show: show.clone(),
            asked,
        };
        let running = with_source(&supervisor, cx, begin)?;
        Ok(Self(Some((ask, running))))
    }

    /// Lets the cycle under way end, and cuts it off if that takes long: the next cycle repairs what it leaves.
    pub async fn stop(self) {
        let Some((ask, mut running)) = self.0 else { return };
        // One that has ended by itself hears nothing.
        let _asked = ask.send(()).await;
        if tokio::time::timeout(GRACE, &mut running).await.is_err() {
            let _asked = ask.send(()).await;
            let _ended = running.await;
        }
    }
}

struct Begin {
    state_file: PathBuf,
    log: PathBuf,
    show: SharedShow,
    asked: mpsc::Receiver<()>,
}

impl WithSource for Begin {
    type Output = JoinHandle<()>;

    fn run<S: Source>(self, shared: Shared<S>) -> JoinHandle<()> {
        let show = self.show.clone();
        tokio::spawn(async move {
            if let Err(error) = self.cycles(Arc::new(shared)).await {
                let problem = format!("the supervisor has ended: {}", error.in_words());
                show.see(&Happening::Trouble { problem }, None);
            }
        })
    }
}

impl Begin {
    async fn cycles<S: Source>(self, shared: Arc<Shared<S>>) -> Result<(), CliError> {
        let Self { state_file, log, show, asked } = self;
        let failed = |error: StateError| CliError::Io(error.to_string());
        let mut stop = Stop::Channel(asked);
        let mut has_said = false;
        let file = loop {
            match StateFile::take(&state_file) {
                Ok(file) => break file,
                Err(error @ StateError::Taken { .. }) => {
                    if !has_said {
                        let problem = format!("the supervisor waits: {error}");
                        write(&log, &format!("{problem}\n"))?;
                        show.see(&Happening::Trouble { problem }, None);
                    }
                    has_said = true;
                }
                Err(error) => return Err(failed(error)),
            }
            tokio::select! {
                () = tokio::time::sleep(LOCK) => {}
                () = stop.next() => return Ok(()),
            }
        };
        let mut broken = None;
        let mut tell = |told: Told| match write(&log, &text(&told)) {
            Ok(()) => true,
            Err(error) => {
                broken.get_or_insert(error);
                false
            }
        };
        let ended = rota_supervise::run(shared, &file, Until::Stopped, &mut stop, &mut tell).await;
        ended.map_err(failed)?;
        broken.map_or(Ok(()), Err)
    }
}

/// As `rota supervise` prints it.
fn text(told: &Told) -> String {
    let escaped = rota_core::text::escaped;
    match told {
        Told::Lines(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
        Told::Warning(text) => format!("warning: {}\n", escaped(text)),
        Told::Notice(text) => format!("{}\n", escaped(text)),
        Told::Cycle(_) => String::new(),
    }
}

/// Appends to the log; a link in its place is not followed.
fn write(log: &Path, text: &str) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::Io(format!("{}: {error}", log.display()));
    if std::fs::symlink_metadata(log).is_ok_and(|found| found.len() > LOG_BYTES) {
        std::fs::rename(log, log.with_extension("log.1")).map_err(failed)?;
    }
    let file = rota_store::open_own(File::options().create(true).append(true).mode(0o600), log);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)
}
