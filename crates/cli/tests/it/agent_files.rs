//! Agents that plant links, FIFOs, devices, sockets, hard links and directories where the daemon and its shims read and
//! write. Real daemons, as root and as an ordinary user.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::daemon::{Daemon, configure, read, show, states, until, up_until_idle, wait_for};
use crate::support::{Lab, ROTA};

/// Where an agent plants something: what it is told about, and what it can find out.
const TARGETS: [&str; 14] = [
    "children",
    "artifacts",
    "next",
    "nextprompt",
    "nextartifacts",
    "nextrecords",
    "verdict.txt",
    "feedback.txt",
    "output.log",
    "validate.log",
    "exit.json",
    "exit.json.new",
    "run.jsonl",
    "retry-after",
];
/// What it plants.
const KINDS: [&str; 8] = ["profile", "new", "secret", "fifo", "zero", "hardlink", "socket", "directory"];

/// The first iteration plants; the second one is well-behaved. Children are read only after a validation that passes.
const ATTACK: &str = r#"
cp "$ROTA_PROMPT" "$LAB/seen.$ROTA_TASK.$ROTA_ITERATION"
test "$ROTA_ITERATION" = 1 || exit 0
target=${ROTA_TASK%%,*}; kind=${ROTA_TASK##*,}
folder=$(dirname "$ROTA_ARTIFACTS")
records=$(echo "$LAB"/.rota/records/default/"$target%2C$kind"/*/001)
case $target in
  children) at=$ROTA_ARTIFACTS/children.jsonl ;;
  retry-after) at=$ROTA_ARTIFACTS/retry-after ;;
  artifacts) at=$ROTA_ARTIFACTS ;;
  next) at=$folder/../002 ;;
  nextprompt) mkdir -p "$folder/../002"; at=$folder/../002/prompt.md ;;
  nextartifacts) mkdir -p "$folder/../002"; at=$folder/../002/artifacts ;;
  nextrecords) at=$records/../002 ;;
  *) at=$records/$target ;;
esac
rm -rf "$at"
case $kind in
  profile) ln -s "$LAB/outside/profile" "$at" ;;
  new) ln -s "$LAB/outside/new" "$at" ;;
  secret) ln -s "$LAB/outside/secret" "$at" ;;
  fifo) mkfifo "$at" ;;
  zero) ln -s /dev/zero "$at" ;;
  hardlink) ln "$LAB/outside/secret" "$at" ;;
  socket) ln "$LAB/outside/socket" "$at" ;;
  directory) mkdir -p "$at/inner" ;;
esac
test -L "$at" -o -e "$at" && : > "$LAB/planted.$ROTA_TASK"
echo "export EVIL=1"
"#;

const LOOP: &str = "  ralph: {run: [sh, attack.sh], validate: 'echo EVIL; case $ROTA_TASK in children*|artifacts*) ;; *) test $ROTA_ITERATION = 2 ;; esac', max_iterations: 2, timeout_secs: 60, env: {LAB: LABPATH}}\n";

fn prepare() -> Lab {
    let lab = Lab::new();
    let path = lab.path().canonicalize().unwrap();
    configure(&lab, &LOOP.replace("LABPATH", path.to_str().unwrap()));
    std::fs::write(path.join("attack.sh"), ATTACK).unwrap();
    let outside = path.join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("profile"), "profile\n").unwrap();
    std::fs::write(outside.join("secret"), "a-secret-outside\n").unwrap();
    drop(UnixListener::bind(outside.join("socket")).unwrap());
    let mut plan = String::new();
    for target in TARGETS {
        for kind in KINDS {
            plan.push_str(&format!("loop add --kind ralph --id {target},{kind}\n"));
        }
    }
    for line in plan.lines() {
        lab.line(line).ok();
    }
    lab
}

/// Nothing outside was written or read, and every loop went on to its end.
fn check(lab: &Lab, log: &str) {
    let outside = lab.path().join("outside");
    assert_eq!(read(outside.join("profile")), "profile\n");
    assert_eq!(read(outside.join("secret")), "a-secret-outside\n");
    assert!(!outside.join("new").exists());
    let planted = |id: &str| lab.path().join(format!("planted.{id}")).exists();
    let mut ids: Vec<String> =
        TARGETS.iter().flat_map(|target| KINDS.map(|kind| format!("{target},{kind}"))).collect();
    ids.sort();
    let missing: Vec<&String> = ids.iter().filter(|id| !planted(id)).collect();
    assert!(missing.is_empty(), "not planted: {missing:?}");
    let complete: Vec<String> = ids.iter().map(|id| format!("{id} complete")).collect();
    assert_eq!(states(lab), complete, "{log}");
    let journal = lab.line("log --json").ok();
    assert!(!journal.contains("a-secret-outside"));
    for entry in std::fs::read_dir(lab.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("seen.") {
            assert!(!read(&path).contains("a-secret-outside"), "{}", path.display());
        }
    }
    let wrong_children = |kind: &str| read(lab.path().join(format!("seen.children,{kind}.2")));
    for kind in KINDS {
        assert!(wrong_children(kind).contains("children.jsonl"), "{kind}: {}", wrong_children(kind));
    }
}

#[test]
fn planted_files_of_every_type() {
    let lab = prepare();
    let ran = up_until_idle(&lab);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    check(&lab, &ran.stderr);
}

/// The same where the daemon is nobody in particular.
#[test]
fn planted_files_of_every_type_as_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let lab = prepare();
    give_to_nobody(lab.path());
    let log = std::fs::File::create(lab.path().join("up.log")).unwrap();
    let mut child =
        as_nobody(&lab).args(["up", "--until-idle"]).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    wait_for(&mut child);
    let log = read(lab.path().join("up.log"));
    assert_eq!(child.wait().unwrap().code(), Some(0), "{log}");
    check(&lab, &log);
}

fn give_to_nobody(path: &Path) {
    assert!(Command::new("chown").arg("-R").arg("65534:65534").arg(path).status().unwrap().success());
}

/// The binary as an ordinary user.
fn as_nobody(lab: &Lab) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--", ROTA]);
    command.env_clear().env("ROTA_HOST", "test-host").env("PATH", std::env::var_os("PATH").unwrap());
    command.env("ROTA_STORE", lab.store()).current_dir(lab.path()).stdin(Stdio::null());
    command
}

/// FIFOs everywhere do not hold up the end of a daemon.
#[test]
fn a_daemon_ends_in_time_whatever_was_planted() {
    let lab = Lab::new();
    configure(
        &lab,
        "  ralph: {run: 'd=$(dirname $ROTA_ARTIFACTS); r=$(echo .rota/records/default/$ROTA_TASK/*/001); rm -rf $ROTA_ARTIFACTS; mkfifo $ROTA_ARTIFACTS $d/../002; for f in verdict.txt feedback.txt validate.log exit.json exit.json.new run.jsonl; do mkfifo $r/$f $d/$f; done; : > planted; sleep 1000'}\n",
    );
    lab.line("loop add --kind ralph --id r").ok();
    let daemon = Daemon::start(&lab);
    until("they are planted", || lab.path().join("planted").exists());
    daemon.down(&lab);
    assert_eq!(states(&lab), ["r pending"]);
}

