//! From the text of `rota.yml` to [`Config`]: the table of [`super::keys`] checks each key by itself, here the values
//! become settings, and what concerns two keys at once is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use rota_core::id::check_name;
use rota_core::shape::{FromNode, KeyError, Node, Notation, Section, decimal, unknown_key};
use rota_core::text::escaped;
use rota_store::Secret;

use super::keys::{DOCUMENT, KINDS, LOOP_KIND, PRIORITY, TOP};
use super::{AgentsConfig, Config, LoopKind, ParseError, PolicyKeys, Program, gateway, reader, supervisor};

/// Reads a whole document.
pub(super) fn document(text: &str) -> Result<Config, ParseError> {
    let checked = DOCUMENT.check(Notation::Yaml, "", &reader::parse(text)?)?;
    let top = Section::new(TOP, "", &checked.node);
    let mut config = Config {
        policy: PolicyKeys::read(&checked.node),
        named: checked.named,
        loops: loops(&top)?,
        agents: top.section("agents").map(|given| agents(&given)).transpose()?,
        supervisor: top.section("supervisor").map(|given| supervisor::section(&given)).transpose()?,
        gateway: top.section("gateway").map(|given| gateway::section(&given)).transpose()?,
        notify: top.given("notify").cloned(),
        ..settings(&top)
    };
    if let Some(given) = top.section("work") {
        check_passed(&given)?;
    }
    alternative_names(&mut config, &top)?;
    kinds(&mut config, &top)?;
    if let Some(queues) = top.given("queues") {
        config.policy.name_queues(&queues.to_json())?;
    }
    // Two keys that were checked by themselves may contradict each other.
    config.apply_to(&rota_core::Policy::default()).map_err(|error| {
        let problem = format!("does not go with initial_backoff_secs ({error})");
        KeyError::new("rate_limit.max_backoff_secs", problem)
    })?;
    Ok(config)
}

/// The settings that concern one key each.
fn settings(top: &Section<'_>) -> Config {
    let below = |key: &str| top.section(key).unwrap_or_else(|| unreachable!("{key} has a default"));
    Config {
        scope: top.given("scope").and_then(String::from_node),
        store: top.given("store").and_then(String::from_node).map(Secret::from),
        poll_interval: Duration::from_millis(below("scheduler").value("poll_interval_secs")),
        max_worktrees: below("concurrency").value("max_worktrees"),
        disk_min_free_bytes: below("disk").value::<u64>("min_free_gb") * 1_000_000,
        shared_folder: top.value("shared_folder"),
        work_pass_env: below("work").value("pass_env"),
        agents: None,
        loops: BTreeMap::new(),
        policy: PolicyKeys::default(),
        supervisor: None,
        gateway: None,
        notify: None,
        named: BTreeSet::new(),
    }
}

impl Default for Config {
    fn default() -> Self {
        settings(&Section::empty(TOP))
    }
}

/// The two settings that have more than one name.
fn alternative_names(config: &mut Config, top: &Section<'_>) -> Result<(), KeyError> {
    const CALLS: &str = "concurrency.max_api_calls";
    const FREE: &str = "disk.min_free_gb";
    let at = |path: &'static str| {
        let mut keys = path.split('.');
        let first = keys.next().and_then(|key| top.given(key));
        let node = keys.fold(first, |node, key| node.and_then(|node| node.get(key)));
        node.map(|node| (path, u64::from_node(node).unwrap_or_default()))
    };
    if let Some(calls) =
        one_of([CALLS, "rate_limit.max_concurrent_api_calls"].map(at), |calls| calls.to_string())?
    {
        config.policy.set(CALLS, calls.into());
    }
    if let Some(free) = one_of([FREE, "disk.disk_quota_min_gb", "disk_quota_min_gb"].map(at), decimal)? {
        config.named.insert(FREE.to_owned());
        config.disk_min_free_bytes = free * 1_000_000;
    }
    Ok(())
}

