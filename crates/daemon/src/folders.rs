//! The layout of a workspace: where loops work, and where the daemon keeps what it knows about them.
//!
//! | path | owned by | holds |
//! |---|---|---|
//! | `.rota/loops/<id>/iterations/NNN/` | the agent | `prompt.md` and `artifacts/`: all that an agent is told about |
//! | `.rota/worktrees/<id>/` | the agent | its git worktree, on branch `rota/<id>` |
//! | `.rota/records/<scope>/<id>/<life>/NNN/` | the daemon | `output.log`, `validate.log`, `exit.json`, `run.jsonl`, `verdict.txt`, `feedback.txt` |
//!
//! Scope and **life** are part of every path. A life is one creation of an id: an id that was pruned and added again
//! is another loop, and must find nothing of the first one. The first life of an id on this host has the plain
//! folders above; a later one has `<id>@<life>` in place of `<id>`. Outside scope `default`, `loops`, `worktrees` and
//! the branch prefix `rota` become `loops@<scope>`, `worktrees@<scope>` and `rota@<scope>`. Ids and scopes are
//! percent-encoded, so `@` cannot come from one of them.
//!
//! Where agents run as another user (`agents` in `rota.yml`), `loops` and `worktrees` lie in a folder of theirs
//! instead of `.rota`, which that user may not enter.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rota_core::{Task, TaskId, UnixMillis};
use sha2::Digest;

use crate::agent_user::AgentUser;
use crate::files::{Dir, Owner};

/// Names longer than this are cut.
const NAME_BYTES: usize = 200;
/// The scope whose folders and branches have plain names.
const DEFAULT_SCOPE: &str = "default";
/// In the records of an id: the life that has the plain folders.
const PLAIN: &str = "plain";
/// In the records of an id: the id itself, which a long name is cut from.
const ID: &str = "id";
/// The longest id.
const ID_BYTES: u64 = 1_024;
/// The longest name of a life.
const LIFE_BYTES: u64 = 64;
/// What an agent is told to leave its results in, in the folder of an iteration.
pub const ARTIFACTS: &str = "artifacts";

/// The folders of one workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folders {
    /// The root of the repository.
    pub workspace: PathBuf,
    /// `.rota`
    pub rota: PathBuf,
    /// The user that agents run as, if it is another one.
    pub agents: Option<Arc<AgentUser>>,
}

/// One loop, as its folders and its branch are named after it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Percent-encoded.
    scope: String,
    /// Percent-encoded, and cut if it is long.
    id: String,
    life: String,
}

impl Place {
    /// The place of a loop.
    pub fn of(task: &Task) -> Self {
        let life = format!("{}-{}", task.created_at.get(), task.seq);
        Self { scope: encoded_text(&task.scope), id: encoded(&task.id), life }
    }

    /// The branch that the loop's worktree is on.
    pub fn branch(&self) -> String {
        branch(&self.scope, &self.id)
    }

    /// The name of the loop's folder, which is plain for the first life of an id.
    fn name(&self, plain_life: Option<&str>) -> String {
        match plain_life {
            Some(plain) if plain != self.life => format!("{}@{}", self.id, self.life),
            _ => self.id.clone(),
        }
    }
}

/// The branch of a loop in a scope.
pub fn branch_of(scope: &str, id: &TaskId) -> String {
    branch(&encoded_text(scope), &encoded(id))
}

fn branch(scope: &str, id: &str) -> String {
    format!("{}/{id}", in_scope("rota", scope))
}

fn in_scope(name: &str, encoded_scope: &str) -> String {
    if encoded_scope == DEFAULT_SCOPE { name.to_owned() } else { format!("{name}@{encoded_scope}") }
}

impl Folders {
    /// The folders of a workspace whose agents run as the daemon's user. Links in these two paths are resolved here,
    /// once: later no component may be one.
    pub fn new(workspace: &Path, rota: &Path) -> Self {
        // A path that does not exist yet is used as it is.
        let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Self { workspace: resolved(workspace), rota: resolved(rota), agents: None }
    }

    /// A short name for this workspace: several daemons of one host may share a store.
    pub fn name(&self) -> String {
        short_hash(self.workspace.as_os_str().as_encoded_bytes())
    }

    /// The owner that files in folders of agents must have.
    pub fn owner(&self) -> Owner {
        self.agents.as_ref().map_or(Owner::Us, |agents| Owner::UsOr(agents.uid))
    }