/// A run record, too, may be anything by the time that it is read.
#[test]
fn run_records_of_every_type() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'true'}\n");
    lab.line("loop add --kind ralph --id r").ok();
    let agents = lab.path().join(".rota/run/agents");
    std::fs::create_dir_all(&agents).unwrap();
    let at = |name: &str| agents.join(format!("{name}.jsonl"));
    std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
    std::os::unix::fs::symlink(at("loop"), at("loop")).unwrap();
    std::fs::create_dir_all(at("directory").join("inner")).unwrap();
    drop(UnixListener::bind(at("socket")).unwrap());
    let fifo = Command::new("mkfifo").arg(at("fifo")).status().unwrap();
    assert!(fifo.success());
    std::fs::write(at("empty"), "").unwrap();
    std::fs::write(at("binary"), [0, 159, 146, 150, b'\n', 255]).unwrap();
    std::fs::write(at("absurd"), "{\"run\":{\"marker\":\"x\"}}\n{\"exit\":7}\n").unwrap();
    std::fs::write(at("deep"), "[".repeat(100_000) + "\n").unwrap();
    std::fs::hard_link(at("empty"), at("hard")).unwrap();
    let ran = up_until_idle(&lab);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(states(&lab), ["r complete"]);
}

/// Issue 1.13: it is told what happened.
#[test]
fn an_agent_that_removes_its_folder() {
    let lab = Lab::new();
    configure(
        &lab,
        "  ralph: {run: 'test $ROTA_ITERATION = 2 || rm -rf $(dirname $ROTA_ARTIFACTS); cp $ROTA_PROMPT seen || true; exit $CODE', max_iterations: 2, env: {CODE: '0'}}\n  bad: {run: 'rm -rf .rota/loops/bad .rota/records/default/bad; exit 3', max_iterations: 1}\n",
    );
    lab.line("loop add --kind ralph --id r").ok();
    lab.line("loop add --kind bad --id bad").ok();
    let ran = up_until_idle(&lab);
    assert_eq!(states(&lab), ["bad failed", "r complete"], "{}", ran.stderr);
    let seen = read(lab.path().join("seen"));
    assert!(seen.contains("the agent removed its folder"), "{seen}");
    let reason = show(&lab, "bad")["failReason"].as_str().unwrap().to_owned();
    assert!(reason.contains("exit code 3, and the agent removed its folder"), "{reason}");
    assert!(!ran.stderr.contains("shim was killed"), "{}", ran.stderr);
}