/// The value of a setting with several names: of whichever is given, or of all if they agree.
fn one_of<const N: usize>(
    given: [Option<(&'static str, u64)>; N],
    shown: fn(u64) -> String,
) -> Result<Option<u64>, KeyError> {
    let mut given = given.into_iter().flatten();
    let Some((first_path, first)) = given.next() else { return Ok(None) };
    match given.find(|(_, value)| *value != first) {
        None => Ok(Some(first)),
        Some((path, value)) => {
            let (value, first) = (shown(value), shown(first));
            let problem = format!("says {value}, but {first_path} says {first}, and both mean one thing");
            Err(KeyError::new(path, problem))
        }
    }
}

/// Scores and ceilings of kinds: a kind is one that the policy knows, or one of the section `loops`.
fn kinds(config: &mut Config, top: &Section<'_>) -> Result<(), KeyError> {
    let kinds: BTreeSet<&str> = KINDS.into_iter().chain(config.loops.keys().map(String::as_str)).collect();
    let kind_of = |path: &str, other_keys: &[&'static str], name: &str| {
        let key = Notation::Yaml.spelling(name);
        let kind = kinds.iter().find(|kind| Notation::Yaml.spelling(kind) == key);
        let known = other_keys.iter().chain(&kinds).copied();
        kind.map(|kind| (*kind).to_owned()).ok_or_else(|| unknown_key(path, name, &key, known))
    };
    let entries = |section: &str, key: &str| {
        let section = top.given(section).and_then(|section| section.get(key));
        section.map(|section| section.entries().iter().map(|(name, node)| (name.as_str(), node)))
    };
    let number = |node: &Node| u32::from_node(node).unwrap_or_default();
    let words: Vec<&str> = PRIORITY.iter().map(|key| key.name).filter(|name| !KINDS.contains(name)).collect();
    let mut bases = Vec::new();
    for (name, node) in entries("scheduler", "priority").into_iter().flatten() {
        if !words.contains(&name) {
            bases.push((kind_of("scheduler.priority", &words, name)?, number(node)));
        }
    }
    let ceilings = entries("concurrency", "per_type").map(|entries| {
        entries.map(|(name, node)| Ok((kind_of("concurrency.per_type", &[], name)?, number(node)))).collect()
    });
    let ceilings = ceilings.transpose()?;
    config.policy.name_kinds(bases.into_iter().collect(), ceilings);
    Ok(())
}

/// An agent of another user cannot work below `.rota`.
fn agents(given: &Section<'_>) -> Result<AgentsConfig, KeyError> {
    let (Some(user), Some(folder)) = (given.get::<String>("user"), given.get::<String>("folder")) else {
        return Err(given.error("needs both 'user' and 'folder'"));
    };
    if user.is_empty() || user.starts_with('-') {
        return Err(given.error("'user' must be the name of a user"));
    }
    let folder = PathBuf::from(folder);
    if !folder.is_absolute() {
        return Err(given.error("'folder' must be an absolute path, outside of .rota"));
    }
    Ok(AgentsConfig { user, folder })
}

fn loops(top: &Section<'_>) -> Result<BTreeMap<String, LoopKind>, KeyError> {
    let mut loops: BTreeMap<String, LoopKind> = BTreeMap::new();
    for (kind, given) in top.sections("loops") {
        check_name("kind", kind).map_err(|error| given.error(error.to_string()))?;
        let spelling = |kind: &str| Notation::Yaml.spelling(kind);
        if let Some(other) = loops.keys().find(|other| spelling(other) == spelling(kind)) {
            return Err(given.error(format!("differs from '{other}' only in '-' and '_'")));
        }
        check_kind(&given)?;
        loops.insert(kind.to_owned(), LoopKind::of(&given));
    }
    Ok(loops)
}

impl LoopKind {
    fn of(given: &Section<'_>) -> Self {
        let program = |key: &str| {
            let argv = given.get(key).map(Program::Argv);
            argv.or_else(|| given.get(key).map(Program::Shell))
        };
        Self {
            run: program("run"),
            validate: program("validate"),
            max_iterations: given.value("max_iterations"),
            timeout: given.get("timeout_secs").map(Duration::from_secs),
            worktree: given.value("worktree"),
            keep_worktree_on_failure: given.value("keep_worktree_on_failure"),
            uses_api: given.get("uses_api"),
            env: given.value("env"),
            pass_env: given.value("pass_env"),
            commits_are_optional: given.get::<String>("commits").is_some_and(|word| word == "optional"),
        }
    }
}

impl Default for LoopKind {
    fn default() -> Self {
        Self::of(&Section::empty(LOOP_KIND))
    }
}

fn check_kind(given: &Section<'_>) -> Result<(), KeyError> {
    for key in ["run", "validate"] {
        if given.get::<String>(key).is_some_and(|line| line.trim().is_empty()) {
            return Err(given.error_at(key, "is empty"));
        }
        if given.get::<Vec<String>>(key).is_some_and(|argv| argv.first().is_none_or(String::is_empty)) {
            return Err(given.error_at(key, "names no program"));
        }
    }
    if let Some(upstream) = given.get::<String>("uses_api") {
        check_name("upstream", &upstream).map_err(|error| given.error_at("uses_api", error.to_string()))?;
    }
    for name in given.value::<BTreeMap<String, String>>("env").keys() {
        check_variable(name, &format!("{}.{}", given.path_of("env"), escaped(name)))?;
    }
    check_passed(given)
}

fn check_passed(given: &Section<'_>) -> Result<(), KeyError> {
    let names: Vec<String> = given.value("pass_env");
    let bare = |name: &'_ String| name.strip_suffix('*').unwrap_or(name).to_owned();
    names.iter().try_for_each(|name| check_variable(&bare(name), &given.path_of("pass_env")))
}

/// Rejects names that a variable of the agent cannot have: `ROTA_` is reserved for the daemon.
fn check_variable(name: &str, path: &str) -> Result<(), KeyError> {
    if name.is_empty() || name.contains(['=', '\0', '*']) {
        let problem = format!("'{}' cannot be the name of a variable", escaped(name));
        return Err(KeyError::new(path, problem));
    }
    if name.starts_with("ROTA_") {
        let problem = format!("{name}: names that begin with ROTA_ are set by rota itself");
        return Err(KeyError::new(path, problem));
    }
    Ok(())
}
