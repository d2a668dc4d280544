//! A disk that is really full, and one that becomes read-only: a small file system in memory (S8). Only root can mount
//! one; elsewhere there is nothing to see here.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::mcp::client::Http;
use crate::support::Lab;

/// A file system of its own, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: PathBuf) -> Option<Self> {
        fs::create_dir(&folder).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1500k", "tmpfs"]).arg(&folder);
        mount.output().is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }

    fn make_read_only(&self) {
        let mut mount = Command::new("mount");
        assert!(mount.args(["-o", "remount,ro"]).arg(&self.0).status().unwrap().success());
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Leaves not one block.
    fn fill(&self) {
        let mut filler = fs::File::create(self.filler()).unwrap();
        while filler.write_all(&[1; 4_096]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Nothing to be done if it fails: the folder stays.
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

fn names(folder: &Path) -> Vec<String> {
    let list = fs::read_dir(folder).unwrap();
    list.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

const STORE: &str = "--store sqlite:small/rota.db";

fn count(lab: &Lab) -> usize {
    lab.line(&format!("task list --json {STORE}")).json()["tasks"].as_array().unwrap().len()
}

/// What was acknowledged before the disk was full is there, what was not is not, and when there is room again the store
/// goes on, also in a server that met the full disk.
#[test]
fn a_full_disk() {
    let lab = Lab::new();
    let Some(disk) = SmallDisk::mount(lab.path().join("small")) else { return };
    lab.line(&format!("task create first F {STORE}")).ok();
    let server = Http::serve(&lab, &["--store", "sqlite:small/rota.db"]);
    disk.fill();
    let text = "x".repeat(20_000);
    let mut acknowledged = 1;
    let refused = (0..500).find_map(|number| {
        let ran = lab.line(&format!("task create t{number} T -d {text} {STORE}"));
        acknowledged += usize::from(ran.code == 0);
        (ran.code != 0).then_some(ran)
    });
    let refused = refused.unwrap();
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("no space left"), "{}", refused.stderr);
    let late = server.ask("POST", "/tasks", Some(&json!({"id": "late", "title": text})));
    assert_eq!((late.status >= 500, &late.json()["code"]), (true, &json!("store_full")), "{late:?}");
    assert_eq!(count(&lab), acknowledged, "reading goes on");
    let fresh = lab.line("task create a A --store sqlite:small/other.db");
    assert_eq!((fresh.code, fresh.stderr.contains("no space left")), (1, true), "{}", fresh.stderr);
    assert!(!names(&disk.0).iter().any(|name| name.starts_with("other")), "no half of a database");
    fs::remove_file(disk.filler()).unwrap();
    let late = server.ask("POST", "/tasks", Some(&json!({"id": "late", "title": "L"})));
    assert_eq!(late.status, 200, "{late:?}");
    lab.line(&format!("task create again A {STORE}")).ok();
    assert_eq!(count(&lab), acknowledged + 2);
    lab.line("task create a A --store sqlite:small/other.db").ok();
    for store in [STORE, "--store sqlite:small/other.db"] {
        assert_eq!(lab.line(&format!("doctor {store}")).code, 0, "{store}");
    }
}

/// A file system that is read-only: what is there can be read, nothing is acknowledged, and nothing looks empty.
#[test]
fn a_read_only_disk() {
    let lab = Lab::new();
    let Some(disk) = SmallDisk::mount(lab.path().join("small")) else { return };
    lab.line(&format!("task create a A {STORE}")).ok();
    disk.make_read_only();
    assert_eq!(count(&lab), 1);
    for verb in ["task create b B", "task claim --agent w", "task delete a"] {
        let ran = lab.line(&format!("{verb} {STORE}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{verb}: {}", ran.stderr);
        assert!(ran.stderr.contains("read-only"), "{verb}: {}", ran.stderr);
    }
    let fresh = lab.line("task create a A --store sqlite:small/other.db");
    assert_eq!(
        (fresh.code, fresh.stderr.to_lowercase().contains("read-only")),
        (1, true),
        "{}",
        fresh.stderr
    );
}
