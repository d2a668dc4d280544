//! All of Rota's git commands.
//!
//! An agent can write to the repository: to its configuration, hooks and references, to `.gitattributes`, and, through
//! a linked worktree, to all of `.git`. A command of ours must run nothing that an agent put there. Switching off what
//! is known to be dangerous is not enough, because a filter can have any name. So git never reads the repository's
//! configuration at all: each command gets a **control directory** of its own as `--git-dir`, created for this command
//! and removed after it, with
//!
//! | entry | content |
//! |---|---|
//! | `config` | ours: format, object hash and a few words of the platform (`KEPT`), read once at start and checked |
//! | `HEAD` | a copy of the repository's, if it names a branch or a commit |
//! | `refs`, `packed-refs`, `shallow` | links to the repository's: data, never run |
//!
//! and no `hooks`, `info` or `modules`. Objects are the repository's own (`GIT_OBJECT_DIRECTORY`). There are thus no
//! hooks, filters, merge or diff drivers, no fsmonitor, includes, aliases, URL rewrites or credential helpers of the
//! repository; replacement objects and the commit graph, by which history could be made to look different, are off.
//!
//! A command has an explicit work tree, no terminal, a clean environment, a limit on its output and on its time, and a
//! process group of its own. The group is killed at the limit and when the future is dropped, which the owner of a
//! lease does when the lease ends; git itself also dies with the daemon (Linux).
//!
//! Only [`Reach::Network`], for fetch and push, sees `HOME`, the user's own git configuration and the SSH agent. The
//! URLs of remotes are read once at start ([`Repository::remote`]).

mod plumbing;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::files::{self, Dir, Owner, off_runtime};
use crate::shim::record::marker;

/// How long a command may take unless its caller says otherwise.
const LIMIT: Duration = Duration::from_secs(60);
/// The most that a command may print.
const OUTPUT_BYTES: u64 = 256 * 1_024 * 1_024;
/// The most that is kept of its complaints.
const COMPLAINT_BYTES: u64 = 64 * 1_024;
/// The largest configuration of a repository that is read.
const CONFIG_BYTES: u64 = 1_024 * 1_024;
/// No command takes this long: what is older in `.rota/run/git` was left behind.
const STALE: Duration = Duration::from_secs(3_600);
/// The longest `HEAD`, `.git` file or other one-line file.
const LINE_BYTES: u64 = 8 * 1_024;

/// The words of a repository's configuration that count for us too: how its files are written on this platform.
const KEPT: [&str; 6] = [
    "core.filemode",
    "core.ignorecase",
    "core.symlinks",
    "core.precomposeunicode",
    "core.autocrlf",
    "core.eol",
];
/// Above any configuration file, and passed on to the commands that git itself starts.
const OVERRIDES: [&str; 14] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.commitGraph=false",
    "core.untrackedCache=false",
    "core.askPass=true",
    "credential.interactive=false",
    "commit.gpgSign=false",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "maintenance.auto=false",
];
/// Protocols that fetch and push may use.
const PROTOCOLS: [&str; 5] = ["https", "http", "ssh", "git", "file"];
/// Variables that fetch and push see.
const NETWORK: [&str; 14] = [
    "HOME",
    "USER",
    "LOGNAME",
    "XDG_CONFIG_HOME",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];
/// The author of commits that Rota makes by itself.
const AUTHOR: (&str, &str) = ("Rota", "rota@localhost");

/// Whether a command may reach another machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// No protocol is allowed, and no home is seen.
    Local,
    /// Fetch and push.
    Network,
}

/// A repository, as it was when the daemon began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repository {
    /// The root of its main work tree.
    root: PathBuf,
    /// Its own `HEAD` is here.
    git_dir: PathBuf,
    /// Objects and references are here; the same directory unless the work tree is a linked one.
    common: PathBuf,
    /// New objects are written here.
    objects: PathBuf,
    /// Objects are read here too.
    more_objects: Option<PathBuf>,
    /// Control directories are made here.
    scratch: PathBuf,
    /// The text of their `config`.
    config: String,
    remotes: BTreeMap<String, String>,
    has_reftable: bool,
}

/// One command.
#[derive(Debug)]
pub struct Git<'a> {
    repository: &'a Repository,
    arguments: Vec<OsString>,
    work_tree: Option<PathBuf>,
    index: Option<PathBuf>,
    input: Vec<u8>,
    limit: Duration,
    reach: Reach,
}

