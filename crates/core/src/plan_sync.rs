//! Reads a plan, and computes the changes that make the backlog agree with it. Pure: [`read`] takes bytes, [`diff`]
//! takes the stored tasks, and both return data.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::glob::Globs;
use crate::id::TaskId;
use crate::limits;
use crate::refusal::Refusal;
use crate::status::Status;
use crate::task::Task;
use crate::text;
use crate::time::UnixMillis;

/// One line of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanLine {
    /// Its number in the input, from 1.
    pub line: usize,
    /// The planner's id.
    pub id: TaskId,
    /// `t`
    pub title: String,
    /// `d`
    pub description: Option<String>,
    /// `p`; none for the queue's default.
    pub priority: Option<u32>,
    /// `cat`
    pub category: Option<String>,
    /// `spec`
    pub spec: Option<String>,
    /// `ref`
    pub reference: Option<String>,
    /// `deps`; none keeps the edges.
    pub deps: Option<Vec<TaskId>>,
    /// `steps`
    pub steps: Vec<String>,
}

/// A parsed plan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlanText {
    /// Its lines, in order.
    pub lines: Vec<PlanLine>,
    /// Unknown keys, each once.
    pub unknown_keys: BTreeSet<String>,
}

const KEYS: [&str; 9] = ["id", "t", "d", "p", "cat", "spec", "ref", "deps", "steps"];

/// Parses a whole plan, or reports the first invalid line.
pub fn read(input: &[u8]) -> Result<PlanText, Refusal> {
    let mut plan = PlanText::default();
    let mut seen: BTreeMap<TaskId, usize> = BTreeMap::new();
    for (index, bytes) in input.split(|byte| *byte == b'\n').enumerate() {
        let line = index + 1;
        let bad = |problem: String| Refusal::BadLine { line, problem };
        if bytes.len() > limits::TEXT_BYTES {
            return Err(bad(format!(
                "{} bytes long, at most {} are allowed",
                bytes.len(),
                limits::TEXT_BYTES
            )));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| bad(format!("invalid UTF-8: {error}")))?;
        if text.trim().is_empty() {
            continue;
        }
        if plan.lines.len() == limits::BATCH {
            return Err(bad(format!("more than {} tasks in one plan", limits::BATCH)));
        }
        let parsed = Line::read(line, text, &mut plan.unknown_keys)?;
        if let Some(first) = seen.insert(parsed.id.clone(), line) {
            return Err(bad(format!("duplicate id '{}' (first on line {first})", parsed.id)));
        }
        plan.lines.push(parsed);
    }
    Ok(plan)
}

/// One JSON object with its line number, for messages.
struct Line {
    line: usize,
    object: Map<String, Value>,
}

impl Line {
    fn read(line: usize, text: &str, unknown: &mut BTreeSet<String>) -> Result<PlanLine, Refusal> {
        let bad = |problem: String| Refusal::BadLine { line, problem };
        let object: Map<String, Value> = serde_json::from_str(text)
            .map_err(|error| bad(format!("invalid JSON: {}", in_one_line(&error))))?;
        if let Some(key) = crate::policy::repeated_key("", text) {
            return Err(bad(format!("field \"{}\" is given twice", crate::text::escaped(&key))));
        }
        unknown.extend(object.keys().filter(|key| !KEYS.contains(&key.as_str())).cloned());
        let fields = Self { line, object };
        let id = fields.required("id")?;
        let title = fields.required("t")?;
        if title.len() > limits::TITLE_BYTES {
            return Err(bad(format!(
                "field \"t\" is {} bytes long, at most {} are allowed",
                title.len(),
                limits::TITLE_BYTES
            )));
        }
        let id = TaskId::new(&id).map_err(|error| bad(error.to_string()))?;
        Ok(PlanLine {
            line,
            title,
            description: fields.text("d")?,
            priority: fields.priority()?,
            category: fields.name("cat", "category")?,
            spec: fields.name("spec", "spec")?,
            reference: fields.name("ref", "ref")?,
            deps: fields.deps(&id)?,
            steps: fields.list("steps", limits::STEPS)?.unwrap_or_default(),
            id,
        })
    }

