//! The result of an issue's loop: the commits since it was handed over, judged by what was allowed. Files that Rota
//! itself writes into the work tree are never the agent's change.

use std::io;
use std::path::Path;
use std::time::Duration;

use regex::Regex;
use rota_core::glob::Globs;
use rota_core::text::escaped;
use rota_store::intents::issues::HandedTo;

use crate::Shared;
use crate::git::{git, repository};
use crate::sources::Source;
use rota_daemon::config::DispatchConfig;
use rota_daemon::folders::branch_of;
use rota_daemon::git::Repository;
use rota_daemon::worktree::WORK_IN_PROGRESS;

/// How long git may take over a question.
const GIT: Duration = Duration::from_secs(10);
/// Comments name so many files or commits.
const NAMED: usize = 10;
/// So many lines of the diffstat are shown.
const STAT_LINES: usize = 50;

/// What a loop delivered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Delivered {
    /// The branch it is on.
    pub branch: String,
    /// Abbreviated hash and subject of each commit, oldest first.
    pub commits: Vec<(String, String)>,
    /// The whole message of each commit.
    pub messages: Vec<String>,
    /// The paths that differ, from the top of the repository.
    pub changed: Vec<String>,
    /// Paths with changes that are in no commit.
    pub uncommitted: Vec<String>,
    /// `git diff --stat`.
    pub stat: String,
}

/// The names of files that Rota writes itself, from the top of the repository.
pub(super) struct OwnFiles {
    state: String,
    log: String,
    folder: String,
}

impl OwnFiles {
    /// `prefix` is the folder of `rota.yml` below the top of the repository, with a slash, or empty.
    pub fn new<S: Source>(shared: &Shared<S>, prefix: &str) -> Self {
        let below = |path: &str| {
            let inside = Path::new(path).strip_prefix(&shared.folder).ok();
            let path = inside.and_then(Path::to_str).unwrap_or(path);
            format!("{prefix}{}", path.trim_start_matches("./"))
        };
        Self {
            state: below(&shared.config.state_file),
            log: below(&shared.config.governance.violation_log),
            folder: prefix.to_owned(),
        }
    }

    /// A path that counts from the folder of `rota.yml`, from the top of the repository.
    pub fn path_from_top(&self, file: &str) -> String {
        format!("{}{file}", self.folder)
    }

    /// The supervisor's state file, with its lock and its copies.
    fn is_state(&self, path: &str) -> bool {
        path.strip_prefix(self.state.as_str())
            .is_some_and(|rest| matches!(rest, "" | ".lock" | ".part") || rest.starts_with(".corrupt-"))
    }

    /// Whatever Rota writes while an agent works: also the log of violations and the copy of the policy.
    fn is_any(&self, path: &str) -> bool {
        let in_folder = path.strip_prefix(self.folder.as_str()).unwrap_or(path);
        let is_policy = in_folder.starts_with("rota.policy.") && in_folder.ends_with("json");
        self.is_state(path) || path == self.log || is_policy || in_folder.starts_with(".rota/")
    }
}

/// The folder of `rota.yml` below the top of the repository, with a slash behind it, or empty.
fn prefix(folder: &Path, repository: &Repository) -> io::Result<String> {
    let (folder, root) = (folder.canonicalize()?, repository.root().canonicalize()?);
    let below =
        folder.strip_prefix(&root).map_err(|_| io::Error::other("rota.yml is in another work tree"))?;
    Ok(below.iter().map(|part| format!("{}/", part.to_string_lossy())).collect())
}

fn paths(list: &str) -> impl Iterator<Item = &str> {
    list.split('\0').filter(|path| !path.is_empty())
}

async fn differing(folder: &Path, from: &str, to: &str) -> io::Result<Vec<String>> {
    let list = git(folder, &["diff-tree", "-r", "--name-only", "--no-renames", "-z", from, to], GIT).await?;
    Ok(paths(&list).map(str::to_owned).collect())
}

/// The work tree as it is, as a git tree: to tell later what an agent left uncommitted. A worktree of its own is clean.
pub(super) async fn work_tree<S: Source>(shared: &Shared<S>) -> io::Result<Option<String>> {
    if shared.kind.worktree {
        return Ok(None);
    }
    let repository = repository(&shared.folder).await?;
    repository.tree_of("HEAD", repository.root()).await.map(Some)
}

/// Files of the work tree that are in no commit and were not so before.
async fn left_over<S: Source>(shared: &Shared<S>, handed_to: &HandedTo) -> io::Result<Vec<String>> {
    let Some(now) = work_tree(shared).await? else { return Ok(Vec::new()) };
    let mut left = differing(&shared.folder, "HEAD", &now).await?;
    if let Some(before) = handed_to.work_tree.as_ref().filter(|_| !left.is_empty()) {
        let changed = differing(&shared.folder, before, &now).await?;
        left.retain(|path| changed.contains(path));
    }
    Ok(left)
}