/// What a command printed, and whether it succeeded.
struct Ran {
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Repository {
    /// The repository that a folder lies in; none outside of one. Control directories are made in `run/git` of the
    /// `.rota` beside the git directory, or of another one.
    pub async fn find(folder: &Path, rota: Option<&Path>) -> io::Result<Option<Self>> {
        let (folder, rota) = (folder.to_owned(), rota.map(Path::to_owned));
        let located = off_runtime(move || {
            let Some((root, git_dir, common)) = locate(&folder)? else { return Ok(None) };
            let config = match Dir::open(&common)?.read("config", Owner::Any, CONFIG_BYTES) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                read => read?,
            };
            let rota = rota.unwrap_or_else(|| root.join(".rota"));
            if !rota.exists() {
                let (parent, name) = files::parent(&rota)?;
                parent.make(name)?.write_once(".gitignore", b"*\n")?;
            }
            let rota = rota.canonicalize()?;
            let scratch = rota.join("run/git");
            sweep(&Dir::open_or_create(&rota, Path::new("run/git"))?, &scratch)?;
            Ok(Some((root, git_dir, common, config, scratch)))
        });
        let Some((root, git_dir, common, config, scratch)) = located.await? else { return Ok(None) };
        let mut repository = Self {
            root,
            git_dir,
            objects: common.join("objects"),
            more_objects: None,
            common,
            scratch,
            config: String::new(),
            remotes: BTreeMap::new(),
            has_reftable: false,
        };
        let listed = repository.git(["config", "--file", "-", "--no-includes", "--null", "--list"]);
        let listed = listed.without_repository(config).await?;
        repository.configure(&settings(&listed));
        Ok(Some(repository))
    }

    /// Keeps what counts of the repository's own configuration.
    fn configure(&mut self, settings: &BTreeMap<String, String>) {
        let is_word =
            |value: &str| value.len() <= 16 && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let hash = settings.get("extensions.objectformat").filter(|hash| is_word(hash));
        let mut config = format!(
            "[core]\n\tbare = false\n\tlogAllRefUpdates = false\n\trepositoryFormatVersion = {}\n",
            u8::from(hash.is_some())
        );
        for key in KEPT {
            if let Some(value) = settings.get(key).filter(|value| is_word(value)) {
                config.push_str(&format!("\t{} = {value}\n", key.trim_start_matches("core.")));
            }
        }
        if let Some(hash) = hash {
            config.push_str(&format!("[extensions]\n\tobjectFormat = {hash}\n"));
        }
        self.config = config;
        self.has_reftable = settings.get("extensions.refstorage").is_some_and(|kind| kind == "reftable");
        for (key, url) in settings {
            let name = key.strip_prefix("remote.").and_then(|rest| rest.strip_suffix(".url"));
            if let Some(name) = name.filter(|_| !url.starts_with('-')) {
                self.remotes.insert(name.to_owned(), url.clone());
            }
        }
    }

    /// The root of the main work tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory that holds references and the administration of linked worktrees.
    pub fn common(&self) -> &Path {
        &self.common
    }

    /// A repository of an agent's own, which was made from this one: its references, and its objects besides ours.
    /// What is written is written to ours.
    pub fn of_agent(&self, git_dir: &Path) -> Self {
        Self {
            git_dir: git_dir.to_owned(),
            common: git_dir.to_owned(),
            more_objects: Some(git_dir.join("objects")),
            ..self.clone()
        }
    }

    /// Whether references are kept in a way that linked worktrees of ours cannot share.
    pub fn has_reftable(&self) -> bool {
        self.has_reftable
    }

    /// The configuration of a repository that is made from this one.
    pub fn configuration(&self) -> &str {
        &self.config
    }

    /// The URL of a remote, as it was at start.
    pub fn remote(&self, name: &str) -> Option<&str> {
        self.remotes.get(name).map(String::as_str)
    }

    /// Where an index or another file that outlives one command can be put.
    pub fn scratch_file(&self) -> PathBuf {
        self.scratch.join(marker())
    }

    /// A command with these arguments.
    pub fn git<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Git<'_> {
        Git {
            repository: self,
            arguments: arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect(),
            work_tree: None,
            index: None,
            input: Vec::new(),
            limit: LIMIT,
            reach: Reach::Local,
        }
    }
}