    fn bad(&self, problem: String) -> Refusal {
        Refusal::BadLine { line: self.line, problem }
    }

    fn wrong(&self, key: &str, wanted: &str, value: &Value) -> Refusal {
        let given: String = value.to_string().chars().take(80).collect();
        self.bad(format!("field \"{key}\" must be {wanted}, got: {}", text::escaped(&given)))
    }

    /// PostgreSQL cannot store NUL, and no store accepts text that another one cannot.
    fn has_nul(&self, key: &str) -> Refusal {
        self.bad(format!("field \"{key}\" contains a NUL character"))
    }

    fn present(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn required(&self, key: &str) -> Result<String, Refusal> {
        let text = self.text(key)?.filter(|text| !text.trim().is_empty());
        text.ok_or_else(|| self.bad(format!("field \"{key}\" is missing or empty")))
    }

    fn text(&self, key: &str) -> Result<Option<String>, Refusal> {
        match self.present(key) {
            None => Ok(None),
            Some(Value::String(text)) if text.contains('\0') => Err(self.has_nul(key)),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(other) => Err(self.wrong(key, "a text", other)),
        }
    }

    fn name(&self, key: &str, field: &'static str) -> Result<Option<String>, Refusal> {
        let name = self.text(key)?;
        if let Some(name) = &name {
            crate::id::check_name(field, name).map_err(|error| self.bad(error.to_string()))?;
        }
        Ok(name)
    }

    fn priority(&self) -> Result<Option<u32>, Refusal> {
        let Some(value) = self.present("p") else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.map(Some).ok_or_else(|| self.wrong("p", "a non-negative integer", value))
    }

    fn list(&self, key: &str, limit: usize) -> Result<Option<Vec<String>>, Refusal> {
        let Some(value) = self.present(key) else { return Ok(None) };
        let words = value.as_array().and_then(|list| {
            list.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>()
        });
        let words = words.ok_or_else(|| self.wrong(key, "a list of texts", value))?;
        if words.iter().any(|word| word.contains('\0')) {
            return Err(self.has_nul(key));
        }
        if words.len() > limit {
            return Err(
                self.bad(format!("field \"{key}\" has {} entries, at most {limit} are allowed", words.len()))
            );
        }
        Ok(Some(words))
    }

    fn deps(&self, id: &TaskId) -> Result<Option<Vec<TaskId>>, Refusal> {
        let Some(words) = self.list("deps", limits::BLOCKERS)? else { return Ok(None) };
        let mut seen = BTreeSet::new();
        let mut deps = Vec::with_capacity(words.len());
        for word in words {
            let dep = TaskId::new(&word).map_err(|error| self.bad(format!("field \"deps\": {error}")))?;
            if dep == *id {
                return Err(self.bad(format!("task '{id}' depends on itself")));
            }
            if !seen.insert(dep.clone()) {
                return Err(self.bad(format!("duplicate dependency '{dep}'")));
            }
            deps.push(dep);
        }
        Ok(Some(deps))
    }
}

/// Removes the parser's own line number, which would be mistaken for the plan's.
fn in_one_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

/// The stored tasks that a plan affects.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Tasks that the plan's lines or dependencies name, and those of its specs, with their blockers.
    pub tasks: BTreeMap<TaskId, (Task, BTreeSet<TaskId>)>,
}

/// The context of a plan.
pub struct PlanScope<'a> {
    /// Namespace.
    pub scope: &'a str,
    /// The queue it plans.
    pub queue: &'a str,
    /// Priority of lines without one.
    pub default_priority: u32,
    /// Specs from which tasks may be deleted; none for all that the plan names.
    pub specs: Option<&'a Globs>,
}

/// One changed task, and its changed edges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanChange {
    /// The task with the plan's fields.
    pub task: Task,
    /// Edges to add.
    pub add: Vec<TaskId>,
    /// Edges to remove.
    pub remove: Vec<TaskId>,
}

