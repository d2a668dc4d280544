//! `rota task` and `rota why`.

use crate::mcp::block_on;
use rota_core::{LeaseId, Refusal, UnixMillis};
use rota_verbs::claim::{Claim, Claimed, Terms, claim};
use rota_verbs::create::{Create, create};
use rota_verbs::peek::{Peek, peek};
use rota_verbs::plan_sync::{PlanSync, plan_sync};
use rota_verbs::settle::NextOptions;
use rota_verbs::{Context, Result, TaskPayload, input, renew, settle, show, why};

use super::{Argument, Call, Effect, Kind, Telling, Tool, answer};
use crate::mcp::shape;

const ID: Argument = Argument::needed("id", "task ID", "The task's id.");
const QUEUE: Argument = Argument::new("queue", Kind::Text, "Which queue. Default: tasks.");
const SPECS: Argument =
    Argument::new("specs", Kind::Text, "Only tasks whose spec matches one of these comma-separated globs.");
const AGENT: Argument = Argument::new(
    "agent",
    Kind::Text,
    "Your name, the same in every call. Leave out where the connection is a session: it has a name of its own.",
);
const LEASE_ID: Argument = Argument::new(
    "leaseId",
    Kind::Text,
    "The leaseId that the claim returned: proves that the task is still yours. Leave out for the lease that this \
     session holds.",
);
const LEASE: Argument = Argument::new(
    "lease",
    Kind::Whole,
    "Seconds until the lease runs out. Default: what the policy says, 600 in queue tasks.",
);

const BASE: Tool = Tool {
    name: "",
    title: "",
    description: "",
    is_core: true,
    effect: Effect::Reads,
    is_idempotent: false,
    telling: Telling::WithHint,
    arguments: &[],
    answer: shape::task,
    run: |_| Ok(String::new()),
};

