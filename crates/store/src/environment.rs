//! The environment of this process. Any process of the same user can read `/proc/PID/environ`, agents included, and a
//! program cannot change what is shown there. A daemon therefore executes itself again without the secrets of its environment and gets
//! them through a pipe; from then on they are in its memory only.

use std::collections::BTreeMap;
use std::env::VarError;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Names the pipe after the execution: the process id, which stays the same, and the descriptor.
const HANDOVER: &str = "ROTA_SECRETS";
/// A pipe takes this much without a reader.
const PIPE_BYTES: usize = 60_000;
/// A variable with one of these in its name is taken for a secret.
const SECRET_WORDS: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];

type Variables = BTreeMap<OsString, OsString>;

static HIDDEN: OnceLock<Variables> = OnceLock::new();

/// A variable, hidden or not.
pub fn var(name: &str) -> Result<String, VarError> {
    match HIDDEN.get().and_then(|hidden| hidden.get(OsStr::new(name))) {
        Some(value) => value.clone().into_string().map_err(VarError::NotUnicode),
        None => std::env::var(name),
    }
}

/// Every variable, hidden or not.
pub fn vars_os() -> impl Iterator<Item = (OsString, OsString)> {
    let shown = std::env::vars_os().filter(|(name, _)| name != HANDOVER);
    shown.chain(HIDDEN.get().cloned().unwrap_or_default())
}

/// The hidden ones, for a command of the operator's own that would have inherited them.
pub fn hidden() -> impl Iterator<Item = (OsString, OsString)> {
    HIDDEN.get().cloned().unwrap_or_default().into_iter()
}

/// Makes sure that no secret is in this process's environment, nor in a core dump. Executes this program again with the
/// same arguments if there is one, so it is called before anything else is begun. `named` lists secrets that do not look like one.
pub fn hide_secrets(named: &[String]) -> io::Result<()> {
    let received = receive()?;
    let is_secret = |name: &OsStr| {
        let text = name.to_string_lossy().to_uppercase();
        SECRET_WORDS.iter().any(|word| text.contains(word)) || named.iter().any(|secret| **secret == *name)
    };
    let has_password = |name: &OsStr, value: &OsStr| {
        name == "ROTA_STORE" && value.to_string_lossy().to_lowercase().starts_with("postgres")
    };
    let shown: Variables = std::env::vars_os().collect();
    let (secrets, kept): (Variables, Variables) = shown.into_iter().partition(|(name, value)| {
        name != HANDOVER && (is_secret(name.as_os_str()) || has_password(name.as_os_str(), value.as_os_str()))
    });
    if let Some(received) = received {
        // Called once in a process, and the execution before this one left no secret.
        let _set = HIDDEN.set(received);
        return Ok(());
    }
    if secrets.is_empty() {
        return Ok(());
    }
    Err(execute_again(&secrets, kept))
}

/// Returns only if it fails.
fn execute_again(secrets: &Variables, kept: Variables) -> io::Error {
    let mut text = Vec::new();
    for (name, value) in secrets {
        text.extend([name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat());
    }
    if text.len() > PIPE_BYTES {
        return io::Error::other(format!("secrets in the environment of more than {PIPE_BYTES} bytes"));
    }
    let piped = || -> io::Result<OwnedFd> {
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(&text)?;
        rustix::io::fcntl_setfd(&reader, rustix::io::FdFlags::empty())?;
        Ok(reader.into())
    };
    let program = PathBuf::from("/proc/self/exe");
    let program = if program.exists() { Ok(program) } else { std::env::current_exe() };
    let (reader, program) = match piped().and_then(|reader| Ok((reader, program?))) {
        Ok(ready) => ready,
        Err(error) => return error,
    };
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "rota".into());
    let handover = format!("{}:{}", std::process::id(), reader.as_raw_fd());
    let mut command = Command::new(program);
    command.arg0(name).args(arguments).env_clear().envs(kept).env(HANDOVER, handover).exec()
}

/// The secrets that the execution before this one sent; none where there was none.
fn receive() -> io::Result<Option<Variables>> {
    let Ok(handover) = std::env::var(HANDOVER) else { return Ok(None) };
    // A variable that came from elsewhere names another process.
    let Some((pid, descriptor)) = handover.split_once(':') else { return Ok(None) };
    let Some(descriptor) =
        descriptor.parse().ok().filter(|_| pid.parse::<u32>().ok() == Some(std::process::id()))
    else {
        return Ok(None);
    };
    let mut text = Vec::new();
    pipe_of(descriptor).take(PIPE_BYTES as u64).read_to_end(&mut text)?;
    let variable = |text: &[u8]| {
        let equals = 1 + text.get(1..)?.iter().position(|byte| *byte == b'=')?;
        let of = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((of(&text[..equals]), of(&text[equals + 1..])))
    };
    Ok(Some(text.split(|byte| *byte == 0).filter_map(variable).collect()))
}

#[allow(unsafe_code, reason = "a descriptor that outlived the execution has no owner yet")]
fn pipe_of(descriptor: RawFd) -> File {
    // SAFETY: this very process left the descriptor open for itself when it executed this program; nothing else uses it.
    unsafe { File::from_raw_fd(descriptor) }
}
