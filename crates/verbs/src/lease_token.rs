//! What a lease token may do: each verb states it as its [`ACCESS`](crate::Verb::ACCESS). A verb without a [`Right`] is
//! refused, and so is a field that the right excludes. `docs/lease-tokens.md` is made from the verbs.
//!
//! A lease token identifies one lease: scope, task, lease id. It is given to the agent that works under the lease. Agents
//! are not trusted, so the token opens what the task needs and nothing else.

use rota_core::{LeaseId, limits};
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::lease_token::{CurrentLease, Kinship, LeaseLookup};
use serde_json::{Map, Value};

use crate::loops::LOOPS;
use crate::registry::Operation;
use crate::verb::Access;
use crate::{Context, Error, Word, task_id};

/// What the bearer of a lease token may do with a verb.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// The tasks it may be used on.
    pub on: On,
    /// Fields of the input that may not be given.
    pub without: &'static [&'static str],
    /// Fields that may be given only for the task of the lease.
    pub own_only: &'static [&'static str],
    /// Whether it still may be used after the lease has expired, until the lease is reclaimed.
    pub after_expiry: bool,
    /// Further bounds, for the page.
    pub bound: &'static str,
}

impl Right {
    /// On these tasks, while the lease lasts.
    pub const fn on(on: On) -> Self {
        Self { on, without: &[], own_only: &[], after_expiry: false, bound: "" }
    }
}

/// The tasks that a right extends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The task of the lease.
    Own,
    /// The task of the lease, its ancestors, its direct blockers and its children.
    Kin,
    /// A new child of the task of the lease, which must be a loop.
    NewChild,
    /// A new task, which is linked to the task of the lease.
    NewTask,
}

impl On {
    const fn words(self) -> &'static str {
        match self {
            Self::Own => "its own task",
            Self::Kin => "its own task, its ancestors, blockers and children",
            Self::NewChild => "a new child of its own loop",
            Self::NewTask => "a new task, linked to its own",
        }
    }
}

/// The rights in one sentence, for refusals.
pub const SUMMARY: &str = "a lease token may read its own task, its ancestors, blockers and children (task show, why), \
    renew and settle its own lease (task renew, done, fail, release, park), add up to 1,000 children below its own loop \
    (loop add --parent) and create up to 100 tasks where the queue allows it (task create)";

/// Priority of a task that has none.
const NORMAL: u32 = 2;

/// The lease that a token identifies.
#[derive(Clone, Copy, Debug)]
pub struct Bearer<'a> {
    /// The scope of its task.
    pub scope: &'a str,
    /// Its task.
    pub task: &'a str,
    /// The lease id.
    pub lease: &'a str,
}

/// Why a call with a lease token is not carried out.
#[derive(Debug)]
pub enum Denial {
    /// The token does not give the right to it.
    Forbidden {
        /// A stable word.
        code: Word,
        /// One line.
        message: String,
    },
    /// The store could not be asked.
    Failed(Error),
}

fn forbidden(code: &'static str, message: String) -> Denial {
    Denial::Forbidden { code: code.into(), message }
}

/// Narrows the surroundings of a call to the bearer's lease, or says why the call is not allowed.
pub async fn authorize(
    cx: Context,
    bearer: Bearer<'_>,
    operation: &Operation,
    input: &Map<String, Value>,
) -> Result<Context, Denial> {
    let verb = operation.route.name;
    let lease = bearer.lease;
    let may_not =
        |problem: String| forbidden("lease_may_not", format!("the token of {lease} may not {problem}"));
    let id = LeaseId::parse(lease).ok().filter(|id| id.task.as_str() == bearer.task);
    let id = id.ok_or_else(|| may_not("be used: it names no lease".to_owned()))?;
    let Access::LeaseToken(right) = &operation.access else {
        return Err(may_not(format!("use `{verb}`")));
    };
    if let Some(field) = input.keys().find(|field| !may_give(operation, right, field)) {
        return Err(may_not(format!("give `{field}` to `{verb}`")));
    }
    check_surroundings(&cx, bearer).map_err(may_not)?;
    let field = if right.on == On::NewChild { "parent" } else { "id" };
    let named = input.get(field).and_then(Value::as_str).filter(|_| right.on != On::NewTask);
    let named = named.map(task_id).transpose().map_err(Denial::Failed)?;
    let call = Call::in_scope(bearer.scope);
    let looked_up = cx.store.perform(&LeaseLookup { call, lease: id.clone(), named }).await;
    let Some(current) = looked_up.map_err(Denial::Failed)? else {
        return Err(forbidden("lease_ended", format!("{lease} has ended: it was settled or reclaimed")));
    };
    if current.is_expired && !right.after_expiry {
        let expired = current.expires_at.to_seconds_text();
        let message = format!(
            "{lease} expired at {expired}: until it is reclaimed its token may only renew, done, fail and release it"
        );
        return Err(forbidden("lease_expired", message));
    }
    judge(verb, right, &current, input).map_err(may_not)?;
    if let (Some(agent), Some(holder)) = (&cx.agent, &current.task.assignee)
        && agent != holder
    {
        return Err(may_not(format!("speak for agent '{agent}': the lease is held by '{holder}'")));
    }
    Ok(Context {
        scope: bearer.scope.to_owned(),
        agent: current.task.assignee.clone(),
        lease: (right.on == On::Own).then(|| lease.to_owned()),
        ambient_lease: Some(lease.to_owned()),
        token: Some(id),
        now: None,
        ..cx
    })
}

