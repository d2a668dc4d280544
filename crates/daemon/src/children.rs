//! `children.jsonl`: what a loop leaves to be done, one plan line per child with its kind.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use rota_core::{Json, Refusal, TaskId, limits, plan_sync};
use rota_store::intents::add::{NewPriority, NewTask};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::files::{Dir, Owner};
use crate::folders::ARTIFACTS;

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
    /// The folder of that iteration, with `artifacts` in it.
    pub folder: &'a Dir,
    /// The user that the files must belong to.
    pub owner: Owner,
    /// The artifacts of that iteration, from the loop's folder.
    pub artifacts_from_loop: &'a str,
}

/// Reads the file; no file is no children. What is wrong names its line.
pub fn read(parent: &Parent<'_>) -> Result<Vec<NewTask>, String> {
    let bytes = match parent.folder.read(&format!("{ARTIFACTS}/{FILE}"), parent.owner, FILE_BYTES) {
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
    let (count, limit) = (plan.lines.len(), limits::AGENT_CHILDREN);
    if count > limit {
        return Err(Refusal::AgentLimit { id: parent.id.clone(), what: "children", count, limit });
    }
    let texts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let mut children = Vec::with_capacity(plan.lines.len());
    let mut digests: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
    for line in plan.lines {
        let bad = |problem: String| Refusal::BadLine { line: line.line, problem };
        let object: Map<String, Value> = serde_json::from_slice(texts[line.line - 1])
            .map_err(|error| bad(format!("invalid JSON: {error}")))?;
        let text = |key: &str| match object.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.contains('\0') => {
                Err(bad(format!("field \"{key}\" contains a NUL character")))
            }
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(bad(format!("field \"{key}\" must be a text"))),
        };
        let kind = text("kind")?.ok_or_else(|| bad("field \"kind\" is missing or empty".to_owned()))?;
        rota_core::id::check_name("kind", &kind).map_err(|error| bad(error.to_string()))?;
        let artifact = text("artifact")?.unwrap_or_else(|| FILE.to_owned());
        let wrong = |error: std::io::Error| bad(format!("field \"artifact\": {error}"));
        if !digests.contains_key(&artifact) {
            let file = parent.folder.open_file(&format!("{ARTIFACTS}/{artifact}"), parent.owner);
            digests.insert(artifact.clone(), file.and_then(digest).map_err(wrong)?);
        }
        let trigger_hash = digests[&artifact].as_ref().map(|artifact| trigger_hash(&object, artifact));
        children.push(NewTask {
            kind: Some(kind),
            priority: line.priority.map_or(NewPriority::Unset, NewPriority::Given),
            parent: Some(parent.id.clone()),
            parent_iteration: Some(parent.iteration),
            triggered_by: Some(format!("{}/{artifact}", parent.artifacts_from_loop)),
            artifact_present: true,
            trigger_hash,
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

/// The hash of a file, read piece by piece; none of one that is too large to be read.
fn digest(file: File) -> std::io::Result<Option<Vec<u8>>> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1_024];
    let mut file = file.take(FILE_BYTES + 1);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((file.limit() > 0).then(|| hash.finalize().to_vec())),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// Names what a child is made from: its line, whatever the order of the keys, and the bytes of its artifact.
fn trigger_hash(line: &Map<String, Value>, artifact: &[u8]) -> String {
    let in_order: BTreeMap<&String, &Value> = line.iter().collect();
    let hash = Sha256::digest([Json::of(&in_order).as_str().as_bytes(), b"\0", artifact].concat());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<NewTask>, String> {
        let folder = tempfile::tempdir().unwrap();
        let artifacts = folder.path().join(ARTIFACTS);
        std::fs::create_dir(&artifacts).unwrap();
        std::fs::write(artifacts.join(FILE), text).unwrap();
        std::fs::write(artifacts.join("spec.md"), "spec").unwrap();
        let id = TaskId::from_stored("p".into());
        read(&Parent {
            id: &id,
            iteration: 2,
            queue: "loops",
            folder: &Dir::open(&folder.path().canonicalize().unwrap()).unwrap(),
            owner: Owner::Us,
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
        // The order of keys does not matter, the line and the artifact do.
        let hash = |text: &str| read_text(text).unwrap().remove(0).trigger_hash.unwrap();
        let line = hash("{\"id\":\"a\",\"t\":\"A\",\"kind\":\"k\",\"artifact\":\"spec.md\"}\n");
        assert_eq!(line, hash("{\"t\":\"A\",\"id\":\"a\",\"artifact\":\"spec.md\",\"kind\":\"k\"}\n"));
        assert_ne!(line, hash("{\"id\":\"a\",\"t\":\"B\",\"kind\":\"k\",\"artifact\":\"spec.md\"}\n"));
        assert_ne!(line, hash("{\"id\":\"a\",\"t\":\"A\",\"kind\":\"k\"}\n"));
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

    #[test]
    fn too_many_lines_are_refused() {
        let lines = |count: usize| -> String {
            (0..count)
                .map(|number| format!("{{\"id\":\"c{number}\",\"t\":\"C\",\"kind\":\"k\"}}\n"))
                .collect()
        };
        assert_eq!(read_text(&lines(limits::AGENT_CHILDREN)).unwrap().len(), 1_000);
        assert_eq!(
            read_text(&lines(limits::AGENT_CHILDREN + 1)).unwrap_err(),
            "children.jsonl: task 'p' would have 1001 children: its agent may add at most 1000"
        );
    }

    /// Bytes that an agent may have written by accident or on purpose: each is children or a refusal that names the file.
    #[test]
    fn any_bytes_are_children_or_refused() {
        let valid = "{\"id\":\"s1\",\"t\":\"Spec\",\"kind\":\"spec\",\"artifact\":\"spec.md\",\"deps\":[\"s2\"],\"p\":1}\n\
                     {\"id\":\"s2\",\"t\":\"Next\",\"kind\":\"spec\",\"prompt\":\"Do it\",\"steps\":[\"a\"]}\n";
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join(ARTIFACTS)).unwrap();
        std::fs::write(root.join("artifacts/spec.md"), "spec").unwrap();
        let (dir, id) = (Dir::open(&root).unwrap(), TaskId::from_stored("p".into()));
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below.max(1) as u64).unwrap()
        };
        let pieces: [&[u8]; 8] =
            [b"\0", b"\xff\xfe", b"\r\n", b"{", b"\"", b"\\ud800", b"../../x", "\u{202e}".as_bytes()];
        for round in 0..3_000 {
            let mut bytes = valid.as_bytes().to_vec();
            for _ in 0..=random(4) {
                let at = random(bytes.len() + 1);
                match random(4) {
                    0 => bytes.truncate(at),
                    1 => drop(bytes.splice(at..at, pieces[random(pieces.len())].iter().copied())),
                    2 if at < bytes.len() => bytes[at] = u8::try_from(random(256)).unwrap(),
                    _ => {
                        let end = (at + random(40)).min(bytes.len());
                        let again = bytes[at..end].to_vec();
                        bytes.splice(at..at, again);
                    }
                }
            }
            std::fs::write(root.join("artifacts").join(FILE), &bytes).unwrap();
            let read = read(&Parent {
                id: &id,
                iteration: 1,
                queue: "loops",
                folder: &dir,
                owner: Owner::Us,
                artifacts_from_loop: "iterations/001/artifacts",
            });
            match read {
                Ok(children) => assert!(children.len() <= bytes.len(), "round {round}"),
                Err(problem) => assert!(problem.starts_with("children.jsonl: "), "round {round}: {problem}"),
            }
        }
    }
}
