//! Files of every type in place of one that is read or written.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use super::*;

struct Lab {
    _temporary: tempfile::TempDir,
    root: PathBuf,
}

impl Lab {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        std::fs::write(root.join("secret"), "a secret").unwrap();
        std::fs::create_dir(root.join("folder")).unwrap();
        Self { _temporary: temporary, root }
    }

    fn dir(&self) -> Dir {
        Dir::open(&self.root.join("folder")).unwrap()
    }

    /// Puts everything an agent can make in place of a file; each is named after what it is.
    fn plant(&self, kind: &str, name: &str) {
        let at = self.root.join("folder").join(name);
        match kind {
            "link to a secret" => symlink(self.root.join("secret"), at).unwrap(),
            "dangling link" => symlink(self.root.join("not there"), at).unwrap(),
            "link to itself" => symlink(&at, &at).unwrap(),
            "link to /dev/zero" => symlink("/dev/zero", at).unwrap(),
            "fifo" => mkfifo(&at),
            "socket" => drop(UnixListener::bind(at).unwrap()),
            "hard link to a secret" => std::fs::hard_link(self.root.join("secret"), at).unwrap(),
            "directory" => std::fs::create_dir(at).unwrap(),
            "full directory" => std::fs::create_dir_all(at.join("inner")).unwrap(),
            "file without permissions" => {
                std::fs::write(&at, "").unwrap();
                std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o000)).unwrap();
            }
            other => panic!("{other}"),
        }
    }

    fn secret(&self) -> String {
        std::fs::read_to_string(self.root.join("secret")).unwrap()
    }
}

fn mkfifo(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

const KINDS: [&str; 10] = [
    "link to a secret",
    "dangling link",
    "link to itself",
    "link to /dev/zero",
    "fifo",
    "socket",
    "hard link to a secret",
    "directory",
    "full directory",
    "file without permissions",
];

#[test]
fn what_is_written_is_new() {
    for kind in KINDS {
        let lab = Lab::new();
        let dir = lab.dir();
        for name in ["created", "written", "made", "once"] {
            lab.plant(kind, name);
        }
        dir.create("created").unwrap().write_all(b"ours").unwrap();
        dir.write("written", b"ours").unwrap();
        dir.make_fresh("made").unwrap().write("inside", b"ours").unwrap();
        dir.write_once("once", b"ours").unwrap();
        for name in ["created", "written", "made/inside"] {
            assert_eq!(dir.read(name, Owner::Us, 10).unwrap(), b"ours", "{kind}: {name}");
        }
        assert_eq!(lab.secret(), "a secret", "{kind}");
        assert!(!lab.root.join("not there").exists(), "{kind}");
    }
}

#[test]
fn what_is_read_is_a_regular_file_of_ours() {
    for kind in KINDS.into_iter().filter(|kind| *kind != "file without permissions") {
        let lab = Lab::new();
        lab.plant(kind, "read");
        let dir = lab.dir();
        for error in [
            dir.read("read", Owner::Us, 10).unwrap_err(),
            dir.tail("read", Owner::Us, 10).unwrap_err(),
            dir.open_to_append("read").unwrap_err(),
        ] {
            assert_ne!(error.kind(), io::ErrorKind::NotFound, "{kind}: {error}");
        }
    }
    let lab = Lab::new();
    let dir = lab.dir();
    dir.write("read", b"0123456789").unwrap();
    assert_eq!(dir.read("read", Owner::Us, 10).unwrap(), b"0123456789");
    assert!(dir.read("read", Owner::Us, 9).unwrap_err().to_string().contains("is longer than 9 bytes"));
    assert_eq!(dir.tail("read", Owner::Us, 3).unwrap(), b"789");
    assert_eq!(dir.read("none", Owner::Us, 9).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn no_part_of_a_path_is_a_link() {
    let lab = Lab::new();
    symlink(&lab.root, lab.root.join("folder/up")).unwrap();
    std::fs::create_dir(lab.root.join("folder/artifacts")).unwrap();
    std::fs::write(lab.root.join("folder/artifacts/spec.md"), "spec").unwrap();
    let dir = lab.dir();
    assert_eq!(dir.read("artifacts/spec.md", Owner::Us, 10).unwrap(), b"spec");
    for bad in [
        "",
        "/etc/passwd",
        "../secret",
        "artifacts/../../secret",
        "up/secret",
        "artifacts",
        "./artifacts/spec.md",
        "artifacts//spec.md",
        "artifacts/spec.md/x",
        "a\0b",
    ] {
        assert!(dir.open_file(bad, Owner::Any).is_err(), "{bad}");
    }
    assert!(Dir::open(&lab.root.join("folder/up")).is_err());
    assert!(Dir::open(&lab.root.join("folder/up/folder")).is_err());
    assert!(Dir::open_or_create(&lab.root, Path::new("folder/up/new")).is_err());
    assert!(!lab.root.join("new").exists());
}

#[test]
fn files_of_others_are_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let lab = Lab::new();
    let dir = lab.dir();
    dir.write("theirs", b"x").unwrap();
    dir.give_to("theirs", 4242, 4242).unwrap();
    assert!(dir.read("theirs", Owner::Us, 1).unwrap_err().to_string().contains("owned by user 4242"));
    assert!(dir.read("theirs", Owner::UsOr(4243), 1).is_err());
    assert_eq!(dir.read("theirs", Owner::UsOr(4242), 1).unwrap(), b"x");
}

#[test]
fn removing_follows_no_link() {
    let lab = Lab::new();
    let dir = lab.dir();
    for (number, kind) in KINDS.into_iter().enumerate() {
        lab.plant(kind, &number.to_string());
    }
    symlink(&lab.root, lab.root.join("folder/up")).unwrap();
    Dir::open(&lab.root).unwrap().remove_all("folder").unwrap();
    assert!(!lab.root.join("folder").exists());
    assert_eq!(lab.secret(), "a secret");
    drop(dir);
}
