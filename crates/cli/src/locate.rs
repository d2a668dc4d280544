//! Where things are: the git root, the store, the configuration; who asks, and from which host.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rota_core::TaskId;
use rota_daemon::agent_user::AgentUser;
use rota_daemon::config::Config;
use rota_daemon::folders::Folders;
use rota_daemon::room;
use rota_serve::client::Endpoint;
use rota_store::{AnyStore, Location, Secret};
use rota_verbs::loops::Settings;
use rota_verbs::{Claimant, Context, checked_name, input};

use crate::args::Common;
use crate::backend::{Backend, Remote};
use crate::errors::{CliError, CliResult};

/// A variable that is set and not empty.
pub fn variable(name: &str) -> CliResult<Option<String>> {
    match rota_store::environment::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(CliError::value(format!("{name} is not valid UTF-8"))),
    }
}

/// Hides the secrets of a daemon from other processes of the same user, agents included: neither its environment nor its
/// memory shows them. Called before anything else is begun.
pub fn hide_secrets(common: &Common) -> CliResult<()> {
    rota_store::environment::hide_secrets(&configured(common)?.config.secret_variables()).map_err(
        |error| CliError::Io(format!("cannot start without the secrets in the environment: {error}")),
    )?;
    rota_daemon::shim::nursery::hide_memory();
    Ok(())
}

/// Where the store is; it is not opened.
pub fn location_of(common: &Common) -> CliResult<Location> {
    let (base, here) = base()?;
    let configured = configured_below(common, &base)?;
    place(common, &configured, &base, &here)
}

/// The git root, or else the current folder; and the current folder.
fn base() -> CliResult<(PathBuf, PathBuf)> {
    let here = std::env::current_dir().map_err(|error| CliError::Io(format!("current folder: {error}")))?;
    Ok((git_root(&here).unwrap_or_else(|| here.clone()), here))
}

/// What a flag says, else a variable.
fn given(flag: &Option<String>, name: &str) -> CliResult<Option<String>> {
    match flag {
        Some(value) => Ok(Some(value.clone()).filter(|value| !value.is_empty())),
        None => variable(name),
    }
}

fn place(common: &Common, configured: &Configured, base: &Path, here: &Path) -> CliResult<Location> {
    if let Some(server) = server_address(common, configured)? {
        return Err(CliError::wants_store(&Endpoint::new(&server, "".into())?.name()));
    }
    let flag = common.store.as_ref().map(|store| store.expose().to_owned());
    match given(&flag, "ROTA_STORE")? {
        Some(store) => location(&store, here),
        None => {
            match configured.config.store.as_ref().map(Secret::expose).filter(|store| !store.is_empty()) {
                Some(store) => location(store, &configured.folder),
                None => Ok(Location::Sqlite(base.join(".rota").join("rota.db"))),
            }
        }
    }
}

/// Where agents work, and `.rota` with what belongs to this workspace.
pub fn workspace() -> CliResult<(PathBuf, PathBuf)> {
    let (base, _) = base()?;
    let rota = base.join(".rota");
    make_folder(&rota)?;
    Ok((base, rota))
}

/// The folders of loops, as the configuration places them.
pub fn folders(common: &Common) -> CliResult<Folders> {
    let (base, _) = base()?;
    let mut folders = Folders::new(&base, &base.join(".rota"));
    if let Some(agents) = configured(common)?.config.agents {
        let found = AgentUser::find(&agents).map_err(|error| CliError::Io(error.to_string()))?;
        folders.agents = Some(Arc::new(found));
    }
    Ok(folders)
}

/// The folder this program was started in.
pub fn current_folder() -> CliResult<String> {
    Ok(base()?.1.to_string_lossy().into_owned())
}

/// The store and surroundings that flags, variables and configuration name.
pub fn context(common: &Common) -> CliResult<Context> {
    let backend = backend(common)?;
    match backend {
        Backend::Store(cx) => Ok(*cx),
        Backend::Server(_) => backend.store().cloned(),
    }
}

/// The same for a program that serves many callers: their concurrent calls share transactions.
pub fn serving_context(common: &Common) -> CliResult<Context> {
    let cx = context(common)?;
    Ok(Context { store: cx.store.clone().batched(), ..cx })
}

/// The server that is asked instead of a store, if one is named.
pub fn remote(common: &Common) -> CliResult<Option<Box<Remote>>> {
    let (base, _) = base()?;
    let configured = configured_below(common, &base)?;
    let Some(address) = server_address(common, &configured)? else { return Ok(None) };
    match server(common, &configured, &base, &address)? {
        Backend::Server(remote) => Ok(Some(remote)),
        Backend::Store(_) => Ok(None),
    }
}