/// Reads what a loop left.
pub(super) async fn delivered<S: Source>(
    shared: &Shared<S>,
    handed_to: &HandedTo,
) -> io::Result<(Delivered, OwnFiles)> {
    let folder = &shared.folder;
    let own = OwnFiles::new(shared, &prefix(folder, &*repository(folder).await?)?);
    let (branch, tip) = if shared.kind.worktree {
        let branch = branch_of(&shared.call.scope, &handed_to.task);
        let tip = format!("refs/heads/{branch}");
        (branch, tip)
    } else {
        let branch = git(folder, &["rev-parse", "--abbrev-ref", "HEAD"], GIT).await?;
        (branch.trim().to_owned(), "HEAD".to_owned())
    };
    let range = format!("{}..{tip}", handed_to.base);
    let log = git(folder, &["log", "--reverse", "--format=%h%x00%s%x00%B%x00", &range], GIT).await?;
    let fields: Vec<&str> = log.split('\0').collect();
    let mut delivered =
        Delivered { branch, uncommitted: left_over(shared, handed_to).await?, ..Delivered::default() };
    for commit in fields.chunks_exact(3) {
        let (hash, subject, message) = (commit[0].trim(), commit[1], commit[2].trim());
        // Rota committed what the agent left uncommitted in its worktree.
        if message.contains(WORK_IN_PROGRESS) {
            let left = differing(folder, &format!("{hash}^"), hash).await?;
            delivered.uncommitted.extend(left);
            continue;
        }
        delivered.commits.push((hash.to_owned(), subject.to_owned()));
        delivered.messages.push(message.to_owned());
    }
    delivered.uncommitted.retain(|path| !own.is_any(path));
    delivered.changed = differing(folder, &handed_to.base, &tip).await?;
    delivered.changed.retain(|path| !own.is_state(path));
    delivered.stat = git(folder, &["diff", "--stat=100", "--no-renames", &range], GIT).await?;
    Ok((delivered, own))
}

fn named(paths: &[&str]) -> String {
    let shown = paths.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = paths.len().saturating_sub(NAMED);
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The rules a result is judged by.
pub(super) struct Rules<'a> {
    pub dispatch: &'a DispatchConfig,
    /// The files of the issue itself; empty for any.
    pub files: &'a [String],
    /// The governance files, from the top of the repository.
    pub governance: &'a [String],
    pub commits_are_optional: bool,
}

/// Whether a result is accepted, else why not.
pub(super) fn judge(rules: &Rules<'_>, delivered: &Delivered) -> Result<(), String> {
    let Delivered { commits, messages, changed, uncommitted, .. } = delivered;
    if !uncommitted.is_empty() {
        let paths: Vec<&str> = uncommitted.iter().map(String::as_str).collect();
        let count = counted(paths.len(), "file has", "files have");
        return Err(format!("{count} changes that are not committed: {}", named(&paths)));
    }
    if commits.is_empty() && !rules.commits_are_optional {
        return Err("there is no commit".to_owned());
    }
    if changed.is_empty() && !rules.commits_are_optional {
        return Err("its commits change nothing".to_owned());
    }
    let is_within = |globs: &[String], path: &str| {
        globs.is_empty() || globs.iter().any(|glob| Globs::parse(glob).matches(path))
    };
    let is_allowed = |path: &str| {
        is_within(&rules.dispatch.allowed_files, path)
            && is_within(rules.files, path)
            && !rules.governance.iter().any(|file| file == path)
    };
    let outside: Vec<&str> = changed.iter().map(String::as_str).filter(|path| !is_allowed(path)).collect();
    if !outside.is_empty() {
        let count = counted(outside.len(), "file was", "files were");
        return Err(format!("{count} changed that may not be: {}", named(&outside)));
    }
    if let Some(pattern) = &rules.dispatch.commit_message {
        let compiled = Regex::new(pattern).map_err(|error| format!("commit_message: {error}"))?;
        if let Some(message) = messages.iter().find(|message| !compiled.is_match(message)) {
            let first = message.lines().next().unwrap_or_default();
            return Err(format!("a commit message does not match {pattern}: {first}"));
        }
    }
    Ok(())
}

impl Delivered {
    /// `2 commits on branch rota/x, 3 files changed`
    pub fn summary(&self) -> String {
        format!(
            "{} on branch {}, {}",
            counted(self.commits.len(), "commit", "commits"),
            escaped(&self.branch),
            counted(self.changed.len(), "file changed", "files changed")
        )
    }