pub(super) static TOOLS: [Tool; 10] = [
    Tool {
        name: "rota_task_peek",
        title: "Look at the backlog",
        description: "List the next tasks that can be claimed, most urgent first, then all tasks that somebody is \
            working on. Changes nothing. Use it to see what there is before claiming.",
        arguments: &[
            Argument::new("limit", Kind::Whole, "How many claimable tasks. Default: 5."),
            SPECS,
            QUEUE,
        ],
        answer: shape::tasks,
        run: |call| {
            let limit = input::count("-n", &call.given.text_or("limit", "5"))?;
            let specs = input::globs(call.given.text("specs"));
            let input = Peek { queue: call.given.text_or("queue", "tasks"), limit, specs };
            answer(block_on(peek(&call.cx, input))?)
        },
        ..BASE
    },
    Tool {
        name: "rota_task_claim",
        title: "Claim a task",
        description: "Take the next task, or the one named by id, so that no other agent gets it. Keep the leaseId of \
            the answer: rota_task_renew, rota_task_done and rota_task_fail want it. The lease runs out at \
            leaseExpiresAt; renew it before that, or the task goes to somebody else. \"No eligible tasks\" means that \
            there is nothing to do now: stop, or ask rota_why about a task.",
        effect: Effect::Changes,
        arguments: &[
            Argument::new("id", Kind::Text, "Claim this task. Leave out to get the most urgent one."),
            LEASE,
            Argument::new("category", Kind::Text, "Only tasks of this category."),
            SPECS,
            QUEUE,
            AGENT,
        ],
        answer: shape::claimed,
        run: claim_task,
        ..BASE
    },
    Tool {
        name: "rota_task_renew",
        title: "Keep a task",
        description: "Extend the lease of a task you claimed, counted from now. Do it well before leaseExpiresAt while \
            you are still working. If it is refused, the task is no longer yours: stop working on it.",
        effect: Effect::Changes,
        arguments: &[ID, LEASE, LEASE_ID, AGENT],
        run: |call| {
            let lease = lease_secs(call)?;
            let (cx, id) = (holder(call)?, call.given.needed("id"));
            let renewed = block_on(renew::renew(&cx, id, lease))?;
            call.session.extend(&cx.scope, id, lasts_ms(&renewed));
            answer(renewed)
        },
        ..BASE
    },
    Tool {
        name: "rota_task_done",
        title: "Finish a task",
        description: "Say that a task you claimed is finished; tasks that waited for it become claimable. With next: \
            true you also claim the next task, in the same call: it is `next` in the answer, with its leaseId; no \
            `next` means that there is nothing to do now. If it is refused, somebody else holds the task now, your \
            work does not count, and nothing was claimed.",
        effect: Effect::Changes,
        arguments: &[
            ID,
            Argument::new(
                "result",
                Kind::Object,
                "What came out of it; must have a `commit` key, e.g. {\"commit\": \"3f2c1a\"}. Tasks that waited for \
                 this one see it.",
            ),
            Argument::new("next", Kind::Flag, "Claim the next task too, under your own name."),
            Argument::new("lease", Kind::Whole, "With next: seconds until its lease runs out."),
            Argument::new("category", Kind::Text, "With next: only tasks of this category."),
            Argument::new(
                "specs",
                Kind::Text,
                "With next: only tasks whose spec matches one of these globs.",
            ),
            Argument::new("queue", Kind::Text, "With next: the queue to claim from. Default: tasks."),
            LEASE_ID,
            AGENT,
        ],
        answer: shape::finished,
        run: finish_task,
        ..BASE
    },
    Tool {
        name: "rota_task_fail",
        title: "Give up on a task",
        description: "Say that this attempt at a task you claimed failed, and why. The attempt is counted, and the \
            policy decides when it is tried again. The next agent sees the reason.",
        effect: Effect::Changes,
        arguments: &[
            ID,
            Argument::new("reason", Kind::Text, "What went wrong, for the next agent."),
            LEASE_ID,
            AGENT,
        ],
        run: |call| settled(call, |cx, id| block_on(settle::fail(cx, id, call.given.text("reason")))),
        ..BASE
    },
    Tool {
        name: "rota_task_release",
        title: "Give a task back",
        description: "Give back a task you claimed and will not work on. Nothing is counted; the next agent can claim it \
            at once.",
        effect: Effect::Changes,
        arguments: &[ID, LEASE_ID, AGENT],
        run: |call| settled(call, |cx, id| block_on(settle::release(cx, id))),
        ..BASE
    },
    Tool {
        name: "rota_task_create",
        title: "File a task",
        description: "Add an open task to the backlog, for work that you discovered and that is not part of your own \
            task. The id must be new; deps are tasks that must be done first.",
        effect: Effect::Changes,
        arguments: &[
            Argument::needed("id", "task ID", "The new task's id."),
            Argument::needed("title", "task title", "One line."),
            Argument::new("priority", Kind::Whole, "Lower goes first. Default: the queue's, 2 in tasks."),
            Argument::new("category", Kind::Text, "Its category."),
            Argument::new("description", Kind::Text, "What the agent needs to know."),
            Argument::new("steps", Kind::Texts, "Steps, in order."),
            Argument::new("spec", Kind::Text, "The spec it belongs to."),
            Argument::new("ref", Kind::Text, "A free reference."),
            Argument::new("deps", Kind::Texts, "Ids of tasks that must be done first."),
            Argument::new("after", Kind::Text, "Not before this time (RFC 3339)."),
            QUEUE,
            AGENT,
        ],
        run: create_task,
        ..BASE
    },
    Tool {
        name: "rota_why",
        title: "Explain a task",
        description: "Explain why a task runs or does not run: every check with its verdict, its place in line, who is \
            ahead, what would free it, and the earliest time it can run. Changes nothing.",
        arguments: &[ID],
        answer: shape::explanation,
        run: |call| answer(block_on(why::why(&call.cx, call.given.needed("id")))?),
        ..BASE
    },
    Tool {
        name: "rota_task_plan_sync",
        title: "Bring in a plan",
        description: "Make the backlog agree with a plan, in one transaction: new tasks are added, changed ones \
            updated, and open tasks of the plan's specs that the plan no longer has are deleted. With dryRun it only \
            says what would happen. Any bad line refuses the whole plan.",
        is_core: false,
        effect: Effect::Replaces,
        is_idempotent: true,
        arguments: &[
            Argument::needed(
                "plan",
                "plan",
                "One JSON object per line: {\"id\", \"t\" (title), \"d\" (description), \"p\" (priority, lower first), \
                 \"cat\", \"spec\", \"ref\", \"deps\": [ids], \"steps\": [texts]}; id and t are needed.",
            ),
            Argument::new(
                "specs",
                Kind::Text,
                "Only specs that match these comma-separated globs may lose tasks.",
            ),
            Argument::new("dryRun", Kind::Flag, "Say what would happen, change nothing."),
            QUEUE,
        ],
        answer: shape::synced,
        run: |call| {
            let input = PlanSync {
                input: call.given.needed("plan").as_bytes().to_vec(),
                queue: call.given.text_or("queue", "tasks"),
                specs: input::globs(call.given.text("specs")),
                dry_run: call.given.flag("dryRun"),
            };
            answer(block_on(plan_sync(&call.cx, input))?)
        },
        ..BASE
    },
    Tool {
        name: "rota_task_show",
        title: "Show a task",
        description: "Show one task in full: description, steps, state, who holds it, its blockers and where they \
            stand. Changes nothing.",
        is_core: false,
        arguments: &[ID, Argument::new("withDeps", Kind::Flag, "With the results of its blockers.")],
        answer: shape::shown,
        run: |call| {
            answer(block_on(show::show(&call.cx, call.given.needed("id"), call.given.flag("withDeps")))?)
        },
        ..BASE
    },
];