impl Git<'_> {
    /// In this work tree; without one, the command has an empty one.
    pub fn at(mut self, work_tree: &Path) -> Self {
        self.work_tree = Some(work_tree.to_owned());
        self
    }

    /// With this index.
    pub fn index(mut self, index: &Path) -> Self {
        self.index = Some(index.to_owned());
        self
    }

    /// With this on its standard input.
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// For at most this long.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// With access to another machine.
    pub fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// Runs it; an error if it does not succeed.
    pub async fn bytes(self) -> io::Result<Vec<u8>> {
        let verb = self.verb();
        let ran = self.run().await?;
        if ran.code == Some(0) { Ok(ran.stdout) } else { Err(ran.failed(&verb)) }
    }

    /// The same as text, without the end of the last line.
    pub async fn text(self) -> io::Result<String> {
        let text = String::from_utf8_lossy(&self.bytes().await?).into_owned();
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// Whether it exits with 0 and not with 1, for commands that answer a question this way.
    pub async fn says_yes(self) -> io::Result<bool> {
        let verb = self.verb();
        let ran = self.run().await?;
        match ran.code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(ran.failed(&verb)),
        }
    }

    fn verb(&self) -> String {
        self.arguments.first().map_or(String::new(), |verb| verb.to_string_lossy().into_owned())
    }

    async fn run(self) -> io::Result<Ran> {
        let repository = self.repository.clone();
        let control = off_runtime(move || Control::create(&repository)).await?;
        let mut command = self.command();
        command.arg("--git-dir").arg(&control.0);
        command.arg("--work-tree").arg(self.work_tree.as_ref().unwrap_or(&control.0));
        command.env("GIT_OBJECT_DIRECTORY", &self.repository.objects);
        if let Some(objects) = &self.repository.more_objects {
            command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", objects);
        }
        command.env("GIT_INDEX_FILE", self.index.clone().unwrap_or_else(|| control.0.join("index")));
        command.args(&self.arguments).current_dir(&self.repository.root);
        let ran = bounded(command, &self.input, self.limit, &self.verb()).await;
        drop(control);
        ran
    }

    /// Runs a command that needs no repository, with this on its standard input.
    async fn without_repository(self, input: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut command = self.command();
        // Nothing above this directory is looked for.
        command.env("GIT_DIR", "/dev/null").args(&self.arguments).current_dir("/");
        let ran = bounded(command, &input, self.limit, &self.verb()).await?;
        if ran.code == Some(0) { Ok(ran.stdout) } else { Err(ran.failed("config")) }
    }

    /// Git with all that is the same for every command.
    fn command(&self) -> Command {
        let mut command = Command::new("git");
        command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let network: &[&str] = if self.reach == Reach::Network { &NETWORK } else { &[] };
        for name in ["PATH", "TMPDIR"].iter().chain(network) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if self.reach == Reach::Local {
            command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
            command.env("GIT_CONFIG_NOSYSTEM", "1");
        }
        for (name, value) in [
            ("LC_ALL", "C"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_ADVICE", "0"),
            ("GIT_EDITOR", "false"),
            ("GIT_AUTHOR_NAME", AUTHOR.0),
            ("GIT_AUTHOR_EMAIL", AUTHOR.1),
            ("GIT_COMMITTER_NAME", AUTHOR.0),
            ("GIT_COMMITTER_EMAIL", AUTHOR.1),
        ] {
            command.env(name, value);
        }
        command.arg("--no-pager");
        for setting in OVERRIDES {
            command.arg("-c").arg(setting);
        }
        command.arg("-c").arg("protocol.allow=never");
        if self.reach == Reach::Network {
            for protocol in PROTOCOLS {
                command.arg("-c").arg(format!("protocol.{protocol}.allow=always"));
            }
        }
        command
    }
}

impl Ran {
    fn failed(&self, verb: &str) -> io::Error {
        let said = String::from_utf8_lossy(&self.stderr);
        let said = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        io::Error::other(format!("git {verb}: {said}"))
    }
}

/// A control directory, which is removed with this value.
struct Control(PathBuf);

