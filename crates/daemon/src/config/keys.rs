//! The keys of `rota.yml`: the one place where each is defined. The policy's defaults are those of
//! [`rota_core::Policy`]; a test compares them.

use rota_core::notify::HOOKS;
use rota_core::policy::QUEUES;
use rota_core::shape::{Key, Shape, key};

const YEAR_SECS: u64 = 365 * 24 * 3_600;
const COUNT: Shape = Shape::Whole(1, 1_000_000);
const POINTS: Shape = Shape::Whole(0, 1_000_000);
const WAIT_SECS: Shape = Shape::Whole(0, YEAR_SECS);
const LENGTH_SECS: Shape = Shape::Whole(1, YEAR_SECS);
const CYCLE_SECS: Shape = Shape::Whole(1, 86_400);
const GIGABYTES: Shape = Shape::Decimal(0, 1_000_000_000);
const DOLLARS: Shape = Shape::Decimal(1, 1_000_000_000_000);
const PRICE: Shape = Shape::Decimal(0, 1_000_000_000);
const GROUP_COUNT: Shape = Shape::Whole(1, u32::MAX as u64);
const TOKENS: Shape = Shape::Whole(1, u64::MAX);
const VARIABLES: Shape = Shape::Texts("names");
const PROGRAM: Shape = Shape::TextOrTexts("a text for `sh -c`, or a list of texts");
const FILE_NAME: Shape = Shape::Name("name");

/// The variables that commands see by default: none of them holds a secret.
const PASS_ENV: &str = r#"["PATH", "HOME", "USER", "SHELL", "LANG", "LC_*", "TERM", "TMPDIR", "TZ"]"#;

/// The kinds of loops that the policy knows by itself.
pub(super) const KINDS: [&str; 4] = ["plan", "spec", "phase", "ralph"];

/// The whole document.
pub(super) const DOCUMENT: Shape = Shape::Keys(TOP);