/// Issue 3.6: an id that is added again finds nothing of its earlier life, and neither does another scope.
#[test]
fn no_phantom_children() {
    let lab = Lab::new();
    configure(
        &lab,
        "  plan: {run: 'test -e quiet || echo \"{\\\"id\\\":\\\"c\\\",\\\"t\\\":\\\"C\\\",\\\"kind\\\":\\\"spec\\\"}\" > $ROTA_ARTIFACTS/children.jsonl'}\n  spec: {run: 'true'}\n",
    );
    lab.line("loop add --kind plan --id p").ok();
    assert_eq!(up_until_idle(&lab).code, 0);
    assert_eq!(states(&lab), ["c complete", "p complete"]);
    std::fs::write(lab.path().join("quiet"), "").unwrap();
    lab.line("--scope other loop add --kind plan --id p").ok();
    let ran = lab.line("--scope other up --until-idle");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout, "p [plan] complete\n");
    assert!(lab.path().join(".rota/loops@other/p/iterations/001/prompt.md").exists());
    // Pruned from another folder, so that the folders stay.
    let elsewhere = Lab::new();
    let mut prune = elsewhere.command();
    prune.env("ROTA_STORE", lab.store()).args(["prune", "--older-than", "0s"]);
    assert!(prune.output().unwrap().status.success());
    assert_eq!(states(&lab), Vec::<String>::new());
    lab.line("loop add --kind plan --id p").ok();
    assert_eq!(up_until_idle(&lab).code, 0);
    assert_eq!(states(&lab), ["p complete"]);
    let names = || {
        let names = std::fs::read_dir(lab.path().join(".rota/loops")).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert!(names().len() == 3 && names()[2].starts_with("p@"), "{:?}", names());
    // Another store does not know any of these loops; their folders stay.
    let mut prune = lab.command();
    prune.env("ROTA_STORE", format!("sqlite:{}", elsewhere.database().display()));
    assert!(prune.args(["prune", "--older-than", "0s"]).output().unwrap().status.success());
    assert_eq!(names().len(), 3);
    // Pruned here, the folders go along; those of the other scope stay.
    let said = lab.line("prune --older-than 0s").ok();
    assert!(said.contains("removed the folders of 3 loops"), "{said}");
    assert_eq!(names(), Vec::<String>::new());
    assert!(lab.path().join(".rota/loops@other/p").exists());
}