impl Control {
    fn create(repository: &Repository) -> io::Result<Self> {
        let head = Dir::open(&repository.git_dir)?.read("HEAD", Owner::Any, LINE_BYTES)?;
        let head = String::from_utf8_lossy(&head).trim().to_owned();
        if !head.strip_prefix("ref: ").map_or_else(|| is_hash(&head), |name| name.starts_with("refs/")) {
            return Err(io::Error::other("HEAD of the repository names neither a branch nor a commit"));
        }
        let name = marker();
        let made = Self(repository.scratch.join(&name));
        let dir = Dir::open(&repository.scratch)?.make_fresh(&name)?;
        dir.write("HEAD", format!("{head}\n").as_bytes())?;
        dir.write("config", repository.config.as_bytes())?;
        for entry in ["refs", "packed-refs", "shallow", "reftable"] {
            let target = repository.common.join(entry);
            // References that do not exist yet are written through the link.
            if entry == "packed-refs" || target.exists() {
                std::os::unix::fs::symlink(&target, made.0.join(entry))?;
            }
        }
        Ok(made)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Does not follow links.
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes what commands of a process that was killed have left. The file system's own clock tells their age.
fn sweep(dir: &Dir, scratch: &Path) -> io::Result<()> {
    let probe = marker();
    dir.make_fresh(&probe)?;
    let changed = |name: &OsStr| scratch.join(name).symlink_metadata()?.modified();
    let now = changed(OsStr::new(&probe))?;
    for name in dir.names()? {
        // One that is gone meanwhile was somebody's who is done.
        let age = changed(&name).ok().and_then(|then| now.duration_since(then).ok());
        if age.is_some_and(|age| age > STALE) {
            dir.remove_all(&name)?;
        }
    }
    dir.remove_all(&probe)
}

/// Kills a process group unless it was reaped.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // A group without processes is what is wanted.
            let _killed = kill_process_group(leader, Signal::KILL);
        }
    }
}

async fn bounded(mut command: Command, input: &[u8], limit: Duration, verb: &str) -> io::Result<Ran> {
    command.process_group(0).kill_on_drop(true);
    die_with_us(&mut command);
    let mut child = command.spawn()?;
    let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut group = Group(leader);
    match tokio::time::timeout(limit, talk(&mut child, input)).await {
        Ok(ran) => {
            let ran = ran?;
            group.0 = None;
            Ok(ran)
        }
        Err(_) => {
            let problem = format!("git {verb}: no answer within {} s", limit.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, problem))
        }
    }
}

async fn talk(child: &mut Child, input: &[u8]) -> io::Result<Ran> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let feed = async move {
        // A command that does not read all of it has its reasons; its exit code tells.
        let _fed = stdin.write_all(input).await;
    };
    let ((), stdout, stderr) =
        tokio::join!(feed, read_up_to(stdout, OUTPUT_BYTES), read_up_to(stderr, COMPLAINT_BYTES));
    let stdout = stdout?;
    if stdout.len() as u64 > OUTPUT_BYTES {
        return Err(io::Error::other(format!("git printed more than {OUTPUT_BYTES} bytes")));
    }
    Ok(Ran { code: child.wait().await?.code(), stdout, stderr: stderr? })
}

/// Reads until the end or a byte beyond the limit; then the pipe is closed.
async fn read_up_to(from: impl AsyncRead + Unpin, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(limit + 1).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// Git ends with the daemon, however that ends.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "only the new process itself can ask for it, between fork and exec")]
fn die_with_us(command: &mut Command) {
    let ask = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: one system call, which allocates nothing and takes no lock.
    unsafe { command.pre_exec(ask) };
}

#[cfg(not(target_os = "linux"))]
fn die_with_us(_command: &mut Command) {}

/// The root of the work tree that a folder lies in, its git directory, and the common one.
fn locate(folder: &Path) -> io::Result<Option<(PathBuf, PathBuf, PathBuf)>> {
    let folder = folder.canonicalize()?;
    let Some(root) = folder.ancestors().find(|folder| folder.join(".git").exists()) else { return Ok(None) };
    let dot_git = root.join(".git");
    let git_dir = if dot_git.is_dir() {
        dot_git.canonicalize()?
    } else {
        let line = one_line(root, ".git")?;
        let named = line
            .strip_prefix("gitdir:")
            .ok_or_else(|| io::Error::other(format!("{} is not a git directory", dot_git.display())))?;
        root.join(named.trim()).canonicalize()?
    };
    let common = match one_line(&git_dir, "commondir") {
        Ok(line) => git_dir.join(line.trim()).canonicalize()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => git_dir.clone(),
        Err(error) => return Err(error),
    };
    Ok(Some((root.to_owned(), git_dir, common)))
}

fn one_line(folder: &Path, name: &str) -> io::Result<String> {
    let bytes = Dir::open(folder)?.read(name, Owner::Any, LINE_BYTES)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// What `git config --null --list` prints; of a key that is given more than once the last value counts.
fn settings(listed: &[u8]) -> BTreeMap<String, String> {
    let entries = listed.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let pairs = entries.filter_map(|entry| {
        let (key, value) = entry.split_once('\n')?;
        Some((key.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

fn is_hash(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests;