    /// The folder below which `loops` and `worktrees` are, and the part of it that exists already.
    fn agents_root(&self) -> (PathBuf, PathBuf) {
        match &self.agents {
            None => (self.rota.clone(), PathBuf::new()),
            Some(agents) => (agents.folder.clone(), PathBuf::from(self.name())),
        }
    }

    /// Below `.rota`: what the daemon keeps about all lives of an id.
    fn of_id(&self, place: &Place) -> PathBuf {
        Path::new("records").join(&place.scope).join(&place.id)
    }

    /// What the daemon keeps about one iteration.
    pub fn records(&self, place: &Place, number: u32) -> PathBuf {
        self.rota.join(self.of_id(place)).join(&place.life).join(numbered(number))
    }

    /// The records of an iteration of a loop that only its id and time of creation are known of.
    pub fn find_records(
        &self,
        scope: &str,
        id: &TaskId,
        created_at: UnixMillis,
        number: u32,
    ) -> io::Result<PathBuf> {
        let start = format!("{}-", created_at.get());
        let of_id = self.rota.join("records").join(encoded_text(scope)).join(encoded(id));
        let lives = Dir::open(&of_id)?.names()?;
        let ours = lives.iter().filter_map(|name| name.to_str()).filter(|name| name.starts_with(&start));
        // Two lives that began in the same millisecond are told apart by their insertion number.
        let newest = ours.max_by_key(|name| name[start.len()..].parse::<u64>().unwrap_or(0));
        let life = newest.ok_or(io::ErrorKind::NotFound)?;
        Ok(of_id.join(life).join(numbered(number)))
    }

    /// A loop's own folder.
    pub fn of_loop(&self, place: &Place) -> PathBuf {
        self.below_agents("loops", place)
    }

    /// The folder of one iteration.
    pub fn of_iteration(&self, place: &Place, number: u32) -> PathBuf {
        self.of_loop(place).join("iterations").join(numbered(number))
    }

    /// The worktree of a loop.
    pub fn worktree(&self, place: &Place) -> PathBuf {
        self.below_agents("worktrees", place)
    }

    fn below_agents(&self, kind: &str, place: &Place) -> PathBuf {
        let (root, below) = self.agents_root();
        let name = place.name(self.plain_life(place).as_deref());
        root.join(below).join(in_scope(kind, &place.scope)).join(name)
    }

    /// Every worktree there is, of any scope.
    pub fn worktrees(&self) -> Vec<PathBuf> {
        let (root, below) = self.agents_root();
        let root = root.join(below);
        // A folder that does not exist has none.
        let names = |path: &Path| Dir::open(path).and_then(|dir| dir.names()).unwrap_or_else(|_| Vec::new());
        let folders = names(&root).into_iter().map(|name| root.join(name));
        let folders = folders.filter(|folder| self.is_worktree(&folder.join("any")));
        folders.flat_map(|folder| names(&folder).into_iter().map(move |name| folder.join(name))).collect()
    }

    /// Whether this is the path of a worktree.
    pub fn is_worktree(&self, path: &Path) -> bool {
        let (root, below) = self.agents_root();
        let Ok(below) = path.strip_prefix(root.join(below)) else { return false };
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        matches!(&parts[..], [kind, _] if kind == "worktrees" || kind.starts_with("worktrees@"))
    }

    /// The loops of a scope that have records here, with the ids they had.
    pub fn recorded(&self, scope: &str) -> Vec<(TaskId, Vec<Place>)> {
        let scope = encoded_text(scope);
        let of_scope = self.rota.join("records").join(&scope);
        let names = |path: &Path| Dir::open(path).and_then(|dir| dir.names()).unwrap_or_else(|_| Vec::new());
        let mut found = Vec::new();
        for id in names(&of_scope).iter().filter_map(|name| name.to_str()) {
            let path = of_scope.join(id);
            let raw = Dir::open(&path).and_then(|dir| dir.read(ID, Owner::Us, ID_BYTES));
            let Some(raw) = raw.ok().and_then(|raw| String::from_utf8(raw).ok()) else { continue };
            let lives = names(&path).into_iter().filter_map(|name| name.into_string().ok());
            let lives = lives.filter(|name| name != PLAIN && name != ID && !name.contains('.'));
            let place = |life| Place { scope: scope.clone(), id: id.to_owned(), life };
            found.push((TaskId::from_stored(raw.into()), lives.map(place).collect()));
        }
        found
    }

