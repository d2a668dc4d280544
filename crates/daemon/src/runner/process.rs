//! One program: what is started, and what its end means.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use crate::shim::record::StepEnd;

/// The status that a shim wrote down.
pub fn status_of(end: StepEnd) -> ExitStatus {
    use std::os::unix::process::ExitStatusExt;
    ExitStatus::from_raw(end.code.map_or(end.signal.unwrap_or(0), |code| code << 8))
}

/// What an exit code asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// 0
    Done,
    /// 75: the API pushed back.
    RateLimited,
    /// 77: a person must look at it.
    NeedsPerson,
    /// Anything else.
    Failed,
}

impl Meaning {
    /// By the contract's table.
    pub fn of(status: ExitStatus) -> Self {
        match status.code() {
            Some(0) => Self::Done,
            Some(75) => Self::RateLimited,
            Some(77) => Self::NeedsPerson,
            _ => Self::Failed,
        }
    }
}

/// An exit status in words.
pub fn in_words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The file that a program's name stands for: as it is with a slash in it, else the first in the folders of `PATH`.
pub fn find_program(name: &OsStr, folder: &Path, path: Option<&OsStr>) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let check = |file: PathBuf| {
        let about = std::fs::metadata(&file)?;
        let may_run = about.is_file() && about.permissions().mode() & 0o111 != 0;
        if may_run { Ok(file) } else { Err(std::io::ErrorKind::PermissionDenied.into()) }
    };
    if name.as_encoded_bytes().contains(&b'/') {
        return check(folder.join(name));
    }
    let folders = std::env::split_paths(path.unwrap_or_default());
    let found = folders.map(|place| check(folder.join(place).join(name))).find(Result::is_ok);
    found.unwrap_or_else(|| Err(std::io::ErrorKind::NotFound.into()))
}
