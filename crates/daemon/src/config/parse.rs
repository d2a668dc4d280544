//! From the text of `rota.yml` to [`Config`], section by section.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use rota_store::Secret;
use serde_yaml_ng::Value;

use super::gateway;
use super::policy_words::{self, Word};
use super::walk::{Field, KeyError, Section, decimal, one_of, snake_case};
use super::{AgentsConfig, Config, LoopKind, Program};

/// The kinds that the policy knows by itself.
const KNOWN_KINDS: [&str; 4] = ["plan", "spec", "phase", "ralph"];

/// What a reader of sections writes to.
struct Reader {
    config: Config,
    named: BTreeSet<String>,
}

/// Reads a whole document.
pub(super) fn document(text: &str) -> Result<Config, KeyError> {
    let document: Value =
        serde_yaml_ng::from_str(text).map_err(|error| KeyError::NotYaml { problem: error.to_string() })?;
    let mut top = Section::top(&document)?;
    let mut reader = Reader { config: Config::default(), named: BTreeSet::new() };
    reader.top_level(&mut top)?;
    // First, because the kinds named here may be named in other sections.
    if let Some(loops) = top.take("loops") {
        reader.loops(&loops)?;
    }
    if let Some(field) = top.take("agents") {
        reader.config.agents = Some(reader.agents(field.section()?)?);
    }
    reader.work(top.section("work")?)?;
    let scheduler = top.section("scheduler")?;
    reader.scheduler(scheduler)?;
    let (concurrency, rate_limit) = (top.section("concurrency")?, top.section("rate_limit")?);
    reader.limits(concurrency, rate_limit)?;
    if let Some(field) = top.take("queues") {
        reader
            .config
            .policy
            .name_queues(&field.any()?)
            .map_err(|error| KeyError::Key { path: error.path, problem: error.problem })?;
    }
    let disk = top.section("disk")?;
    reader.disk(&mut top, disk)?;
    reader.config.supervisor =
        top.take("supervisor").map(|field| super::supervisor::section(&field)).transpose()?;
    reader.config.gateway = top.take("gateway").map(|field| gateway::section(&field)).transpose()?;
    reader.config.notify = top.take("notify").map(|field| field.any()).transpose()?;
    top.finish()?;
    // All that a file can say that does not go with the rest.
    reader.config.apply_to(&rota_core::Policy::default()).map_err(|error| KeyError::Key {
        path: "rate_limit.max_backoff_secs".to_owned(),
        problem: format!("does not go with initial_backoff_secs ({error})"),
    })?;
    reader.config.named = reader.named;
    Ok(reader.config)
}

impl Reader {
    /// What `read` makes of a key, if it is there.
    fn take<'a, T>(
        &mut self,
        section: &mut Section<'a>,
        key: &str,
        read: impl FnOnce(&Field<'a>) -> Result<T, KeyError>,
    ) -> Result<Option<T>, KeyError> {
        let Some(field) = section.take(key) else { return Ok(None) };
        self.named.insert(field.path.clone());
        read(&field).map(Some)
    }

    fn top_level(&mut self, top: &mut Section<'_>) -> Result<(), KeyError> {
        let text = |field: &Field<'_>| field.text().map(str::to_owned);
        self.config.scope = self.take(top, "scope", text)?;
        self.config.store = self.take(top, "store", text)?.map(Secret::from);
        if let Some(shared) = self.take(top, "shared_folder", |field| field.boolean())? {
            self.config.shared_folder = shared;
        }
        Ok(())
    }

    /// Both keys or neither: an agent of another user cannot work below `.rota`.
    fn agents(&mut self, mut section: Section<'_>) -> Result<AgentsConfig, KeyError> {
        let text = |field: &Field<'_>| field.text().map(str::to_owned);
        let user = self.take(&mut section, "user", text)?;
        let folder = self.take(&mut section, "folder", text)?;
        section.finish()?;
        let wrong = |problem: &str| KeyError::Key { path: "agents".to_owned(), problem: problem.to_owned() };
        let (Some(user), Some(folder)) = (user, folder) else {
            return Err(wrong("needs both 'user' and 'folder'"));
        };
        if user.is_empty() || user.starts_with('-') {
            return Err(wrong("'user' must be the name of a user"));
        }
        let folder = PathBuf::from(folder);
        if !folder.is_absolute() {
            return Err(wrong("'folder' must be an absolute path, outside of .rota"));
        }
        Ok(AgentsConfig { user, folder })
    }

