//! The Unix user that agents run as, where that is not the daemon's own (`agents` in `rota.yml`).

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::config::AgentsConfig;

/// A user, and the folder in which its loops and worktrees are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentUser {
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// The number of its primary group.
    pub gid: u32,
    /// Its home.
    pub home: PathBuf,
    /// Created by an administrator; this user may pass through it.
    pub folder: PathBuf,
}

/// The identity that a shim gives to the program it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ids {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl AgentUser {
    /// Looks the user up. An error if this process may not switch to it, or if the folder cannot be used.
    pub fn find(config: &AgentsConfig) -> io::Result<Self> {
        let wrong = |problem: String| io::Error::other(format!("agents: {problem}"));
        let name = &config.user;
        let (uid, gid, home) =
            look_up(name).ok_or_else(|| wrong(format!("there is no user '{name}' on this host")))?;
        let us = rustix::process::geteuid();
        if !us.is_root() && us.as_raw() != uid {
            return Err(wrong(format!(
                "cannot run agents as '{name}': only root may switch users, and this daemon runs as user {}",
                us.as_raw()
            )));
        }
        let resolved = config.folder.canonicalize();
        let folder = resolved.map_err(|error| wrong(format!("{}: {error}", config.folder.display())))?;
        if !folder.is_dir() {
            return Err(wrong(format!("{} is not a directory", folder.display())));
        }
        check_passable(&folder, uid, gid).map_err(wrong)?;
        Ok(Self { name: name.clone(), uid, gid, home, folder })
    }

    /// As a shim is given it.
    pub fn ids(&self) -> Ids {
        Ids { uid: self.uid, gid: self.gid }
    }
}

/// Every directory on the way must let the user pass.
fn check_passable(folder: &Path, uid: u32, gid: u32) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    for dir in folder.ancestors() {
        let about = std::fs::metadata(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let bit = match (about.uid() == uid, about.gid() == gid) {
            (true, _) => 0o100,
            (_, true) => 0o010,
            _ => 0o001,
        };
        if uid != 0 && about.mode() & bit == 0 {
            return Err(format!(
                "user {uid} may not enter {} (mode {:o})",
                dir.display(),
                about.mode() & 0o7777
            ));
        }
    }
    Ok(())
}

fn look_up(name: &str) -> Option<(u32, u32, PathBuf)> {
    // Knows users that are in no file; not every system has it.
    let asked = Command::new("getent").args(["passwd", "--", name]).stdin(Stdio::null()).output();
    let listed = match asked {
        Ok(answer) if answer.status.success() => answer.stdout,
        _ => std::fs::read("/etc/passwd").ok()?,
    };
    String::from_utf8_lossy(&listed).lines().find_map(|line| entry(line, name))
}

/// `name:password:uid:gid:comment:home:shell`
fn entry(line: &str, name: &str) -> Option<(u32, u32, PathBuf)> {
    let fields: Vec<&str> = line.split(':').collect();
    let [found, _, uid, gid, _, home, ..] = fields[..] else { return None };
    (found == name).then_some(())?;
    Some((uid.parse().ok()?, gid.parse().ok()?, home.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_passwd() {
        let line = "agent:x:1001:1002:An agent,,,:/var/agent:/bin/sh";
        assert_eq!(entry(line, "agent"), Some((1001, 1002, "/var/agent".into())));
        assert_eq!(entry(line, "agen"), None);
        assert_eq!(entry("agent:x:one:1:::", "agent"), None);
        assert_eq!(entry("agent:x:1", "agent"), None);
    }
}
