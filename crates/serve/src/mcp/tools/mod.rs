//! The tools: one per verb, each a name, words for the model, and a function that calls the verb of that name.

mod queue;
mod sched;
mod task;

use rota_core::text::nearest;
use rota_verbs::{Context, Error, Payload, Result, Said, checked_name, input};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::arguments::{Argument, Given, Kind};
use super::session::Session;
use super::shape::Shape;

/// Which tools are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolSet {
    /// What an agent needs to work through a backlog.
    Core,
    /// Everything.
    All,
}

/// What a call does to the store, for the client's hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Reads,
    /// Adds or moves on.
    Changes,
    /// Takes something away that another may still want.
    Replaces,
}

/// How a refusal is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// With its hint on a second line.
    WithHint,
    /// In one line, as `queue` and `sched` do.
    OneLine,
}

/// One tool.
pub struct Tool {
    /// The CLI's words, joined by underscores.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// For the model: what it does, when to use it, what to do with the answer.
    pub description: &'static str,
    /// Whether it is offered by default.
    pub is_core: bool,
    /// What it does.
    pub effect: Effect,
    /// Whether doing it again changes nothing more.
    pub is_idempotent: bool,
    /// How it refuses.
    pub telling: Telling,
    /// What it takes, beside what every tool takes.
    pub arguments: &'static [Argument],
    /// What it answers.
    pub answer: fn() -> Shape,
    run: fn(&Call<'_>) -> Result<String>,
}

/// What every tool takes; `now` comes last, because a tool that changes something takes it only if the server says so.
static COMMON: [Argument; 2] = [
    Argument::new(
        "scope",
        Kind::Text,
        "Namespace of tasks, queues and policy. Leave out for the server's own.",
    ),
    Argument::new(
        "now",
        Kind::Text,
        "Decide as if it were this time (RFC 3339). Leave out for the real time.",
    ),
];

/// Every tool, in the order they are listed.
static TOOLS: [&[Tool]; 3] = [&task::TOOLS, &sched::TOOLS, &queue::TOOLS];

impl ToolSet {
    /// Its tools.
    pub fn tools(self) -> impl Iterator<Item = &'static Tool> {
        TOOLS.iter().copied().flatten().filter(move |tool| self == Self::All || tool.is_core)
    }

    /// The tool of a name, or what to say about it.
    pub fn find(self, name: &str) -> std::result::Result<&'static Tool, String> {
        if let Some(tool) = self.tools().find(|tool| tool.name == name) {
            return Ok(tool);
        }
        let shown = rota_core::text::escaped(name);
        if Self::All.tools().any(|tool| tool.name == name) {
            return Err(format!("tool '{shown}' is not offered: start the server with --tools all"));
        }
        let hint = nearest(name, self.tools().map(|tool| tool.name));
        let hint = hint.map_or(String::new(), |known| format!(", did you mean '{known}'?"));
        Err(format!("unknown tool '{shown}'{hint}"))
    }
}

impl Tool {
    /// Everything it takes. The time is only for looking, unless the server allows it for changes too.
    pub fn arguments(&self, allow_now: bool) -> impl Iterator<Item = &'static Argument> + Clone + use<> {
        let takes_now = allow_now || self.effect == Effect::Reads;
        self.arguments.iter().chain(&COMMON[..if takes_now { 2 } else { 1 }])
    }

    /// Calls the verb: the bytes that the command line prints, or what it says instead.
    pub fn call(
        &self,
        settings: &Settings,
        session: &Session,
        passed: Option<serde_json::Map<String, serde_json::Value>>,
        cancelled: CancellationToken,
    ) -> std::result::Result<String, Said> {
        let given = Given::read(self.arguments(settings.context.allow_future), passed);
        if let Some(remote) = &settings.remote {
            return remote.call(self, &given.map_err(|error| self.said(&error))?);
        }
        let called = given
            .and_then(|given| {
                let cx = context(&settings.context, session, &given)?;
                Ok(Call { cx, given, settings, session, cancelled })
            })
            .and_then(|call| (self.run)(&call));
        called.map_err(|error| self.said(&error))
    }

    fn said(&self, error: &Error) -> Said {
        match self.telling {
            Telling::WithHint => Said::of(error),
            Telling::OneLine => Said::in_one_line(error),
        }
    }
}

/// One call of a tool.
struct Call<'a> {
    cx: Context,
    given: Given,
    settings: &'a Settings,
    session: &'a Session,
    cancelled: CancellationToken,
}

/// The server's surroundings, in the name of the session's agent, but for what this call names.
fn context(server: &Context, session: &Session, given: &Given) -> Result<Context> {
    let mut cx = Context { agent: session.agent().map(str::to_owned), ..server.clone() };
    if let Some(scope) = checked_name("scope", given.text("scope"))? {
        cx.scope = scope;
    }
    if let Some(now) = given.text("now") {
        cx.now = Some(input::now(&now)?);
    }
    if let Some(agent) = given.text("agent") {
        cx.agent = checked_name("agent", Some(agent))?;
    }
    Ok(cx)
}

/// The bytes that the command line prints.
fn answer<T: Serialize>(payload: T) -> Result<String> {
    Ok(Payload::new(payload).to_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of the contract.
    #[test]
    fn the_names_are_those_of_the_contract() {
        let names = |set: ToolSet| set.tools().map(|tool| tool.name).collect::<Vec<_>>();
        let core = [
            "rota_task_peek",
            "rota_task_claim",
            "rota_task_renew",
            "rota_task_done",
            "rota_task_fail",
            "rota_task_release",
            "rota_task_create",
            "rota_why",
        ];
        let mut all = core.to_vec();
        all.extend([
            "rota_task_plan_sync",
            "rota_task_show",
            "rota_sched_plan",
            "rota_sched_lease",
            "rota_sched_renew",
            "rota_sched_complete",
            "rota_sched_release",
            "rota_sched_reclaim",
            "rota_sched_reset",
            "rota_sched_policy_show",
            "rota_sched_policy_set",
            "rota_queue_add",
            "rota_queue_list",
            "rota_queue_show",
            "rota_queue_drain",
        ]);
        assert_eq!(names(ToolSet::Core), core);
        assert_eq!(names(ToolSet::All), all);
    }

    #[test]
    fn a_tool_that_is_not_there() {
        let said = |set: ToolSet, name: &str| set.find(name).err().unwrap_or_default();
        assert_eq!(said(ToolSet::Core, "rota_why"), "");
        assert_eq!(
            said(ToolSet::Core, "rota_task_clam"),
            "unknown tool 'rota_task_clam', did you mean 'rota_task_claim'?"
        );
        assert_eq!(
            said(ToolSet::Core, "rota_sched_plan"),
            "tool 'rota_sched_plan' is not offered: start the server with --tools all"
        );
        assert_eq!(said(ToolSet::All, "make_coffee"), "unknown tool 'make_coffee'");
    }

    #[test]
    fn no_argument_is_named_twice() {
        for tool in ToolSet::All.tools() {
            let mut names: Vec<_> = tool.arguments(true).map(|argument| argument.name).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count, "{}", tool.name);
        }
    }
}