    fn work(&mut self, mut work: Section<'_>) -> Result<(), KeyError> {
        if let Some(names) = self.take(&mut work, "pass_env", passed)? {
            self.config.work_pass_env = names;
        }
        work.finish()
    }

    fn scheduler(&mut self, mut scheduler: Section<'_>) -> Result<(), KeyError> {
        let seconds = |field: &Field<'_>| field.thousandths(&(1..=3_600_000));
        if let Some(milliseconds) = self.take(&mut scheduler, "poll_interval_secs", seconds)? {
            self.config.poll_interval = Duration::from_millis(milliseconds);
        }
        let mut priority = scheduler.section("priority")?;
        self.words("scheduler.priority", &mut priority)?;
        for kind in self.kinds() {
            let points = self.take(&mut priority, &kind, |field| field.whole(&policy_words::BASE))?;
            if let Some(points) = points {
                self.config.policy.name_base(&kind, policy_words::narrow(points));
            }
        }
        priority.finish()?;
        scheduler.finish()
    }

    fn limits<'a>(
        &mut self,
        mut concurrency: Section<'a>,
        mut rate_limit: Section<'a>,
    ) -> Result<(), KeyError> {
        const CALLS: &str = "concurrency.max_api_calls";
        // The one value that has a name in both.
        let (word, mut calls) = (Word::of_path(CALLS), Vec::new());
        let places = [(&mut concurrency, "max_api_calls"), (&mut rate_limit, "max_concurrent_api_calls")];
        for (section, key) in places {
            if let Some(field) = section.take(key) {
                calls.push((field.path.clone(), word.read(&field)?));
            }
        }
        if let Some(value) = one_of(calls)? {
            self.config.policy.name(word, value);
        }
        self.words("concurrency", &mut concurrency)?;
        self.words("rate_limit", &mut rate_limit)?;
        let worktrees =
            self.take(&mut concurrency, "max_worktrees", |field| field.whole(&policy_words::CEILING))?;
        if let Some(worktrees) = worktrees {
            self.config.max_worktrees = policy_words::narrow(worktrees);
        }
        if let Some(field) = concurrency.take("per_type") {
            self.ceilings(field.section()?)?;
        }
        concurrency.finish()?;
        rate_limit.finish()
    }

    fn ceilings(&mut self, mut per_type: Section<'_>) -> Result<(), KeyError> {
        let mut ceilings = BTreeMap::new();
        for kind in self.kinds() {
            let ceiling = self.take(&mut per_type, &kind, |field| field.whole(&policy_words::CEILING))?;
            if let Some(ceiling) = ceiling {
                ceilings.insert(kind, policy_words::narrow(ceiling));
            }
        }
        self.config.policy.name_ceilings(ceilings);
        per_type.finish()
    }

    fn words(&mut self, section: &str, from: &mut Section<'_>) -> Result<(), KeyError> {
        for (key, word) in Word::of_section(section) {
            if let Some(value) = self.take(from, key, |field| word.read(field))? {
                self.config.policy.name(word, value);
            }
        }
        Ok(())
    }

    fn disk(&mut self, top: &mut Section<'_>, mut disk: Section<'_>) -> Result<(), KeyError> {
        let fields =
            [disk.take("min_free_gb"), disk.take("disk_quota_min_gb"), top.take("disk_quota_min_gb")];
        let read = |field: Field<'_>| {
            let thousandths = field.thousandths(&(0..=1_000_000_000))?;
            Ok((field.path, Gigabytes { thousandths }))
        };
        let given = fields.into_iter().flatten().map(read).collect::<Result<Vec<_>, KeyError>>()?;
        if let Some(free) = one_of(given)? {
            self.named.insert("disk.min_free_gb".to_owned());
            self.config.disk_min_free_bytes = free.thousandths * 1_000_000;
        }
        disk.finish()
    }

    fn loops(&mut self, loops: &Field<'_>) -> Result<(), KeyError> {
        for (kind, field) in loops.entries()? {
            rota_core::id::check_name("kind", kind).map_err(|error| field.error(error.to_string()))?;
            let alike = |other: &&String| snake_case(other) == snake_case(kind);
            if let Some(other) = self.config.loops.keys().find(alike) {
                return Err(field.error(format!("differs from '{other}' only in '-' and '_'")));
            }
            let settings = self.kind(field.section()?)?;
            self.config.loops.insert(kind.to_owned(), settings);
        }
        Ok(())
    }

    fn kind(&mut self, mut section: Section<'_>) -> Result<LoopKind, KeyError> {
        let mut kind = LoopKind {
            run: self.take(&mut section, "run", program)?,
            validate: self.take(&mut section, "validate", program)?,
            uses_api: self.take(&mut section, "uses_api", upstream)?.flatten(),
            ..LoopKind::default()
        };
        if let Some(limit) =
            self.take(&mut section, "max_iterations", |field| field.whole(&(1..=1_000_000)))?
        {
            kind.max_iterations = policy_words::narrow(limit);
        }
        if let Some(timeout) = self.take(&mut section, "timeout_secs", timeout)? {
            kind.timeout = timeout;
        }
        if let Some(worktree) = self.take(&mut section, "worktree", |field| field.boolean())? {
            kind.worktree = worktree;
        }
        if let Some(keep) = self.take(&mut section, "keep_worktree_on_failure", |field| field.boolean())? {
            kind.keep_worktree_on_failure = keep;
        }
        if let Some(env) = self.take(&mut section, "env", variables)? {
            kind.env = env;
        }
        if let Some(names) = self.take(&mut section, "pass_env", passed)? {
            kind.pass_env = names;
        }
        let commits = |field: &Field<'_>| field.word(&[("required", false), ("optional", true)]);
        if let Some(optional) = self.take(&mut section, "commits", commits)? {
            kind.commits_are_optional = optional;
        }
        section.finish()?;
        Ok(kind)
    }

    /// The kinds that may be named wherever kinds are: the known ones, and those the file says how to run.
    fn kinds(&self) -> BTreeSet<String> {
        KNOWN_KINDS.into_iter().map(str::to_owned).chain(self.config.loops.keys().cloned()).collect()
    }
}

