//! `rota queue`.

use crate::mcp::block_on;
use rota_verbs::{input, queue};

use super::{Argument, Effect, Kind, Telling, Tool, answer};
use crate::mcp::shape;

const QUEUE: Argument = Argument::new("queue", Kind::Text, "Which queue. Default: runs.");
const REPO: Argument = Argument::new("repo", Kind::Text, "Only entries of this repository.");

const BASE: Tool = Tool {
    name: "",
    title: "",
    description: "",
    is_core: false,
    effect: Effect::Reads,
    is_idempotent: false,
    telling: Telling::OneLine,
    arguments: &[],
    answer: shape::entry,
    run: |_| Ok(String::new()),
};

pub(super) static TOOLS: [Tool; 4] = [
    Tool {
        name: "rota_queue_add",
        title: "Add an entry",
        description: "Add an entry to a queue of runs; the answer has its id. It starts when rota_sched_lease grants \
            it.",
        effect: Effect::Changes,
        arguments: &[
            Argument::new("id", Kind::Text, "Its id. Default: made up."),
            Argument::new("app", Kind::Text, "The app to run."),
            Argument::new("workflow", Kind::Text, "The workflow to run."),
            Argument::new("runId", Kind::Text, "The run it belongs to."),
            Argument::new("repo", Kind::Text, "The repository. Default: the folder the server runs in."),
            Argument::new("priority", Kind::Whole, "Lower goes first. Default: the queue's, 100 in runs."),
            Argument::new("note", Kind::Text, "A note for people."),
            QUEUE,
        ],
        run: |call| {
            let given = &call.given;
            let input = queue::AddEntry {
                id: given.text("id"),
                queue: given.text_or("queue", "runs"),
                run_id: given.text("runId"),
                app: given.text("app"),
                workflow: given.text("workflow"),
                repo: given.text_or("repo", &call.settings.folder),
                priority: given.text("priority").map(|text| input::number("priority", &text)).transpose()?,
                note: given.text("note"),
            };
            answer(block_on(queue::add(&call.cx, input))?)
        },
        ..BASE
    },
    Tool {
        name: "rota_queue_list",
        title: "List entries",
        description: "List the entries of a queue of runs by priority, then age. Changes nothing.",
        arguments: &[
            Argument::new(
                "status",
                Kind::Text,
                "Only this state: pending, ready, leased, paused, drained, failed, parked, invalidated or deleted.",
            ),
            REPO,
            QUEUE,
        ],
        answer: shape::entries,
        run: |call| {
            let given = &call.given;
            let queue = given.text_or("queue", "runs");
            let input = queue::ListEntries { queue, status: given.text("status"), repo: given.text("repo") };
            answer(block_on(queue::list(&call.cx, input))?)
        },
        ..BASE
    },
    Tool {
        name: "rota_queue_show",
        title: "Show an entry",
        description: "Show one entry of a queue of runs. Changes nothing.",
        arguments: &[Argument::needed("id", "entry ID", "The entry.")],
        run: |call| answer(block_on(queue::show(&call.cx, call.given.needed("id")))?),
        ..BASE
    },
    Tool {
        name: "rota_queue_drain",
        title: "Drain entries",
        description: "Mark the most urgent entries that nothing stands in the way of as drained, without running them \
            and whatever the ceiling. For emptying a queue by hand.",
        effect: Effect::Replaces,
        arguments: &[Argument::new("limit", Kind::Whole, "How many at most. Default: 1."), REPO, QUEUE],
        answer: shape::drained,
        run: |call| {
            let given = &call.given;
            let limit = input::number("limit", &given.text_or("limit", "1"))?;
            let input =
                queue::DrainQueue { queue: given.text_or("queue", "runs"), limit, repo: given.text("repo") };
            answer(block_on(queue::drain(&call.cx, input))?)
        },
        ..BASE
    },
];
