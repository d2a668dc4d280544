//! Whether the surroundings are in order. Read-only, each check bounded, all failures listed.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use rota_store::Store;
use rota_store::intents::read::Now;
use serde::Serialize;

use crate::Shared;
use crate::git::{ask_remote, repository as repository_of};
use crate::sources::{Source, Trouble};
use rota_daemon::files::read_beneath;

/// How long a check may take.
const CHECK: Duration = Duration::from_secs(5);
/// No environment file is longer.
const FILE_BYTES: u64 = 1_024 * 1_024;

/// What one check came to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// What was looked at.
    pub check: &'static str,
    /// Whether it is in order.
    pub ok: bool,
    /// What is not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
}

/// One thing that is not in order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failure {
    /// Its code.
    pub code: String,
    /// What was found.
    pub detail: String,
}

fn failure(code: &str, detail: impl Into<String>) -> Failure {
    Failure { code: code.to_owned(), detail: detail.into() }
}

/// Looks at everything at once.
pub async fn validate<S: Source>(shared: &Shared<S>) -> Vec<Check> {
    let unreachable = tracker_code(&shared.source, "unreachable");
    let (repository, governance, runtime, tracker, label) = tokio::join!(
        bounded("environment.repository.unavailable", repository(shared)),
        bounded("environment.governance.unreadable", async { governance(shared) }),
        bounded("environment.runtime.invalid", runtime(shared)),
        bounded(&unreachable, tracker(shared)),
        bounded(&unreachable, label(shared)),
    );
    // A tracker that does not answer says nothing about its labels.
    let label = if tracker.is_empty() { label } else { Vec::new() };
    let named = [
        ("repository", repository),
        ("governance", governance),
        ("runtime", runtime),
        ("tracker", tracker),
        ("label", label),
    ];
    named.map(|(check, failures)| Check { check, ok: failures.is_empty(), failures }).to_vec()
}

/// The codes of what is not in order, each once.
pub fn codes(checks: &[Check]) -> Vec<String> {
    let mut codes: Vec<String> = Vec::new();
    for failure in checks.iter().flat_map(|check| &check.failures) {
        if !codes.contains(&failure.code) {
            codes.push(failure.code.clone());
        }
    }
    codes
}

async fn bounded(code: &str, check: impl Future<Output = Vec<Failure>>) -> Vec<Failure> {
    match tokio::time::timeout(CHECK, check).await {
        Ok(failures) => failures,
        Err(_) => vec![failure(code, format!("no answer within {} s", CHECK.as_secs()))],
    }
}

/// One call tells whether git can be called, and whether this is a work tree with a commit.
async fn repository<S: Source>(shared: &Shared<S>) -> Vec<Failure> {
    const CODE: &str = "environment.repository.unavailable";
    let folder = &shared.folder;
    let head = async { repository_of(folder).await?.commit("HEAD").await };
    match head.await {
        Ok(Some(_)) => {}
        Ok(None) => return vec![failure(CODE, "no git work tree with a commit: HEAD has no commit yet")],
        Err(error) if is_not_callable(&error) => {
            let detail = format!("git cannot be called: {error}");
            return vec![failure("environment.runtime.invalid", detail.clone()), failure(CODE, detail)];
        }
        Err(error) => return vec![failure(CODE, format!("no git work tree with a commit: {error}"))],
    }
    if shared.config.check_remote
        && let Err(error) = ask_remote(folder, "origin", CHECK).await
    {
        return vec![failure(CODE, format!("the remote 'origin': {error}"))];
    }
    Vec::new()
}

fn is_not_callable(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied)
}

fn governance<S: Source>(shared: &Shared<S>) -> Vec<Failure> {
    let config = &shared.config.governance;
    let mut failures: Vec<Failure> =
        config.files.iter().filter_map(|path| unreadable(&shared.folder, path)).collect();
    let path = &config.environment_file;
    match unreadable(&shared.folder, path) {
        Some(failure) => failures.push(failure),
        None => {
            let bytes = read_beneath(&shared.folder, path, FILE_BYTES).unwrap_or_default();
            let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&bytes);
            if !parsed.is_ok_and(|value| value.is_object()) {
                let detail = format!("'{path}' is not a JSON object");
                failures.push(failure("environment.governance.unreadable", detail));
            }
        }
    }
    failures
}

fn unreadable(folder: &Path, path: &str) -> Option<Failure> {
    let error = rota_daemon::files::open_beneath(folder, path).err()?;
    let is_missing = error.kind() == std::io::ErrorKind::NotFound;
    let code =
        if is_missing { "environment.governance.missing" } else { "environment.governance.unreadable" };
    Some(failure(code, format!("'{path}': {error}")))
}

async fn runtime<S: Source>(shared: &Shared<S>) -> Vec<Failure> {
    match shared.store.perform(&Now { call: shared.call.clone() }).await {
        Ok(_) => Vec::new(),
        Err(error) => vec![failure("environment.runtime.invalid", format!("the store: {error}"))],
    }
}

fn tracker_code<S: Source>(source: &S, word: &str) -> String {
    format!("environment.{}.{word}", source.kind().map_or("local", |kind| kind.word()))
}

async fn tracker<S: Source>(shared: &Shared<S>) -> Vec<Failure> {
    match shared.source.check().await {
        Ok(repository) => {
            shared.note_public(repository.is_public);
            Vec::new()
        }
        Err(trouble) => vec![of_trouble(&shared.source, &trouble)],
    }
}

fn of_trouble<S: Source>(source: &S, trouble: &Trouble) -> Failure {
    failure(&tracker_code(source, trouble.word()), trouble.to_string())
}

async fn label<S: Source>(shared: &Shared<S>) -> Vec<Failure> {
    let name = &shared.config.claim_label;
    match shared.source.has_claim_label().await {
        Ok(true) => Vec::new(),
        Ok(false) => {
            vec![failure("environment.labels.missing", format!("there is no label '{name}': make it once"))]
        }
        Err(trouble) => vec![of_trouble(&shared.source, &trouble)],
    }
}
