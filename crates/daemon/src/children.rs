//! `children.jsonl`: what a loop leaves to be done, one plan line per child with its kind.

use std::path::Path;

use rota_core::{Refusal, TaskId, plan_sync};
use rota_store::intents::add::{NewPriority, NewTask};
use serde_json::{Map, Value};

use crate::folders::{open_beneath, read_beneath};

/// The largest file that is read.
const FILE_BYTES: u64 = 64 * 1_024 * 1_024;
/// The file's name, and what triggers a child that names nothing else.
pub const FILE: &str = "children.jsonl";
/// The keys beyond those of a plan.
const KEYS: [&str; 3] = ["kind", "prompt", "artifact"];

/// Whose children.
pub struct Parent<'a> {
    /// The loop.
    pub id: &'a TaskId,
    /// Its iteration.
    pub iteration: u32,
    /// Its queue.
    pub queue: &'a str,
    /// The artifacts of that iteration.
    pub artifacts: &'a Path,
    /// The same, from the loop's folder.
    pub artifacts_from_loop: &'a str,
}

/// Reads the file; no file is no children. What is wrong names its line.
pub fn read(parent: &Parent<'_>) -> Result<Vec<NewTask>, String> {
    let bytes = match read_beneath(parent.artifacts, FILE, FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{FILE}: {error}")),
    };
    parse(parent, &bytes).map_err(|refusal| format!("{FILE}: {refusal}"))
}

fn parse(parent: &Parent<'_>, bytes: &[u8]) -> Result<Vec<NewTask>, Refusal> {
    let plan = plan_sync::read(bytes)?;
    let known = |key: &String| KEYS.contains(&key.as_str());
    if let Some(unknown) = plan.unknown_keys.iter().find(|key| !known(key)) {
        let problem = format!("unknown key \"{}\"", rota_core::text::escaped(unknown));
        return Err(Refusal::BadLine { line: 1, problem });
    }
    let texts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let mut children = Vec::with_capacity(plan.lines.len());
    for line in plan.lines {
        let bad = |problem: String| Refusal::BadLine { line: line.line, problem };
        let object: Map<String, Value> = serde_json::from_slice(texts[line.line - 1])
            .map_err(|error| bad(format!("invalid JSON: {error}")))?;
        let text = |key: &str| match object.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(bad(format!("field \"{key}\" must be a text"))),
        };
        let kind = text("kind")?.ok_or_else(|| bad("field \"kind\" is missing or empty".to_owned()))?;
        rota_core::id::check_name("kind", &kind).map_err(|error| bad(error.to_string()))?;
        let artifact = text("artifact")?.unwrap_or_else(|| FILE.to_owned());
        open_beneath(parent.artifacts, &artifact)
            .map_err(|error| bad(format!("field \"artifact\": {error}")))?;
        children.push(NewTask {
            kind: Some(kind),
            priority: line.priority.map_or(NewPriority::Unset, NewPriority::Given),
            parent: Some(parent.id.clone()),
            parent_iteration: Some(parent.iteration),
            triggered_by: Some(format!("{}/{artifact}", parent.artifacts_from_loop)),
            artifact_present: true,
            description: text("prompt")?.or(line.description),
            category: line.category,
            steps: line.steps,
            spec_ref: line.spec,
            reference: line.reference,
            deps: line.deps.unwrap_or_default(),
            ..NewTask::new(line.id, parent.queue, &line.title)
        });
    }
    Ok(children)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<NewTask>, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        std::fs::write(folder.path().join("spec.md"), "spec").unwrap();
        let id = TaskId::from_stored("p".into());
        read(&Parent {
            id: &id,
            iteration: 2,
            queue: "loops",
            artifacts: folder.path(),
            artifacts_from_loop: "iterations/002/artifacts",
        })
    }

    #[test]
    fn lines_become_children() {
        let text = "{\"id\":\"s1\",\"t\":\"Spec\",\"kind\":\"spec\",\"artifact\":\"spec.md\",\"prompt\":\"Do it\",\"p\":1}\n\n\
                    {\"id\":\"s2\",\"t\":\"Next\",\"kind\":\"spec\",\"deps\":[\"s1\"]}\n";
        let children = read_text(text).unwrap();
        let first = &children[0];
        assert_eq!(first.triggered_by.as_deref(), Some("iterations/002/artifacts/spec.md"));
        assert_eq!((first.priority, first.parent_iteration), (NewPriority::Given(1), Some(2)));
        assert_eq!(first.description.as_deref(), Some("Do it"));
        let second = &children[1];
        assert_eq!(second.triggered_by.as_deref(), Some("iterations/002/artifacts/children.jsonl"));
        assert_eq!((second.priority, second.deps.len()), (NewPriority::Unset, 1));
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, wanted) in [
            ("{\"id\":\"a\",\"t\":\"A\",\"kind\":\"spec\"}\n{", "children.jsonl: line 2: invalid JSON"),
            ("{\"id\":\"a\",\"t\":\"A\"}", "children.jsonl: line 1: field \"kind\" is missing or empty"),
            (
                "{\"id\":\"a\",\"t\":\"A\",\"kind\":7}",
                "children.jsonl: line 1: field \"kind\" must be a text",
            ),
            (
                "{\"id\":\"a\",\"t\":\"A\",\"kind\":\"k\",\"artifact\":\"../x\"}",
                "children.jsonl: line 1: field \"artifact\":",
            ),
            (
                "{\"id\":\"a\",\"t\":\"A\",\"kind\":\"k\",\"artifact\":\"no\"}",
                "children.jsonl: line 1: field \"artifact\":",
            ),
            ("{\"id\":\"a\",\"t\":\"A\",\"kind\":\"k\",\"kid\":1}", "unknown key \"kid\""),
        ] {
            let problem = read_text(text).unwrap_err();
            assert!(problem.contains(wanted), "{problem}");
        }
    }
}
