//! A control group of its own for each run, where the system lets us make one: what is in it can be ended as a whole,
//! however it forks.

use std::fs;
use std::path::{Path, PathBuf};

/// Makes one below our own; none where that is not allowed, or where there is no version 2.
pub fn create(name: &str) -> Option<PathBuf> {
    let ours = ours(
        &fs::read_to_string("/proc/self/mountinfo").ok()?,
        &fs::read_to_string("/proc/self/cgroup").ok()?,
    )?;
    let path = ours.join(format!("rota-{name}"));
    fs::create_dir(&path).ok()?;
    if path.join("cgroup.kill").exists() {
        return Some(path);
    }
    remove(&path);
    None
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

/// Puts a process into it, and with it all that it starts from then on.
pub fn enter(path: &Path, pid: u32) -> bool {
    fs::write(path.join("cgroup.procs"), pid.to_string()).is_ok()
}

/// Ends everything in it.
pub fn kill(path: &Path) {
    // One that is gone has nothing in it.
    let _told = fs::write(path.join("cgroup.kill"), "1");
}

/// Takes it away, if nothing is left in it.
pub fn remove(path: &Path) {
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
