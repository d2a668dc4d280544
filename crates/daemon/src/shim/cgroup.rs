//! A control group for each run, where the system lets us make one: all that is in it can be ended at once, however it
//! forks. The processes of each step are in a group of their own below it, because a group that was ever sent
//! `cgroup.kill` cannot be used again: on newer kernels a process that is cloned into it dies at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Makes one below our own; none where that is not allowed, or where there is no version 2.
pub fn create(name: &str) -> Option<PathBuf> {
    let path = home()?.join(format!("rota-{name}"));
    fs::create_dir(&path).ok()?;
    if path.join("cgroup.kill").exists() {
        return Some(path);
    }
    remove(&path);
    None
}

/// Makes the group of one step of a run.
pub fn create_step(run: &Path, number: usize) -> Option<PathBuf> {
    let path = run.join(number.to_string());
    fs::create_dir(&path).ok()?;
    Some(path)
}

/// Our own control group, looked for once: a fork need not again.
pub fn home() -> Option<&'static Path> {
    static HOME: OnceLock<Option<PathBuf>> = OnceLock::new();
    let look = || {
        let read = |path| fs::read_to_string(path).ok();
        ours(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
    };
    HOME.get_or_init(look).as_deref()
}

/// Our own control group: where version 2 is mounted, and our place in it.
fn ours(mounts: &str, places: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let (front, behind) = line.split_once(" - ")?;
        behind.starts_with("cgroup2 ").then(|| front.split(' ').nth(4))?
    })?;
    let place = places.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(Path::new(mount).join(place.trim_start_matches('/')))
}

/// Starts a program that is in it from its first moment on, and with it all that it starts. Where the system does not
/// know how, the program is started and then moved.
///
/// Moving is what this avoids: the kernel makes every `fork` of the machine wait for it, for 10 ms at times.
pub fn spawn(command: &mut Command, path: &Path) -> io::Result<u32> {
    #[cfg(target_os = "linux")]
    match within::spawn(command, path) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
        spawned => return spawned,
    }
    let pid = command.spawn()?.id();
    // Without it the program is looked after all the same, as where there are no control groups.
    let _moved = fs::write(path.join("cgroup.procs"), pid.to_string());
    Ok(pid)
}

/// `clone3` with `CLONE_INTO_CGROUP`, which the standard library does not offer.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "there is no safe way to start a process inside a control group")]
mod within {
    use std::fs::File;
    use std::io::{self, Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::Command;

    use rustix::process::{Pid, WaitOptions, waitpid};

    /// The kernel's `struct clone_args`: eleven numbers.
    #[repr(C, align(8))]
    #[derive(Default)]
    struct Arguments {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        cgroup: u64,
    }

    const INTO_CGROUP: u64 = 0x2_0000_0000;
    /// The first thing a new process sends; an error follows only if its program cannot be started.
    const ALIVE: [u8; 1] = *b"+";

    pub(super) fn spawn(command: &mut Command, path: &Path) -> io::Result<u32> {
        let group = File::open(path)?;
        let (mut cannot_start, mut says_why) = io::pipe()?;
        let arguments = Arguments {
            flags: INTO_CGROUP,
            exit_signal: libc::SIGCHLD.cast_unsigned().into(),
            cgroup: group.as_raw_fd().cast_unsigned().into(),
            ..Arguments::default()
        };
        // SAFETY: the kernel reads so many bytes of a structure that is there, and, as with `fork`, gives the new process
        // a copy of all our memory. A shim has one thread, so nothing in that copy is locked or half done.
        let answer = unsafe {
            libc::syscall(libc::SYS_clone3, &raw const arguments, std::mem::size_of::<Arguments>())
        };
        match answer {
            -1 => Err(match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EAGAIN) => error,
                // Too old, forbidden, or the group may not be entered this way.
                _ => io::ErrorKind::Unsupported.into(),
            }),
            0 => {
                // Nobody to tell is a shim that was killed.
                let _told = says_why.write_all(&ALIVE);
                let error = command.exec().raw_os_error().unwrap_or(libc::EINVAL);
                let _told = says_why.write_all(&error.to_ne_bytes());
                // SAFETY: ends this process at once; what its memory is a copy of belongs to the other one.
                unsafe { libc::_exit(127) }
            }
            pid => {
                drop(says_why);
                let mut why = Vec::new();
                cannot_start.read_to_end(&mut why)?;
                if why == ALIVE {
                    return Ok(u32::try_from(pid).unwrap_or_default());
                }
                if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                    waitpid(Some(pid), WaitOptions::empty())?;
                }
                match why.strip_prefix(&ALIVE).and_then(|error| error.try_into().ok()) {
                    Some(error) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error))),
                    // The kernel killed it before its first instruction: our own group was once sent `cgroup.kill`.
                    None => Err(io::ErrorKind::Unsupported.into()),
                }
            }
        }
    }
}

/// Ends everything in it.
pub fn kill(path: &Path) {
    // One that is gone has nothing in it.
    let _told = fs::write(path.join("cgroup.kill"), "1");
}

/// Removes it with the groups below it, unless processes are left in one.
pub fn remove(path: &Path) {
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    for group in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&group.path());
    }
    let _removed = fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_version_2_is_mounted_and_we_are() {
        let pure = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        let mixed = "31 30 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                     41 30 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        for (mounts, places, wanted) in [
            (pure, "0::/user.slice/a.scope\n", Some("/sys/fs/cgroup/user.slice/a.scope")),
            (mixed, "9:pids:/x\n0::/\n", Some("/sys/fs/cgroup/unified")),
            (mixed, "9:pids:/x\n", None),
            ("31 30 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n", "0::/\n", None),
            ("", "", None),
        ] {
            assert_eq!(ours(mounts, places), wanted.map(PathBuf::from), "{mounts} {places}");
        }
    }
}