/// The surroundings of a call that ends or extends a lease. A call that names neither lease nor agent means the lease
/// that its session holds; without a session it must name the lease.
fn holder(call: &Call<'_>) -> Result<Context> {
    let (cx, id) = (&call.cx, call.given.needed("id"));
    let named = call.given.text("leaseId").filter(|lease| !lease.is_empty());
    let agent = call.given.text("agent");
    let held = call.session.held(&cx.scope, id);
    if named.is_none() && call.session.agent().is_none() {
        let problem = "missing leaseId: without a session a call must name the lease that it ends or extends";
        return Err(Refusal::BadValue { problem: problem.to_owned() }.into());
    }
    if named.is_some() || agent.is_some() {
        // A lease id speaks for itself, whoever it was granted to.
        let agent = if agent.is_some() { cx.agent.clone() } else { None };
        return Ok(Context { lease: named, agent, ..cx.clone() });
    }
    Ok(match held {
        Some(held) => Context { lease: Some(held.lease), agent: held.agent, ..cx.clone() },
        None if is_ambient(cx, id) => Context { agent: None, ..cx.clone() },
        None => cx.clone(),
    })
}

/// Whether the server was started under the lease of this task.
fn is_ambient(cx: &Context, id: &str) -> bool {
    let lease = cx.ambient_lease.as_deref().and_then(|lease| LeaseId::parse(lease).ok());
    lease.is_some_and(|lease| lease.task.as_str() == id)
}

fn settled(call: &Call<'_>, settle: impl FnOnce(&Context, &str) -> Result<TaskPayload>) -> Result<String> {
    let (cx, id) = (holder(call)?, call.given.needed("id"));
    let payload = settle(&cx, id)?;
    call.session.forget(&cx.scope, id);
    answer(payload)
}

/// How long the lease of a task lasts from now.
fn lasts_ms(task: &TaskPayload) -> i64 {
    task.lease_expires_at.map_or(0, |expires| expires.get().saturating_sub(task.updated_at.get()))
}

fn create_task(call: &Call<'_>) -> Result<String> {
    let given = &call.given;
    let bad = |problem: String| Refusal::BadValue { problem };
    let list = |name: &str| -> Result<Vec<String>> {
        let text = given.text_or(name, "[]");
        Ok(serde_json::from_str(&text)
            .map_err(|_| bad(format!("{name} must be a list of texts, got: {text}")))?)
    };
    let after = given.text("after").map(|text| text.parse::<UnixMillis>()).transpose();
    let input = Create {
        id: given.needed("id").to_owned(),
        title: given.needed("title").to_owned(),
        queue: given.text_or("queue", "tasks"),
        priority: given.text("priority").map(|text| input::count("-p (priority)", &text)).transpose()?,
        category: given.text("category"),
        description: given.text("description"),
        steps: list("steps")?,
        spec: given.text("spec"),
        reference: given.text("ref"),
        deps: list("deps")?,
        after: after.map_err(|error| bad(format!("after: {error}")))?,
    };
    answer(block_on(create(&call.cx, input))?)
}

fn claim_task(call: &Call<'_>) -> Result<String> {
    claimant(call)?;
    let terms = Terms {
        queue: call.given.text_or("queue", "tasks"),
        lease_secs: lease_secs(call)?,
        category: call.given.text("category"),
        specs: input::globs(call.given.text("specs")),
    };
    let claimed = block_on(claim(&call.cx, Claim { id: call.given.text("id"), terms }))?;
    let claimed = claimed.filter(|claimed| keep(call, claimed));
    answer(claimed.ok_or(Refusal::NothingEligible)?)
}

/// Settles, and claims for the agent that a claim of this call would be for, whoever the settled lease belongs to.
fn finish_task(call: &Call<'_>) -> Result<String> {
    let given = &call.given;
    let (cx, id) = (holder(call)?, given.needed("id"));
    let options = NextOptions {
        next: given.flag("next"),
        lease_secs: lease_secs(call)?,
        category: given.text("category"),
        specs: given.text("specs"),
        queue: given.text("queue"),
    };
    let agent = if options.next { Some(claimant(call)?) } else { None };
    let next = options.claim_for(&cx, agent)?;
    let mut finished = block_on(settle::done(&cx, id, given.text("result").as_deref(), next))?;
    call.session.forget(&cx.scope, id);
    finished.next = finished.next.filter(|next| keep(call, next));
    answer(finished)
}

/// The agent of a claim: the one that the call names, or that of its session.
fn claimant(call: &Call<'_>) -> Result<String> {
    let problem = "missing agent: without a session a claim must name its agent";
    let missing = || Refusal::BadValue { problem: problem.to_owned() };
    Ok(call.cx.agent.clone().ok_or_else(missing)?)
}

fn lease_secs(call: &Call<'_>) -> Result<Option<u64>> {
    call.given.text("lease").map(|text| input::count("--lease", &text)).transpose()
}

/// Remembers a claim as one of the session's. False if its caller does not wait for it any more: then it is given back.
fn keep(call: &Call<'_>, claimed: &Claimed) -> bool {
    let (id, lease) = (claimed.task.id.as_str(), claimed.task.lease_id.as_deref().unwrap_or_default());
    let is_kept = call.session.hold(&call.cx, id, lease, lasts_ms(&claimed.task));
    if is_kept && !call.cancelled.is_cancelled() {
        return true;
    }
    call.session.forget(&call.cx.scope, id);
    let cx = Context { lease: claimed.task.lease_id.clone(), agent: None, ..call.cx.clone() };
    // A lease that cannot be given back expires.
    drop(block_on(settle::release(&cx, id)));
    false
}
