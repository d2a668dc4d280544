//! `rota task` and `rota why`.

use rota_core::Refusal;
use rota_store::block_on;
use rota_verbs::claim::{Claim, Claimed, claim};
use rota_verbs::peek::{Peek, peek};
use rota_verbs::plan_sync::{PlanSync, plan_sync};
use rota_verbs::{Context, Result, input, renew, settle, show, why};

use super::{Argument, Call, Effect, Kind, Telling, Tool, answer};
use crate::mcp::shape;

const ID: Argument = Argument::needed("id", "task ID", "The task's id.");
const QUEUE: Argument = Argument::new("queue", Kind::Text, "Which queue. Default: tasks.");
const SPECS: Argument =
    Argument::new("specs", Kind::Text, "Only tasks whose spec matches one of these comma-separated globs.");
const AGENT: Argument = Argument::new("agent", Kind::Text, "Your name, the same in every call.");
const LEASE_ID: Argument = Argument::new(
    "leaseId",
    Kind::Text,
    "The leaseId that the claim returned: proves that the task is still yours.",
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

pub(super) static TOOLS: [Tool; 8] = [
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
            let lease = call.given.text("lease").map(|text| input::count("--lease", &text)).transpose()?;
            answer(block_on(renew::renew(&holder(call), call.given.needed("id"), lease))?)
        },
        ..BASE
    },
    Tool {
        name: "rota_task_done",
        title: "Finish a task",
        description: "Say that a task you claimed is finished; tasks that waited for it become claimable. If it is \
            refused, somebody else holds the task now and your work does not count.",
        effect: Effect::Changes,
        arguments: &[
            ID,
            Argument::new(
                "result",
                Kind::Object,
                "What came out of it; must have a `commit` key, e.g. {\"commit\": \"3f2c1a\"}. Tasks that waited for \
                 this one see it.",
            ),
            LEASE_ID,
            AGENT,
        ],
        run: |call| {
            let result = call.given.text("result");
            answer(block_on(settle::done(&holder(call), call.given.needed("id"), result.as_deref()))?)
        },
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
        run: |call| {
            answer(block_on(settle::fail(&holder(call), call.given.needed("id"), call.given.text("reason")))?)
        },
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

/// With the lease that this call names.
fn holder(call: &Call<'_>) -> Context {
    let named = call.given.text("leaseId").filter(|lease| !lease.is_empty());
    Context { lease: named.or_else(|| call.cx.lease.clone()), ..call.cx.clone() }
}

fn claim_task(call: &Call<'_>) -> Result<String> {
    let input = Claim {
        id: call.given.text("id"),
        queue: call.given.text_or("queue", "tasks"),
        lease_secs: call.given.text("lease").map(|text| input::count("--lease", &text)).transpose()?,
        category: call.given.text("category"),
        specs: input::globs(call.given.text("specs")),
    };
    let claimed = block_on(claim(&call.cx, input))?.ok_or(Refusal::NothingEligible)?;
    if call.cancelled.is_cancelled() {
        give_back(call, &claimed)?;
        return Err(Refusal::NothingEligible.into());
    }
    answer(claimed)
}

/// Nobody waits for the answer any more, so nobody would work on the task before its lease runs out.
fn give_back(call: &Call<'_>, claimed: &Claimed) -> Result<()> {
    let cx = Context { lease: claimed.task.lease_id.clone(), agent: None, ..call.cx.clone() };
    block_on(settle::release(&cx, claimed.task.id.as_str()))?;
    Ok(())
}
