//! `rota sched`.

use crate::mcp::block_on;
use rota_core::LeaseId;
use rota_verbs::{Result, input, mirror, sched};

use super::{Argument, Call, Effect, Kind, Telling, Tool, answer};
use crate::mcp::shape;

const QUEUE: Argument = Argument::new("queue", Kind::Text, "Which queue. Default: runs.");
const LIMIT: Argument =
    Argument::new("limit", Kind::Whole, "How many at most. Default: up to the ceiling; without one, 1.");
const LEASE_ID: Argument = Argument::needed("leaseId", "lease ID", "The lease, e.g. lease-run-1-1.");

const BASE: Tool = Tool {
    name: "",
    title: "",
    description: "",
    is_core: false,
    effect: Effect::Reads,
    is_idempotent: false,
    telling: Telling::OneLine,
    arguments: &[],
    answer: shape::plan,
    run: |_| Ok(String::new()),
};

pub(super) static TOOLS: [Tool; 9] = [
    Tool {
        name: "rota_sched_plan",
        title: "Plan leases",
        description: "Show which entries rota_sched_lease would grant now, and why not the others. Changes nothing; \
            the same now gives the same answer.",
        arguments: &[LIMIT, QUEUE],
        run: |call| {
            let limit = call.given.text("limit").map(|text| input::number("limit", &text)).transpose()?;
            answer(block_on(sched::plan(&call.cx, &call.given.text_or("queue", "runs"), limit))?)
        },
        ..BASE
    },
    Tool {
        name: "rota_sched_lease",
        title: "Grant leases",
        description: "Grant leases on the most urgent entries, never more than the ceiling allows. Run each granted \
            entry and end its lease with rota_sched_complete or rota_sched_release. None granted is no error.",
        effect: Effect::Changes,
        arguments: &[LIMIT, QUEUE, Argument::new("agent", Kind::Text, "Who will hold the leases.")],
        answer: shape::leases,
        run: lease,
        ..BASE
    },
    Tool {
        name: "rota_sched_renew",
        title: "Extend a lease",
        description: "Extend a lease, counted from now. If it is refused, the entry is no longer yours: stop its run.",
        effect: Effect::Changes,
        arguments: &[LEASE_ID],
        answer: shape::renewed,
        run: |call| answer(block_on(sched::renew(&call.cx, call.given.needed("leaseId")))?),
        ..BASE
    },
    Tool {
        name: "rota_sched_complete",
        title: "Complete a lease",
        description: "Say that the run under a lease succeeded. Only the current lease counts.",
        effect: Effect::Changes,
        arguments: &[LEASE_ID],
        answer: shape::completed,
        run: |call| {
            let lease = call.given.needed("leaseId");
            let completed = block_on(sched::complete(&call.cx, lease))?;
            forget(call, lease);
            answer(completed)
        },
        ..BASE
    },
    Tool {
        name: "rota_sched_release",
        title: "Release a lease",
        description: "Give a lease back without counting anything, or with failed count a failed attempt: the entry \
            then waits by the policy's backoff, or is parked at the limit.",
        effect: Effect::Changes,
        arguments: &[
            LEASE_ID,
            Argument::new("failed", Kind::Flag, "Count a failed attempt."),
            Argument::new("reason", Kind::Text, "Why."),
        ],
        answer: shape::released,
        run: |call| {
            let (lease, failed) = (call.given.needed("leaseId"), call.given.flag("failed"));
            let released = block_on(sched::release(&call.cx, lease, failed, call.given.text("reason")))?;
            forget(call, lease);
            answer(released)
        },
        ..BASE
    },
    Tool {
        name: "rota_sched_reclaim",
        title: "Take expired leases back",
        description: "Take back every lease of a queue that ran out; each counts as one failed attempt. Only for the \
            program that runs the queue.",
        effect: Effect::Replaces,
        is_idempotent: true,
        arguments: &[QUEUE],
        answer: shape::reclaimed,
        run: |call| answer(block_on(sched::reclaim(&call.cx, &call.given.text_or("queue", "runs")))?),
        ..BASE
    },
    Tool {
        name: "rota_sched_reset",
        title: "Open a parked entry",
        description: "Open a parked entry again with its attempts forgotten. For after somebody looked into why it \
            was parked.",
        effect: Effect::Changes,
        arguments: &[Argument::needed("id", "entry ID", "The parked entry.")],
        answer: shape::reset,
        run: |call| answer(block_on(sched::reset(&call.cx, call.given.needed("id")))?),
        ..BASE
    },
    Tool {
        name: "rota_sched_policy_show",
        title: "Show the rules",
        description: "Show the rules of a queue: how many leases at once, how many attempts, how long a lease and \
            a backoff last. Changes nothing.",
        arguments: &[QUEUE],
        answer: shape::policy,
        run: |call| answer(block_on(sched::policy_show(&call.cx, &call.given.text_or("queue", "runs")))?),
        ..BASE
    },
    Tool {
        name: "rota_sched_policy_set",
        title: "Change the rules",
        description: "Change rules of a queue and publish them for everybody, at once. What is left out stays as \
            it is.",
        effect: Effect::Replaces,
        is_idempotent: true,
        arguments: &[
            Argument::new("maxConcurrent", Kind::Whole, "Leases held at once, from 1."),
            Argument::new(
                "maxAttempts",
                Kind::Whole,
                "Counted attempts after which an entry is parked, from 1.",
            ),
            Argument::new("leaseTtlMs", Kind::Whole, "How long a lease lasts, in milliseconds."),
            Argument::new("backoffBaseMs", Kind::Whole, "The first wait after a failure, in milliseconds."),
            Argument::new("backoffFactor", Kind::Number, "What each further wait is multiplied by, from 1."),
            Argument::new("backoffCapMs", Kind::Whole, "The longest wait, in milliseconds."),
            QUEUE,
        ],
        answer: shape::policy,
        run: |call| {
            let flat = sched::flat(sched::RULES.map(|rule| (rule, call.given.text(rule))))?;
            let (shown, _) =
                block_on(sched::policy_set(&call.cx, &call.given.text_or("queue", "runs"), flat))?;
            block_on(mirror::write(&call.cx, &call.settings.policy_file))?;
            answer(shown)
        },
        ..BASE
    },
];

fn lease(call: &Call<'_>) -> Result<String> {
    let limit = call.given.text("limit").map(|text| input::number("limit", &text)).transpose()?;
    let granted = block_on(sched::lease(&call.cx, &call.given.text_or("queue", "runs"), limit))?;
    let mut is_kept = true;
    for lease in &granted.leases {
        let expires = lease.lease_expires_at.unwrap_or(granted.now);
        let lasts_ms = expires.get().saturating_sub(granted.now.get());
        is_kept &= call.session.hold(&call.cx, &lease.id, &lease.lease_id, lasts_ms);
    }
    if call.cancelled.is_cancelled() || !is_kept {
        // The caller does not wait for the answer any more: give the leases back now, not when they expire.
        for lease in &granted.leases {
            forget(call, &lease.lease_id);
            block_on(sched::release(&call.cx, &lease.lease_id, false, None))?;
        }
    }
    answer(granted)
}

/// Forgets a lease that was settled.
fn forget(call: &Call<'_>, lease: &str) {
    if let Ok(lease) = LeaseId::parse(lease) {
        call.session.forget(&call.cx.scope, lease.task.as_str());
    }
}