    /// The life that has the plain folders of an id, if one has begun here.
    fn plain_life(&self, place: &Place) -> Option<String> {
        let records = Dir::open(&self.rota.join(self.of_id(place))).ok()?;
        let life = records.read(PLAIN, Owner::Us, LIFE_BYTES).ok()?;
        String::from_utf8(life).ok()
    }

    /// Creates the folders of an iteration, both of them new and empty: the agent's, with `artifacts` in it, and the
    /// daemon's records.
    pub fn create_iteration(&self, task: &Task) -> io::Result<NewIteration> {
        let (place, number) = (&Place::of(task), task.iteration);
        let of_id = Dir::open_or_create(&self.rota, &self.of_id(place))?;
        of_id.write_once(ID, task.id.as_str().as_bytes())?;
        of_id.write_once(PLAIN, place.life.as_bytes())?;
        let records = of_id.make(&place.life)?.make_fresh(numbered(number))?;
        let path = self.of_iteration(place, number);
        let folder = self.create_for_agent(&path)?;
        folder.make_fresh(ARTIFACTS)?;
        Ok(NewIteration { folder, path, records })
    }

    /// Creates a new, empty folder for an agent. The folders above it stay the daemon's.
    pub fn create_for_agent(&self, path: &Path) -> io::Result<Dir> {
        let (root, _) = self.agents_root();
        let named = |error| crate::files::at(path, error);
        let below = path.strip_prefix(&root).map_err(io::Error::other)?;
        let (Some(above), Some(name)) = (below.parent(), below.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut dir = Dir::open(&root).map_err(named)?;
        for part in above {
            let inner = dir.make(part).map_err(named)?;
            if self.agents.is_some() {
                dir.let_pass(part).map_err(named)?;
            }
            dir = inner;
        }
        dir.make_fresh(name).map_err(named)
    }

    /// Hands a folder that the daemon made over to the user that agents run as.
    pub fn hand_over(&self, folder: &Path) -> io::Result<()> {
        let Some(agents) = &self.agents else { return Ok(()) };
        let (parent, name) = crate::files::parent(folder)?;
        parent.give_all_to(name, agents.uid, agents.gid)
    }

    /// Whether the artifact that triggers a task is there: a regular file beneath the folder of its parent, which
    /// must be given if the task has one, or beneath the workspace.
    pub fn has_artifact(&self, task: &Task, parent: Option<&Place>) -> bool {
        let Some(path) = &task.triggered_by else { return true };
        let (root, owner) = match (&task.parent, parent) {
            (None, _) => (self.workspace.clone(), Owner::Any),
            (Some(_), Some(parent)) => (self.of_loop(parent), self.owner()),
            (Some(_), None) => return false,
        };
        Dir::open(&root).and_then(|root| root.open_file(path, owner)).is_ok()
    }

    /// Removes all that is kept of a loop here, its worktree excepted.
    pub fn remove_loop(&self, place: &Place) -> io::Result<()> {
        remove(&self.of_loop(place))?;
        let of_id = self.rota.join(self.of_id(place));
        remove(&of_id.join(&place.life))?;
        // As long as another life has records here, the plain folders stay those of the life that began first.
        let is_last = Dir::open(&of_id).and_then(|dir| dir.names()).is_ok_and(|names| names == [ID, PLAIN]);
        if is_last { remove(&of_id) } else { Ok(()) }
    }
}

/// Removes a path without following links; a missing one is no error.
fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    match Dir::open(parent) {
        Ok(parent) => parent.remove_all(name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The folders of an iteration that is about to begin.
#[derive(Debug)]
pub struct NewIteration {
    /// The agent's folder.
    pub folder: Dir,
    /// Its path.
    pub path: PathBuf,
    /// The daemon's records.
    pub records: Dir,
}

/// `001`
pub fn numbered(number: u32) -> String {
    format!("{number:03}")
}

/// An id as the name of a file or a branch: percent-encoded, and where it is too long cut with a hash behind it.
pub fn encoded(id: &TaskId) -> String {
    encoded_text(id.as_str())
}

fn encoded_text(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for (place, byte) in text.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_safe_dot = byte == b'.'
            && place > 0
            && !text[..place].ends_with('.')
            && !text[place..].eq_ignore_ascii_case(".lock");
        if plain || (is_safe_dot && place + 1 < text.len()) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    if name.len() > NAME_BYTES {
        let hash = short_hash(text.as_bytes());
        name.truncate(NAME_BYTES - hash.len() - 1);
        name.push('-');
        name.push_str(&hash);
    }
    name
}

/// Sixteen digits that stand for a text.
fn short_hash(text: &[u8]) -> String {
    sha2::Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests {
    use super::*;

    #[test]
    fn ids_become_names() {
        for (id, wanted) in [
            ("plan-1", "plan-1"),
            ("a/b c", "a%2Fb%20c"),
            (".hidden", "%2Ehidden"),
            ("a..b", "a.%2Eb"),
            ("v1.2", "v1.2"),
            ("main.lock", "main%2Elock"),
            ("end.", "end%2E"),
            ("größe", "gr%C3%B6%C3%9Fe"),
            ("50%", "50%25"),
            ("a@b", "a%40b"),
        ] {
            assert_eq!(encoded(&TaskId::from_stored(id.into())), wanted, "{id}");
        }
        let long = |end: &str| encoded(&TaskId::from_stored(("x".repeat(240) + end).into()));
        assert_eq!(long("a").len(), NAME_BYTES);
        assert_ne!(long("a"), long("b"));
    }

    fn task(scope: &str, id: &str, created_at: i64) -> Task {
        let id = TaskId::from_stored(id.into());
        let task = Task::new(scope, id, "loops", "t", UnixMillis::new(created_at));
        Task { iteration: 1, ..task }
    }

    #[test]
    fn scope_and_life_are_part_of_every_path() {
        let temporary = tempfile::tempdir().unwrap();
        let rota = temporary.path().join(".rota");
        std::fs::create_dir(&rota).unwrap();
        let folders = Folders::new(temporary.path(), &rota);
        let place = |scope, id, created_at| Place::of(&task(scope, id, created_at));
        let shown = |place: &Place| {
            let below = |path: PathBuf| path.strip_prefix(&folders.rota).unwrap().display().to_string();
            (below(folders.of_iteration(place, 1)), below(folders.worktree(place)), place.branch())
        };
        let text = |(loops, worktree, branch): (&str, &str, &str)| {
            (loops.to_owned(), worktree.to_owned(), branch.to_owned())
        };
        let (first, second) = (place("default", "a/b", 5), place("default", "a/b", 6));
        folders.create_iteration(&task("default", "a/b", 5)).unwrap();
        let wanted = ("loops/a%2Fb/iterations/001", "worktrees/a%2Fb", "rota/a%2Fb");
        assert_eq!(shown(&first), text(wanted));
        let wanted = ("loops/a%2Fb@6-0/iterations/001", "worktrees/a%2Fb@6-0", "rota/a%2Fb");
        assert_eq!(shown(&second), text(wanted));
        let elsewhere = place("o/r@main", "a/b", 5);
        let scope = "o%2Fr%40main";
        let wanted = (
            &*format!("loops@{scope}/a%2Fb/iterations/001"),
            &*format!("worktrees@{scope}/a%2Fb"),
            &*format!("rota@{scope}/a%2Fb"),
        );
        assert_eq!(shown(&elsewhere), text(wanted));
        // Once the first life is removed, the next one to begin has the plain folders.
        assert_eq!(folders.recorded("default"), [(TaskId::from_stored("a/b".into()), vec![first.clone()])]);
        folders.remove_loop(&first).unwrap();
        folders.create_iteration(&task("default", "a/b", 6)).unwrap();
        assert_eq!(shown(&second).0, "loops/a%2Fb/iterations/001");
        assert_ne!(folders.records(&first, 1), folders.records(&second, 1));
    }

    #[test]
    fn an_iteration_begins_in_new_folders() {
        let temporary = tempfile::tempdir().unwrap();
        let rota = temporary.path().join(".rota");
        std::fs::create_dir(&rota).unwrap();
        let folders = Folders::new(temporary.path(), &rota);
        let place = Place::of(&task("default", "r", 5));
        let planted = folders.of_iteration(&place, 1);
        std::fs::create_dir_all(planted.join(ARTIFACTS)).unwrap();
        std::fs::write(planted.join("artifacts/children.jsonl"), "{}").unwrap();
        let made = folders.create_iteration(&task("default", "r", 5)).unwrap();
        assert_eq!(made.path, planted);
        assert_eq!(std::fs::read_dir(planted.join(ARTIFACTS)).unwrap().count(), 0);
        let iterations = std::fs::read_dir(planted.parent().unwrap()).unwrap();
        assert_eq!(iterations.count(), 2, "the planted folder was renamed");
        // A link in place of a folder above it is refused.
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), rota.join("loops/linked")).unwrap();
        let error = folders.create_iteration(&task("default", "linked", 5)).unwrap_err();
        assert!(error.to_string().contains("'linked' is not a directory"), "{error}");
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
