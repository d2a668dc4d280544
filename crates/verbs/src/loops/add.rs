//! `loop add`: one more loop, by a person or by the agent of its parent.

use std::hash::{BuildHasher, RandomState};
use std::path::{Component, Path};

use rota_core::policy::GateLevel;
use rota_core::text::escaped;
use rota_core::{LeaseId, limits};
use rota_store::Store;
use rota_store::intents::add::{NewPriority, NewTask};
use rota_store::intents::loops::AddLoop as AddLoopIntent;

use super::{LOOPS, LoopPayload};
use crate::Result;
use crate::context::{Context, bad_value, checked_name, checked_text, task_id};
use crate::create::{checked_description, checked_title};

/// What to add.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct AddLoop {
    pub kind: String,
    pub id: Option<String>,
    pub title: Option<String>,
    pub parent: Option<String>,
    pub triggered_by: Option<String>,
    pub priority: Option<u32>,
    /// What the agent is told; kept as the description.
    pub prompt: Option<String>,
}

/// Adds a loop; an id is made up where none is given. Under the parent's lease it comes out of the parent's iteration.
pub async fn add(cx: &Context, input: AddLoop) -> Result<LoopPayload> {
    let kind = checked_name("kind", Some(input.kind))?.ok_or_else(|| bad_value("kind is empty".into()))?;
    let id = input.id.filter(|id| !id.is_empty()).unwrap_or_else(|| made_up(&kind));
    let prompt = checked_description(input.prompt)?;
    let title = match input.title.filter(|title| !title.is_empty()) {
        Some(title) => checked_title(&title)?,
        None => prompt.as_deref().and_then(first_line).unwrap_or_else(|| id.clone()),
    };
    let parent =
        input.parent.filter(|parent| !parent.is_empty()).map(|parent| task_id(&parent)).transpose()?;
    let id = task_id(&id)?;
    // One that is none is refused also where it does not matter.
    let named = cx.caller(parent.as_ref().unwrap_or(&id))?.lease;
    let lease = named.filter(|lease: &LeaseId| parent.as_ref() == Some(&lease.task));
    let task = NewTask {
        kind: Some(kind),
        priority: input.priority.map_or(NewPriority::Unset, NewPriority::Given),
        parent,
        triggered_by: input.triggered_by.map(checked_path).transpose()?,
        description: prompt,
        ..NewTask::new(id, LOOPS, &title)
    };
    let added = cx
        .store
        .perform(&AddLoopIntent { call: cx.call(), task, lease, by_token: cx.token.is_some() })
        .await?;
    Ok(LoopPayload::of_task(added))
}

/// A priority by its name or number.
pub fn priority(text: &str) -> Result<u32> {
    let named = GateLevel::ALL.iter().zip(0..).find(|(level, _)| level.word() == text);
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = named.map(|(_, number)| number).or_else(|| text.parse().ok().filter(|_| digits));
    Ok(number.ok_or_else(|| {
        bad_value(format!(
            "--priority must be critical, high, normal, low or a non-negative integer, got: {}",
            escaped(text)
        ))
    })?)
}

/// An artifact's path stays below the folder it counts from.
fn checked_path(path: String) -> Result<String> {
    checked_text("--triggered-by", &path, limits::NAME_BYTES)?;
    let plain = |step| matches!(step, Component::Normal(_) | Component::CurDir);
    if path.is_empty() || path.contains(char::is_control) || !Path::new(&path).components().all(plain) {
        let problem = format!("--triggered-by must be a relative path without '..', got: {}", escaped(&path));
        return Err(bad_value(problem).into());
    }
    Ok(path)
}

/// The first line that says something, cut to what fits a list.
fn first_line(text: &str) -> Option<String> {
    const SHOWN: usize = 80;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(SHOWN).collect())
}

fn made_up(kind: &str) -> String {
    let number = RandomState::new().hash_one(std::process::id());
    let kind: String = kind.chars().take(32).collect();
    format!("{kind}-{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_have_names() {
        for (text, number) in [("critical", 0), ("high", 1), ("normal", 2), ("low", 3), ("0", 0), ("17", 17)]
        {
            assert_eq!(priority(text).ok(), Some(number), "{text}");
        }
        for text in ["", "urgent", "-1", "1.5", "+1", "99999999999"] {
            assert!(priority(text).is_err(), "{text}");
        }
    }

    #[test]
    fn paths_stay_below() {
        for path in ["a", "artifacts/spec.md", "./a", "a..b/c"] {
            assert_eq!(checked_path(path.to_owned()).ok().as_deref(), Some(path));
        }
        for path in ["", "/a", "..", "a/../b", "a\nb"] {
            assert!(checked_path(path.to_owned()).is_err(), "{path}");
        }
    }

    #[test]
    fn a_title_is_the_prompts_first_line() {
        assert_eq!(first_line("\n  \n  Do it \nnow"), Some("Do it".into()));
        assert_eq!(first_line(&"x".repeat(99)).map(|line| line.len()), Some(80));
        assert_eq!(first_line("\n \n"), None);
    }
}