/// Whom to ask: the store that flags, variables and configuration name, or a server.
pub fn backend(common: &Common) -> CliResult<Backend> {
    let (base, here) = base()?;
    let configured = configured_below(common, &base)?;
    if let Some(address) = server_address(common, &configured)? {
        return server(common, &configured, &base, &address);
    }
    let location = place(common, &configured, &base, &here)?;
    let now = common.now.as_deref().map(input::now).transpose().map_err(CliError::reading)?;
    let runners = Arc::new(configured.config.runners());
    let scope = scope(common, &configured)?;
    let agent = checked_name("agent", agent(common)?)?;
    let config = Arc::new(configured.config);
    let folders = Folders::new(&base, &base.join(".rota"));
    let folder = Some(here.to_string_lossy().into_owned());
    let (by_kind, here, looked_at) = (Arc::clone(&config), config, folders.clone());
    Ok(Backend::Store(Box::new(Context {
        store: crate::block_on(AnyStore::open(&location))?,
        scope,
        agent,
        lease: common.lease_id.clone().filter(|lease| !lease.is_empty()),
        ambient_lease: variable("ROTA_LEASE")?,
        token: None,
        now,
        allow_future: variable("ROTA_ALLOW_NOW")?.as_deref() == Some("1"),
        host: Some(host()?),
        runners,
        settings: Settings::by(
            move |kind, policy| by_kind.settings(kind, policy),
            move |kind| room::waits(&here, &folders, kind),
        )
        .with_validating(move |task| room::is_validating(&looked_at, task)),
        claimant: Claimant::Caller,
        folder,
    })))
}

fn scope(common: &Common, configured: &Configured) -> CliResult<String> {
    let scope = given(&common.scope, "ROTA_SCOPE")?.or_else(|| configured.config.scope.clone());
    Ok(checked_name("scope", scope)?.unwrap_or_else(|| "default".to_owned()))
}

/// Who asks, as far as anybody said so.
pub fn agent(common: &Common) -> CliResult<Option<String>> {
    given(&common.agent, "ROTA_AGENT")
}

/// Whether verbs are asked of a server.
pub fn is_remote(common: &Common) -> CliResult<bool> {
    let (base, _) = base()?;
    Ok(server_address(common, &configured_below(common, &base)?)?.is_some())
}

/// What is named as the store, if it is the address of a server.
fn server_address(common: &Common, configured: &Configured) -> CliResult<Option<String>> {
    let flag = common.store.as_ref().map(|store| store.expose().to_owned());
    let in_file = || configured.config.store.as_ref().map(|store| store.expose().to_owned());
    let named = given(&flag, "ROTA_STORE")?.or_else(in_file);
    Ok(named.filter(|store| store.starts_with("http://") || store.starts_with("https://")))
}

/// A server, the token it wants to see, and what it is told of this call.
fn server(common: &Common, configured: &Configured, base: &Path, address: &str) -> CliResult<Backend> {
    let now = common.now.as_deref().map(input::now).transpose().map_err(CliError::reading)?;
    let agent = checked_name("agent", agent(common)?)?;
    let lease = common.lease_id.clone().filter(|lease| !lease.is_empty());
    let surroundings = [
        ("scope", Some(scope(common, configured)?)),
        ("agent", agent),
        ("leaseId", lease),
        ("ambientLease", variable("ROTA_LEASE")?),
        ("now", now.map(|now| now.to_string())),
        ("host", Some(host()?)),
    ];
    let surroundings = surroundings.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let token = match variable("ROTA_TOKEN")? {
        Some(token) => token,
        None => kept_token(&base.join(".rota").join("token"))?,
    };
    let endpoint = Endpoint::new(address, token.into())?;
    Ok(Backend::Server(Box::new(Remote { endpoint, surroundings })))
}

