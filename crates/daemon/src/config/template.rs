//! What `rota init` writes.

/// A configuration that says nothing but the defaults, as comments to be taken away: `#key` is a setting, `# ` a word
/// about it.
pub const TEMPLATE: &str = "\
# rota.yml: what Rota runs, and under which limits. Every line is optional; what is commented out with `#` and no
# space shows the default. snake_case and kebab-case are both read, unknown keys are refused.
# `rota loop config ID` says where each value of a loop comes from.

# The namespace of tasks, queues and policy, and where they are kept (a path counts from this file).
#scope: default
#store: sqlite:.rota/rota.db

# How loops are chosen. The score of a loop is its kind's base, plus age and depth, minus failed tries; a loop that has
# been runnable for longer than the guard goes first. `false` turns the guard off.
#scheduler:
#  poll_interval_secs: 1
#  priority:
#    plan: 40
#    spec: 60
#    phase: 80
#    ralph: 100
#    age_boost_per_minute: 1
#    age_boost_max: 50
#    depth_boost_per_level: 10
#    retry_penalty_per_iteration: 5
#    retry_penalty_max: 30
#    starvation_guard_minutes: 60

# How much runs at once. `per_type` holds a kind below the whole, e.g. `per_type: {plan: 2, spec: 5}`.
#concurrency:
#  max_loops: 50
#  max_api_calls: 10
#  max_worktrees: 50

# The gate in front of the LLM API.
#rate_limit:
#  initial_backoff_secs: 5
#  max_backoff_secs: 120
#  recovery_period_secs: 30
#  max_requests_per_window: 50
#  rate_window_secs: 60
#  burst: 10
#  priority_spread_secs: 60
#  default_priority: normal

# The gate as an HTTP proxy: with this section `rota up` runs a gateway too, and every agent gets a token of its own in
# the place of the provider's key, which stays in the environment of rota (see docs/guides/gateway.md).
#
#     gateway:
#       listen: 127.0.0.1:8787
#       credentials: inject               # pass: agents log in by themselves
#       hold_secs: 240                    # how long a call is held before its client is told to come again
#       upstreams:
#         anthropic: {url: \"https://api.anthropic.com\", key_env: ANTHROPIC_API_KEY}
#         openai: {url: \"https://api.openai.com\", key_env: OPENAI_API_KEY}
#       budget:
#         usd_per_day: 20
#         usd_per_task: 2
#         prices: {\"claude-*\": {input: 3, output: 15}}   # dollars per million tokens

# Below this much free space no new loop starts.
#disk:
#  min_free_gb: 5

# Whether every host sees the folders of loops; else a tree runs where its root ran first.
#shared_folder: false

# What the commands of `rota work` see of its environment; --pass-env NAME adds to it.
#work:
#  pass_env: [PATH, HOME, USER, SHELL, LANG, LC_*, TERM, TMPDIR, TZ]

# What to run, by kind. A kind without a `run` is not started, and `rota why` says so. A list is argv, in which
# {prompt}, {task} and {artifacts} are replaced; a text goes to `sh -c` as it is.
#
#     loops:
#       ralph:
#         run: [\"my-agent\", \"--prompt-file\", \"{prompt}\"]
#         validate: \"cargo test\"            # absent: the agent's exit code 0 is enough
#         max_iterations: 100
#         timeout_secs: 3600                # false: none
#         worktree: false                   # a git worktree for each loop
#         keep_worktree_on_failure: false
#         uses_api: anthropic               # the upstream it calls; false: none
#         env: {KEY: value}
#         pass_env: [PATH, HOME, USER, SHELL, LANG, LC_*, TERM, TMPDIR, TZ]
#loops: {}
";
