//! What an agent is given to read: the task, how it went so far, and what the last iteration lacked.

use rota_core::Task;

/// What is known of an earlier iteration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Earlier {
    /// Its number.
    pub number: u32,
    /// How it ended, in a line.
    pub verdict: String,
}

/// What an iteration is told beside its task.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Background {
    /// How earlier iterations ended.
    pub earlier: Vec<Earlier>,
    /// Why the loop was started over.
    pub started_over: Option<String>,
    /// The last iteration that did not pass since the loop last passed, and what it lacked.
    pub feedback: Option<(u32, String)>,
}

/// The whole text of `prompt.md`. What comes from others is marked as such.
pub fn text(task: &Task, max_iterations: u32, background: &Background) -> String {
    let Background { earlier, started_over, feedback } = background;
    let mut text = format!("# {}\n\n", one_line(&task.title));
    let mut facts = vec![format!("task `{}`", one_line(task.id.as_str()))];
    facts.extend(task.kind.iter().map(|kind| format!("kind `{}`", one_line(kind))));
    facts.extend(task.parent.iter().map(|parent| format!("parent `{}`", one_line(parent.as_str()))));
    facts.push(format!("iteration {}, try {} of {max_iterations}", task.iteration, task.tries));
    text.push_str(&facts.join(", "));
    text.push('\n');
    if let Some(description) = &task.description {
        text.push_str(&format!("\n## What to do\n\n{description}\n"));
    }
    if !task.steps.is_empty() {
        text.push_str("\n## Steps\n\n");
        for (number, step) in (1..).zip(&task.steps) {
            text.push_str(&format!("{number}. {}\n", one_line(step)));
        }
    }
    if let Some(reason) = started_over {
        text.push_str(&format!("\n## Why it was started over\n\n{}", fenced(reason)));
    }
    if !earlier.is_empty() {
        text.push_str("\n## Progress\n\n");
        for iteration in earlier {
            text.push_str(&format!("- iteration {}: {}\n", iteration.number, one_line(&iteration.verdict)));
        }
    }
    if let Some((number, feedback)) = feedback {
        text.push_str(&format!("\n## Feedback of iteration {number}\n\n{}", fenced(feedback)));
    }
    text
}

fn one_line(text: &str) -> String {
    rota_core::text::escaped(text).into_owned()
}

/// A block that its content cannot end.
fn fenced(content: &str) -> String {
    let longest = content.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}\n", content.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_core::{TaskId, UnixMillis};

    #[test]
    fn task_progress_and_feedback() {
        let mut task = Task::new(
            "default",
            TaskId::from_stored("r1".into()),
            "loops",
            "Add\na test",
            UnixMillis::new(0),
        );
        (task.iteration, task.tries, task.kind) = (3, 2, Some("ralph".into()));
        task.description = Some("Write it.".into());
        task.steps = vec!["one".into()];
        let background = Background {
            earlier: vec![Earlier { number: 2, verdict: "not passed: exit code 1".into() }],
            started_over: Some("The wheel is square.".into()),
            feedback: Some((2, "a ``` b\n".into())),
        };
        let text = text(&task, 5, &background);
        assert_eq!(
            text,
            "# Add\\na test\n\ntask `r1`, kind `ralph`, iteration 3, try 2 of 5\n\n## What to do\n\nWrite it.\n\n\
             ## Steps\n\n1. one\n\n## Why it was started over\n\n```text\nThe wheel is square.\n```\n\n## Progress\n\n- iteration 2: not passed: exit code 1\n\n\
             ## Feedback of iteration 2\n\n````text\na ``` b\n````\n"
        );
    }
}