/// Reads a small file of `.rota` or `.git` that has one line.
pub fn read_note(path: &Path) -> std::io::Result<String> {
    const NOTE_BYTES: u64 = 4_096;
    let mut text = String::new();
    rota_store::open_regular(path)?.take(NOTE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn kept_token(file: &Path) -> CliResult<String> {
    match read_note(file) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(CliError::Io(format!(
            "a rota serve wants a token: set ROTA_TOKEN to the text of its .rota/token (there is no {})",
            file.display()
        ))),
        Err(error) => Err(CliError::Io(format!("{}: {error}", file.display()))),
    }
}

/// Where the plain copy of the policy is written: beside the configuration.
pub fn policy_file(common: &Common) -> CliResult<PathBuf> {
    let named = match &common.policy {
        Some(path) => Some(path.clone()).filter(|path| !path.is_empty()),
        None => variable("ROTA_POLICY")?,
    };
    if let Some(path) = named {
        return Ok(PathBuf::from(path));
    }
    let configured = configured(common)?;
    let scope = scope(common, &configured)?;
    let name = match scope.as_str() {
        "default" => "rota.policy.json".to_owned(),
        scope => {
            format!("rota.policy.{}.json", rota_daemon::folders::encoded(&TaskId::from_stored(scope.into())))
        }
    };
    Ok(configured.folder.join(name))
}

/// A configuration, and where it is or would be.
pub struct Configured {
    /// What it says; the defaults if there is none.
    pub config: Config,
    /// What relative paths in it count from.
    pub folder: PathBuf,
}

/// The configuration that flags and variables name, else the one in the git root.
pub fn configured(common: &Common) -> CliResult<Configured> {
    let (base, _) = base()?;
    configured_below(common, &base)
}

fn configured_below(common: &Common, base: &Path) -> CliResult<Configured> {
    let (file, is_named) = config_file_below(common, base)?;
    let config =
        if is_named { Config::read(&file)? } else { Config::read_if_there(&file)?.unwrap_or_default() };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.map_or(PathBuf::from("."), Path::to_owned);
    Ok(Configured { config, folder })
}

/// Where the configuration is, or would be.
pub fn config_file(common: &Common) -> CliResult<PathBuf> {
    let (base, _) = base()?;
    Ok(config_file_below(common, &base)?.0)
}

/// The same, and whether somebody said so.
fn config_file_below(common: &Common, base: &Path) -> CliResult<(PathBuf, bool)> {
    let named = given(&common.config, "ROTA_CONFIG")?;
    Ok(match named {
        Some(path) => (PathBuf::from(path), true),
        None => (base.join("rota.yml"), false),
    })
}

/// Where a store is; the path of a file counts from `base`.
fn location(store: &str, base: &Path) -> CliResult<Location> {
    Ok(match Location::parse(store)? {
        Location::Sqlite(path) => Location::Sqlite(base.join(path)),
        other => other,
    })
}

/// Where the token of everything that listens is kept.
pub fn token_file() -> CliResult<PathBuf> {
    let folder = base()?.0.join(".rota");
    make_folder(&folder)?;
    Ok(folder.join("token"))
}

fn make_folder(folder: &Path) -> CliResult<()> {
    let made = rota_store::make_rota_folder(folder, rota_store::PRIVATE);
    made.map_err(|error| CliError::Io(format!("{}: {error}", folder.display())))
}

/// Makes `.rota` so that the group may read what is in it.
pub fn make_group_folder() -> CliResult<()> {
    let folder = base()?.0.join(".rota");
    let failed = |error: std::io::Error| CliError::Io(format!("{}: {error}", folder.display()));
    rota_store::make_rota_folder(&folder, rota_store::GROUP).map_err(failed)?;
    let mode = folder.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode == rota_store::GROUP {
        return Ok(());
    }
    Err(CliError::Io(format!(
        "{} exists with mode {mode:o} and is left alone: run `chmod 750` on it and `chmod 640` on its database \
         (rota.db, rota.db-wal, rota.db-shm)",
        folder.display()
    )))
}

/// The main work tree's root, also from a linked one; none outside of a repository.
pub fn git_root(from: &Path) -> Option<PathBuf> {
    let root = from.ancestors().find(|folder| folder.join(".git").exists())?;
    let dot_git = root.join(".git");
    if dot_git.is_dir() {
        return Some(root.to_owned());
    }
    // A linked work tree's `.git` is a file that names a folder inside the main one's.
    let text = read_note(&dot_git).ok()?;
    let folder = root.join(text.strip_prefix("gitdir:")?.trim());
    let common = read_note(&folder.join("commondir")).ok();
    let main = common.and_then(|common| folder.join(common.trim()).canonicalize().ok());
    let main = main.and_then(|git| git.parent().map(Path::to_owned).filter(|_| git.ends_with(".git")));
    Some(main.unwrap_or_else(|| root.to_owned()))
}

/// The name of this host.
pub fn host() -> CliResult<String> {
    if let Some(name) = variable("ROTA_HOST")? {
        return Ok(name);
    }
    if let Some(name) = variable("HOSTNAME")? {
        return Ok(name);
    }
    Ok(rustix::system::uname().nodename().to_string_lossy().into_owned())
}