/// What a call says beside its input must agree with the token; the problem follows "may not".
fn check_surroundings(cx: &Context, bearer: Bearer<'_>) -> Result<(), String> {
    if cx.scope != bearer.scope {
        return Err(format!("leave its scope '{}'", bearer.scope));
    }
    if cx.now.is_some() {
        return Err("set the time (--now)".to_owned());
    }
    match cx.lease.as_deref() {
        Some(named) if named != bearer.lease => Err(format!("speak for '{named}'")),
        _ => Ok(()),
    }
}

/// The bounds that depend on the lease and its task; the problem follows "may not".
fn judge(
    verb: &str,
    right: &Right,
    current: &CurrentLease,
    input: &Map<String, Value>,
) -> Result<(), String> {
    let own = &current.task;
    let text = |field: &str| input.get(field).and_then(Value::as_str);
    match (right.on, current.kinship) {
        (On::NewTask, _) | (On::Own | On::NewChild, Some(Kinship::Own)) | (On::Kin, Some(_)) => {}
        (On::NewChild, _) => return Err(format!("use `{verb}` without `--parent {}`", own.id)),
        (on, _) => {
            let named = text("id").unwrap_or_default();
            return Err(format!("use `{verb}` on '{named}', only on {}", on.words()));
        }
    }
    if right.on == On::NewChild && *own.queue != *LOOPS {
        return Err(format!("use `{verb}`: its task '{}' is not a loop", own.id));
    }
    let own_only = right.own_only.iter().any(|field| input.contains_key(*field));
    if own_only && current.kinship != Some(Kinship::Own) {
        return Err("read the results of blockers but of its own task".to_owned());
    }
    match text("queue") {
        Some("issues") => return Err("create tasks in queue 'issues', which mirrors a tracker".to_owned()),
        Some(LOOPS) => return Err("create tasks in queue 'loops': `loop add` adds children".to_owned()),
        _ => {}
    }
    let priority = own.priority.unwrap_or(NORMAL);
    if let Some(asked) = input.get("priority").and_then(Value::as_u64)
        && asked < u64::from(priority)
    {
        return Err(format!("give priority {asked}: its own is {priority}, and lower goes first"));
    }
    let most = current.ttl_ms / 1_000;
    if let Some(asked) = input.get("lease").and_then(Value::as_u64)
        && i64::try_from(asked).map_or(true, |asked| asked > most)
    {
        return Err(format!("renew for {asked} s: a lease of queue '{}' lasts {most} s", own.queue));
    }
    Ok(())
}

fn may_give(operation: &Operation, right: &Right, field: &str) -> bool {
    operation.fields.contains_key(field) && !right.without.contains(&field)
}

/// The documentation's table, made from the verbs.
pub fn rights_as_markdown() -> String {
    let mut page =
        String::from("| verb | on | arguments | with an expired lease | bounds |\n|---|---|---|---|---|\n");
    for operation in Operation::all() {
        let Access::LeaseToken(right) = &operation.access else { continue };
        let expired = if right.after_expiry { "yes, until it is reclaimed" } else { "no" };
        let fields = operation.fields.keys().filter(|field| may_give(operation, right, field));
        let fields: Vec<String> = fields.map(|field| format!("`{field}`")).collect();
        let (verb, on, fields) = (operation.route.name, right.on.words(), fields.join(", "));
        page.push_str(&format!("| `{verb}` | {on} | {fields} | {expired} | {} |\n", right.bound));
    }
    page
}

const _: () = assert!(limits::AGENT_CHILDREN == 1_000 && limits::TOKEN_TASKS == 100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_right_names_fields_of_its_verb() {
        for operation in Operation::all() {
            let Access::LeaseToken(right) = &operation.access else { continue };
            for field in right.without.iter().chain(right.own_only) {
                assert!(operation.fields.contains_key(*field), "{}: {field}", operation.route.name);
            }
        }
    }
}