/// Free space as it is written.
#[derive(PartialEq)]
struct Gigabytes {
    thousandths: u64,
}

impl std::fmt::Display for Gigabytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        decimal(self.thousandths).fmt(f)
    }
}

/// A list is argv, a text goes to the shell.
fn program(field: &Field<'_>) -> Result<Program, KeyError> {
    let Some(argv) = field.list()? else {
        let line = field.text_or("a text for `sh -c`, or a list of texts")?;
        if line.trim().is_empty() {
            return Err(field.error("is empty"));
        }
        return Ok(Program::Shell(line.to_owned()));
    };
    if argv.first().is_none_or(|program| program.is_empty()) {
        return Err(field.error("names no program"));
    }
    Ok(Program::Argv(argv.into_iter().map(str::to_owned).collect()))
}

fn timeout(field: &Field<'_>) -> Result<Option<Duration>, KeyError> {
    if field.is_false() {
        return Ok(None);
    }
    field.whole(&(1..=365 * 24 * 3_600)).map(|seconds| Some(Duration::from_secs(seconds)))
}

fn upstream(field: &Field<'_>) -> Result<Option<String>, KeyError> {
    if field.is_false() {
        return Ok(None);
    }
    let name = field.text_or("the name of an upstream, or false")?;
    rota_core::id::check_name("upstream", name).map_err(|error| field.error(error.to_string()))?;
    Ok(Some(name.to_owned()))
}

fn variables(field: &Field<'_>) -> Result<BTreeMap<String, String>, KeyError> {
    let variable = |(name, field): (&str, Field<'_>)| {
        check_variable(name, &field)?;
        Ok((name.to_owned(), field.text()?.to_owned()))
    };
    field.entries()?.into_iter().map(variable).collect()
}

fn passed(field: &Field<'_>) -> Result<Vec<String>, KeyError> {
    let names = field.list()?.ok_or_else(|| field.wrong("a list of names"))?;
    for name in &names {
        check_variable(name.strip_suffix('*').unwrap_or(name), field)?;
    }
    Ok(names.into_iter().map(str::to_owned).collect())
}

/// What a variable of the agent may be called: `ROTA_` is the daemon's.
fn check_variable(name: &str, field: &Field<'_>) -> Result<(), KeyError> {
    if name.is_empty() || name.contains(['=', '\0', '*']) {
        return Err(
            field.error(format!("'{}' cannot be the name of a variable", rota_core::text::escaped(name)))
        );
    }
    if name.starts_with("ROTA_") {
        return Err(field.error(format!("{name}: names that begin with ROTA_ are set by rota itself")));
    }
    Ok(())
}