/// Agents as another user: they get folders of their own, and nothing of `.rota`.
#[test]
fn agents_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let lab = Lab::new();
    let theirs = tempfile::tempdir().unwrap();
    for folder in [lab.path(), theirs.path()] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    configure(
        &lab,
        &format!(
            "  plan: {{run: 'id -u; id -G; echo $HOME; cat $ROTA_PROMPT; echo x > $ROTA_ARTIFACTS/made; ls .rota; cat .rota/rota.db; cat .rota/token; echo \"{{\\\"id\\\":\\\"c\\\",\\\"t\\\":\\\"C\\\",\\\"kind\\\":\\\"spec\\\"}}\" > $ROTA_ARTIFACTS/children.jsonl'}}\n  spec: {{run: 'test -e $ROTA_ARTIFACTS'}}\nagents: {{user: nobody, folder: {}}}\n",
            theirs.path().display()
        ),
    );
    lab.line("loop add --kind plan --id p --title Plan").ok();
    std::fs::set_permissions(lab.path().join(".rota"), std::fs::Permissions::from_mode(0o700)).unwrap();
    let ran = up_until_idle(&lab);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(states(&lab), ["c complete", "p complete"]);
    let log = lab.line("loop logs p").ok();
    assert!(log.starts_with("65534\n65534\n/nonexistent\n# Plan\n"), "{log}");
    assert_eq!(log.matches("Permission denied").count(), 3, "{log}");
}

/// Their worktrees are repositories of their own, and what they commit or leave uncommitted arrives on the branch.
#[test]
fn worktrees_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let lab = Lab::new();
    let theirs = tempfile::tempdir().unwrap();
    for folder in [lab.path(), theirs.path()] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let git = |line: &str| {
        let mut command = Command::new("git");
        command.current_dir(lab.path()).args(["-c", "user.name=t", "-c", "user.email=t@example.invalid"]);
        let output = command.args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    git("init -q");
    std::fs::write(lab.path().join("file"), "first\n").unwrap();
    git("add file");
    git("commit -qm first");
    configure(
        &lab,
        &format!(
            "  ralph: {{run: 'id -u; echo more >> file; git add file; git -c user.name=a -c user.email=a@example.invalid commit -qm theirs && echo left > left.$ROTA_ITERATION; exit $(( ROTA_ITERATION - 1 ))', validate: 'test $ROTA_ITERATION = 2', worktree: true, max_iterations: 2}}\nagents: {{user: nobody, folder: {}}}\n",
            theirs.path().display()
        ),
    );
    lab.line("loop add --kind ralph --id r").ok();
    let ran = up_until_idle(&lab);
    assert_eq!(states(&lab), ["r failed"], "{}", ran.stderr);
    assert!(lab.line("loop logs r").ok().starts_with("65534\n"), "{}", ran.stderr);
    assert_eq!(git("show rota/r:file"), "first\nmore\nmore");
    assert_eq!(git("show rota/r:left.2"), "left");
    assert_eq!(git("log --format=%an rota/r"), "Rota\na\na\nt");
    git("fsck --strict --connectivity-only");
    assert_eq!(walk(theirs.path(), ".git"), 0, "the worktree is removed");
}

/// How many entries of a name there are below a folder.
fn walk(folder: &Path, name: &str) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let count = |path: std::path::PathBuf| {
        let is_wanted = usize::from(path.file_name().is_some_and(|found| found == name));
        is_wanted + if path.is_dir() { walk(&path, name) } else { 0 }
    };
    entries.map(count).sum()
}

#[test]
fn agents_of_another_user_need_root() {
    let lab = Lab::new();
    configure(&lab, "  plan: {run: 'true'}\nagents: {user: no such user, folder: /tmp}\n");
    let ran = lab.line("up --once");
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("agents: there is no user 'no such user'"), "{}", ran.stderr);
    if !rustix::process::geteuid().is_root() {
        return;
    }
    configure(&lab, "  plan: {run: 'true'}\nagents: {user: root, folder: /tmp}\n");
    give_to_nobody(lab.path());
    let output = as_nobody(&lab).args(["up", "--once"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot run agents as 'root': only root may switch users"), "{said}");
}