/// The top level.
pub(super) const TOP: &[Key] = &[
    key("scope", Shape::Text, "The namespace of tasks, queues and policy.").or(r#""default""#),
    key("store", Shape::Text, "Where they are stored; a relative path counts from this file.")
        .or(r#""sqlite:.rota/rota.db""#),
    key(
        "shared_folder",
        Shape::Truth,
        "Whether every host sees the folders of loops; else a tree stays on one host.",
    )
    .or("false"),
    key(
        "loops",
        Shape::Each(&Shape::Keys(LOOP_KIND), &KINDS),
        "How the loops of each kind are run; a kind without a `run` is not started.",
    ),
    key("agents", Shape::Keys(AGENTS), "Run agents as another Unix user. Both keys are required."),
    key("work", Shape::Keys(WORK), "The settings of `rota work`.").or("{}"),
    key("scheduler", Shape::Keys(SCHEDULER), "How loops are chosen.").or("{}"),
    key("concurrency", Shape::Keys(CONCURRENCY), "How much runs at once.").or("{}"),
    key("rate_limit", Shape::Keys(RATE_LIMIT), "The gate in front of the LLM API.").or("{}"),
    key("queues", Shape::Policy(&QUEUES), "Rules of queues in the policy's own words.")
        .such_as(r#"{"issues": {"max_concurrent": 5}}"#),
    key("disk", Shape::Keys(DISK), "How much space must be free.").or("{}"),
    key("disk_quota_min_gb", GIGABYTES, "Another name of disk.min_free_gb."),
    key("supervisor", Shape::Keys(SUPERVISOR), "The issue-tracker supervisor: `rota supervise`."),
    key(
        "gateway",
        Shape::Keys(GATEWAY),
        "The gate as an HTTP proxy: with this section `rota up` runs a gateway too.",
    ),
    key("notify", HOOKS, "Webhooks and commands to notify.")
        .such_as(r#"[{"on": ["parked", "failed"], "url": "https://hooks.example.com/rota"}]"#),
];

pub(super) const LOOP_KIND: &[Key] = &[
    key(
        "run",
        PROGRAM,
        "The agent: a list is argv with {prompt}, {task} and {artifacts} replaced, a text goes to `sh -c`.",
    )
    .such_as(r#"["my-agent", "--prompt-file", "{prompt}"]"#),
    key(
        "validate",
        PROGRAM,
        "Decides whether an iteration passed; absent: the agent's exit code 0 is enough.",
    )
    .such_as(r#""cargo test""#),
    key(
        "uses_api",
        Shape::OrFalse(&Shape::TextAs("the name of an upstream, or false")),
        "The upstream that the agent calls; false: none.",
    )
    .or("false"),
    key("max_iterations", COUNT, "Iterations before the loop has failed.").or("100"),
    key(
        "timeout_secs",
        Shape::OrFalse(&LENGTH_SECS),
        "How long one run of the agent may take; false: no limit.",
    )
    .or("3600"),
    key("worktree", Shape::Truth, "Whether each loop gets a git worktree of its own.").or("false"),
    key("keep_worktree_on_failure", Shape::Truth, "Whether the worktree of a failed loop is kept.")
        .or("false"),
    key("env", Shape::Each(&Shape::Text, &[]), "Variables that are set for the agent.").or("{}"),
    key("pass_env", VARIABLES, "Variables that are passed on to the agent; a name may end in *.")
        .or(PASS_ENV),
    key(
        "commits",
        Shape::Word(&["required", "optional"]),
        "Whether the result of an issue's loop needs a commit.",
    )
    .or(r#""required""#),
];

const AGENTS: &[Key] = &[
    key("user", Shape::Text, "The user's name.").such_as(r#""agent""#),
    key("folder", Shape::Text, "Where loops and worktrees are: an absolute path that this user may enter.")
        .such_as(r#""/srv/agents""#),
];

const WORK: &[Key] = &[key(
    "pass_env",
    VARIABLES,
    "Variables that are passed on to commands; `--pass-env NAME` adds to them.",
)
.or(PASS_ENV)];

const SCHEDULER: &[Key] = &[
    key(
        "poll_interval_secs",
        Shape::Decimal(1, 3_600_000),
        "How often the daemon looks for runnable loops by itself.",
    )
    .or("1"),
    key(
        "priority",
        Shape::KeysAndEach(PRIORITY, &POINTS),
        "The score: base of the kind, plus age and depth, minus failed tries.",
    )
    .or("{}"),
];

/// A kind of the user's own may be named too.
pub(super) const PRIORITY: &[Key] = &[
    key("age_boost_per_minute", POINTS, "Points per whole minute since creation.").or("1"),
    key("age_boost_max", POINTS, "The most that age can add.").or("50"),
    key("depth_boost_per_level", POINTS, "Points per level below the root.").or("10"),
    key("retry_penalty_per_iteration", POINTS, "Points lost per failed iteration.").or("5"),
    key("retry_penalty_max", POINTS, "The most that failed iterations can take away.").or("30"),
    key(
        "starvation_guard_minutes",
        Shape::OrFalse(&COUNT),
        "A loop that was runnable for longer goes first; false: off.",
    )
    .or("60"),
    key("plan", POINTS, "Points of a loop that writes a plan.").or("40"),
    key("spec", POINTS, "Points of a loop that writes a specification.").or("60"),
    key("phase", POINTS, "Points of a loop that works on one phase.").or("80"),
    key("ralph", POINTS, "Points of a loop that repeats one prompt until it passes.").or("100"),
];

const CONCURRENCY: &[Key] = &[
    key("max_api_calls", COUNT, "Calls of the LLM API at once.").or("10"),
    key("max_loops", COUNT, "Loops at once.").or("50"),
    key("max_worktrees", COUNT, "Worktrees at once.").or("50"),
    key("per_type", Shape::Each(&COUNT, &KINDS), "Loops at once, by kind, as {plan: 2, spec: 5}.").or("{}"),
];

const RATE_LIMIT: &[Key] = &[
    key("max_concurrent_api_calls", COUNT, "Another name of concurrency.max_api_calls."),
    key("max_requests_per_window", COUNT, "Calls that may start in any window.").or("50"),
    key("rate_window_secs", LENGTH_SECS, "Length of the window.").or("60"),
    key("burst", COUNT, "Calls that may start at once inside the window.").or("10"),
    key("priority_spread_secs", WAIT_SECS, "How long each lower priority waits behind the one above it.")
        .or("60"),
    key("initial_backoff_secs", LENGTH_SECS, "The block after the first 429.").or("5"),
    key("max_backoff_secs", LENGTH_SECS, "The longest block.").or("120"),
    key("recovery_period_secs", WAIT_SECS, "The ramp after a block.").or("30"),
    key(
        "default_priority",
        Shape::Word(&["critical", "high", "normal", "low"]),
        "The priority of callers that name none.",
    )
    .or(r#""normal""#),
];

const DISK: &[Key] = &[
    key("min_free_gb", GIGABYTES, "Below this much free space no new loop starts.").or("5"),
    key("disk_quota_min_gb", GIGABYTES, "Another name of min_free_gb."),
];

const SUPERVISOR: &[Key] = &[
    key("source", Shape::Word(&["gitea", "github", "local"]), "Where issues come from.")
        .such_as(r#""gitea""#),
    key(
        "allow_insecure",
        Shape::Texts("http and token_file"),
        "Accept plain http, or a token file that other users can read.",
    ),
    key("api_base", Shape::Text, "The address of the tracker's API; GitHub has a default.")
        .such_as(r#""https://git.example.com/api/v1""#),
    key("owner", FILE_NAME, "The owner of the repository.").such_as(r#""acme""#),
    key("repo", FILE_NAME, "The repository.").such_as(r#""app""#),
    key("token_env", FILE_NAME, "The variable that holds the token.").such_as(r#""GITEA_TOKEN""#),
    key("token_file", FILE_NAME, "Instead of token_env: a file that holds the token."),
    key("labels", Shape::Keys(LABELS), "Which labels an issue must and must not have.").or("{}"),
    key("authors", Shape::Texts("login names"), "The only authors whose issues are selected; empty: any.")
        .or("[]"),
    key("milestone", FILE_NAME, "The title of the only milestone that is worked on."),
    key("cycle_interval_seconds", CYCLE_SECS, "The sleep between cycles.").or("60"),
    key("cycle_max_runtime_seconds", CYCLE_SECS, "How long a cycle may take.").or("90"),
    key("state_file", FILE_NAME, "Where the state is stored.").or(r#""agents/state/scheduler_state.json""#),
    key("governance", Shape::Keys(GOVERNANCE), "Conditions that must hold before an issue is claimed.")
        .or("{}"),
    key("claim_label", FILE_NAME, "The label of an issue that is taken.").or(r#""in-progress""#),
    key("check_remote", Shape::Truth, "Whether the repository's remote must answer too.").or("false"),
    key(
        "gate_attempts",
        Shape::Whole(1, 1_000),
        "Refusals of the pre-dispatch gate after which an issue is parked.",
    )
    .or("3"),
    key("in_up", Shape::Truth, "Whether `rota up` runs the supervisor too.").or("false"),
    key("dispatch", Shape::Keys(DISPATCH), "Hand claimed issues to loops."),
];

const LABELS: &[Key] = &[
    key("require", Shape::Texts("labels"), "Labels that an issue must have, all of them.").or("[]"),
    key("exclude", Shape::Texts("labels"), "Labels of which an issue must have none.").or("[]"),
];

pub(super) const GOVERNANCE: &[Key] = &[
    key("files", Shape::Texts("paths"), "The files that are pinned.").or(r#"["docs/governance.md"]"#),
    key("rules", Shape::Keys(RULES), "Regular expressions that an instruction must not match.").or("{}"),
    key("environment_file", FILE_NAME, "A JSON object that describes the environment.")
        .or(r#""agents/state/environment.json""#),
    key("violation_log", FILE_NAME, "Where violations are logged.").or(r#""logs/governance_violations.log""#),
    key(
        "pin",
        Shape::Word(&["first_start", "required"]),
        "Who pins: the first cycle, or only `rota supervise pin`.",
    )
    .or(r#""first_start""#),
];

const RULES: &[Key] = &[
    key(
        "role_separation",
        Shape::Texts("regular expressions"),
        "Instructions that mix roles, such as an approval of one's own work.",
    )
    .or("[]"),
    key(
        "allowed_actions",
        Shape::Texts("regular expressions"),
        "Instructions to take an action that is not allowed.",
    )
    .or("[]"),
    key(
        "deterministic_behavior",
        Shape::Texts("regular expressions"),
        "Instructions that leave the outcome to chance.",
    )
    .or("[]"),
];

const DISPATCH: &[Key] = &[
    key("kind", FILE_NAME, "The kind of the loops.").or(r#""ralph""#),
    key("allowed_files", Shape::Texts("globs"), "The only files that a loop may change; empty: any.")
        .or("[]"),
    key("commit_message", Shape::Text, "A regular expression that the message of every commit must match."),
];

const GATEWAY: &[Key] = &[
    key("listen", Shape::Text, "The address and port to listen on.").or(r#""127.0.0.1:8787""#),
    key("hold_secs", Shape::Whole(1, 3_600), "How long a call is held before its client must try again.")
        .or("240"),
    key(
        "credentials",
        Shape::Word(&["inject", "pass"]),
        "Whose key goes to the provider: the gateway's, or the caller's own.",
    )
    .or(r#""inject""#),
    key(
        "upstreams",
        Shape::Each(&Shape::Keys(UPSTREAM), &["anthropic", "openai"]),
        "The providers, by the first part of their paths here.",
    )
    .such_as(r#"{"anthropic": {"url": "https://api.anthropic.com", "key_env": "ANTHROPIC_API_KEY"}}"#),
    key("groups", Shape::Each(&Shape::Keys(GROUP), &[]), "Budgets of model groups.")
        .such_as(r#"{"opus": {"models": ["*opus*"], "max_requests_per_window": 5}}"#),
    key("budget", Shape::Keys(BUDGET), "How much may be spent.").or("{}"),
    key("url", Shape::Text, "Another gateway that is used instead of a gateway of this workspace."),
];

const UPSTREAM: &[Key] = &[
    key("api", Shape::Word(&["anthropic", "openai"]), "The API that the provider speaks."),
    key("url", Shape::Text, "The address of the provider."),
    key(
        "key_env",
        Shape::OrFalse(&Shape::TextAs("the name of a variable, or false")),
        "The variable that holds the key; false: no key.",
    ),
];

const GROUP: &[Key] = &[
    key("models", Shape::Texts("patterns"), "Globs on the model's name."),
    key("max_requests_per_window", GROUP_COUNT, "Calls that may start in any window."),
    key("rate_window_secs", GROUP_COUNT, "Length of the window."),
    key("burst", GROUP_COUNT, "Calls that may start at once inside the window."),
    key("max_input_tokens_per_minute", TOKENS, "Input tokens a minute."),
    key("max_output_tokens_per_minute", TOKENS, "Output tokens a minute."),
];

const BUDGET: &[Key] = &[
    key("usd_per_day", DOLLARS, "Dollars in all on one day of UTC.").such_as("20"),
    key("usd_per_task", DOLLARS, "Dollars for one task in all.").such_as("2"),
    key(
        "prices",
        Shape::Each(&Shape::Keys(PRICES), &[]),
        "Dollars per million tokens, by globs on the model's name; the first match counts.",
    )
    .such_as(r#"{"claude-*": {"input": 3, "output": 15}}"#),
];

const PRICES: &[Key] = &[
    key("input", PRICE, "Tokens that are sent."),
    key("output", PRICE, "Tokens that come back."),
    key("cache_write", PRICE, "Tokens that the provider stores; else 1.25 of input."),
    key("cache_read", PRICE, "Tokens that the provider had stored; else a tenth of input."),
];