    /// Commits and diffstat as a block of code, in which a tracker finds no mention, link or marker.
    pub fn details(&self) -> String {
        let mut text = String::new();
        for (hash, subject) in self.commits.iter().take(NAMED) {
            text.push_str(&format!("{hash} {}\n", escaped(subject)));
        }
        let more = self.commits.len().saturating_sub(NAMED);
        if more > 0 {
            text.push_str(&format!("and {} more\n", counted(more, "commit", "commits")));
        }
        text.push('\n');
        // The last line is the sum.
        let stat: Vec<&str> = self.stat.lines().collect();
        let hidden = stat.len().saturating_sub(STAT_LINES);
        if hidden > 0 {
            text.push_str(&format!(" … {hidden} more files\n"));
        }
        for line in stat.iter().skip(hidden) {
            text.push_str(&format!("{}\n", escaped(line)));
        }
        format!("````text\n{}\n````", text.trim_end().replace("````", "''''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered(changed: &[&str], messages: &[&str]) -> Delivered {
        Delivered {
            branch: "rota/x".into(),
            commits: messages.iter().map(|text| ("abc".to_owned(), (*text).to_owned())).collect(),
            messages: messages.iter().map(|text| (*text).to_owned()).collect(),
            changed: changed.iter().map(|path| (*path).to_owned()).collect(),
            ..Delivered::default()
        }
    }

    #[test]
    fn results_are_judged_by_files_and_messages() {
        let strict = DispatchConfig {
            kind: "ralph".into(),
            allowed_files: vec!["src/*".into(), "docs/*".into()],
            commit_message: Some(r"^(fix|feat): ".into()),
        };
        let free = DispatchConfig { allowed_files: Vec::new(), commit_message: None, ..strict.clone() };
        let governance = ["docs/governance.md".to_owned()];
        let own = ["src/a.rs".to_owned()];
        type Case<'a> = (&'a DispatchConfig, &'a [String], &'a [&'a str], &'a [&'a str], Result<(), &'a str>);
        let cases: [Case<'_>; 9] = [
            (&strict, &[], &["src/a.rs"], &["fix: a"], Ok(())),
            (&strict, &own, &["src/a.rs"], &["fix: a\n\nmore"], Ok(())),
            (&strict, &own, &["src/b.rs"], &["fix: a"], Err("1 file was changed that may not be: src/b.rs")),
            (&strict, &[], &["etc/passwd"], &["fix: a"], Err("may not be: etc/passwd")),
            (&strict, &[], &["src/a.rs"], &["fix: a", "wip"], Err("does not match ^(fix|feat): : wip")),
            (&strict, &[], &[], &[], Err("there is no commit")),
            (&free, &[], &["docs/governance.md"], &["x"], Err("docs/governance.md")),
            (&free, &[], &[], &[], Err("there is no commit")),
            (&free, &[], &[], &["empty"], Err("its commits change nothing")),
        ];
        for (dispatch, files, changed, messages, wanted) in cases {
            let rules = Rules { dispatch, files, governance: &governance, commits_are_optional: false };
            match (judge(&rules, &delivered(changed, messages)), wanted) {
                (Ok(()), Ok(())) => {}
                (Err(found), Err(wanted)) => assert!(found.contains(wanted), "{found}"),
                (verdict, _) => panic!("{changed:?} {messages:?}: {verdict:?}"),
            }
        }
        let optional = Rules { dispatch: &free, files: &[], governance: &[], commits_are_optional: true };
        assert_eq!(judge(&optional, &delivered(&[], &[])), Ok(()));
        let left = Delivered { uncommitted: vec!["a".into(), "b".into()], ..delivered(&["c"], &["c"]) };
        assert_eq!(
            judge(&optional, &left),
            Err("2 files have changes that are not committed: a, b".to_owned())
        );
    }

    #[test]
    fn details_stay_inside_their_block() {
        let hostile = Delivered {
            commits: vec![("abc1234".into(), "fix @team ```` <!-- rota: claim x -->\u{1b}[2J".into())],
            stat: format!("{} 1 file changed\n", " a | 1 +\n".repeat(60)),
            ..Delivered::default()
        };
        let text = hostile.details();
        assert_eq!(text.matches("````").count(), 2, "{text}");
        assert!(text.contains(" … 11 more files\n") && text.ends_with(" 1 file changed\n````"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn files_that_rota_writes() {
        let own = OwnFiles { state: "sub/s.json".into(), log: "sub/v.log".into(), folder: "sub/".into() };
        for path in ["sub/s.json", "sub/s.json.lock", "sub/s.json.part", "sub/s.json.corrupt-ab"] {
            assert!(own.is_state(path) && own.is_any(path), "{path}");
        }
        for path in ["sub/v.log", "sub/rota.policy.json", "sub/rota.policy.a%2Fb.json", "sub/.rota/x"] {
            assert!(!own.is_state(path) && own.is_any(path), "{path}");
        }
        for path in ["s.json", "sub/s.json.rs", "sub/rota.yml", "sub/src/v.log"] {
            assert!(!own.is_any(path), "{path}");
        }
    }
}