/// The changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlanDiff {
    /// New tasks, in line order.
    pub insert: Vec<PlanChange>,
    /// Deleted tasks that the plan names again.
    pub revive: Vec<PlanChange>,
    /// Tasks whose fields or edges differ.
    pub update: Vec<PlanChange>,
    /// Tasks that are no longer in the plan.
    pub delete: Vec<TaskId>,
    /// Done tasks, which are immutable.
    pub skipped: usize,
}

/// Computes the changes. Applying the same plan again changes nothing.
pub fn diff(
    lines: &[PlanLine],
    stored: &Stored,
    plan: &PlanScope<'_>,
    now: UnixMillis,
) -> Result<PlanDiff, Refusal> {
    let in_plan: BTreeSet<&TaskId> = lines.iter().map(|line| &line.id).collect();
    let mut changes = PlanDiff::default();
    for line in lines {
        let bad = |problem: String| Refusal::BadLine { line: line.line, problem };
        let known = |dep: &&TaskId| in_plan.contains(*dep) || stored.tasks.contains_key(*dep);
        if let Some(dep) = line.deps.iter().flatten().find(|dep| !known(dep)) {
            return Err(bad(format!("unknown dependency '{dep}'")));
        }
        match stored.tasks.get(&line.id) {
            None => {
                let fresh = Task::new(plan.scope, line.id.clone(), plan.queue, &line.title, now);
                let add = line.deps.clone().unwrap_or_default();
                changes.insert.push(PlanChange {
                    task: planned(&fresh, line, plan),
                    add,
                    remove: Vec::new(),
                });
            }
            Some((task, _)) if task.queue != plan.queue => {
                return Err(bad(format!("task '{}' belongs to queue '{}'", line.id, task.queue)));
            }
            Some((task, _)) if task.status == Status::Done => changes.skipped += 1,
            Some((task, edges)) => {
                let change = change_of(task, edges, line, plan);
                if task.status == Status::Deleted {
                    changes.revive.push(change);
                } else if change.task != *task || !change.add.is_empty() || !change.remove.is_empty() {
                    changes.update.push(change);
                }
            }
        }
    }
    changes.delete = removed(lines, stored, plan, &in_plan);
    Ok(changes)
}

fn change_of(task: &Task, edges: &BTreeSet<TaskId>, line: &PlanLine, plan: &PlanScope<'_>) -> PlanChange {
    let (add, remove) = match &line.deps {
        None => (Vec::new(), Vec::new()),
        Some(deps) => {
            let wanted: BTreeSet<&TaskId> = deps.iter().collect();
            (
                deps.iter().filter(|dep| !edges.contains(*dep)).cloned().collect(),
                edges.iter().filter(|edge| !wanted.contains(edge)).cloned().collect(),
            )
        }
    };
    PlanChange { task: planned(task, line, plan), add, remove }
}

/// The task with the line's fields; fields that the line omits are cleared.
fn planned(task: &Task, line: &PlanLine, plan: &PlanScope<'_>) -> Task {
    Task {
        title: (&line.title).into(),
        description: line.description.as_ref().map(Into::into),
        priority: Some(line.priority.unwrap_or(plan.default_priority)),
        category: line.category.as_ref().map(Into::into),
        spec_ref: line.spec.clone(),
        reference: line.reference.clone(),
        steps: line.steps.clone(),
        ..task.clone()
    }
}

/// Tasks of the plan's specs that are no longer in the plan, neither done nor already deleted.
fn removed(
    lines: &[PlanLine],
    stored: &Stored,
    plan: &PlanScope<'_>,
    in_plan: &BTreeSet<&TaskId>,
) -> Vec<TaskId> {
    let specs: BTreeSet<&str> = lines
        .iter()
        .filter_map(|line| line.spec.as_deref())
        .filter(|spec| plan.specs.is_none_or(|globs| globs.matches(spec)))
        .collect();
    let is_removed = |task: &Task| {
        task.queue == plan.queue
            && !matches!(task.status, Status::Done | Status::Deleted)
            && task.spec_ref.as_deref().is_some_and(|spec| specs.contains(spec))
            && !in_plan.contains(&task.id)
    };
    let orphans = stored.tasks.values().map(|(task, _)| task).filter(|task| is_removed(task));
    orphans.map(|task| task.id.clone()).collect()
}
