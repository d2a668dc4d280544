//! Documents, and what becomes of them.

use std::time::Duration;

use rota_core::Policy;
use rota_core::policy::GateLevel;
use serde_json::json;

use super::*;

fn parsed(text: &str) -> Config {
    Config::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn policy_of(text: &str) -> Policy {
    parsed(text).apply_to(&Policy::default()).unwrap()
}

/// `#key` is a setting that is commented out.
fn uncommented(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.is_empty() || rest.starts_with("     ") => String::new(),
        Some(rest) if !rest.starts_with(' ') || rest.starts_with("  ") => format!("{rest}\n"),
        _ => String::new(),
    };
    text.lines().map(line).collect()
}

#[test]
fn silence_means_the_defaults() {
    for text in ["", "# nothing\n", "loops:\nscheduler:\nconcurrency: {}\n", "---\n"] {
        assert_eq!(parsed(text), Config::default(), "{text:?}");
        assert_eq!(policy_of(text), Policy::default(), "{text:?}");
    }
}

#[test]
fn the_template_says_the_defaults() {
    assert_eq!(parsed(&template()), Config::default());
    let stated = uncommented(&template());
    let config = parsed(&stated);
    let default = Config { scope: config.scope.clone(), store: config.store.clone(), ..Config::default() };
    assert_eq!(
        (config.scope.as_deref(), config.store.as_ref().map(Secret::expose)),
        (Some("default"), Some("sqlite:.rota/rota.db"))
    );
    assert_eq!(Config { policy: PolicyKeys::default(), named: BTreeSet::new(), ..config.clone() }, default);
    assert_eq!(config.apply_to(&Policy::default()).unwrap(), Policy::default());
    for key in policy_keys::POLICY_KEYS {
        assert!(config.policy.value(key).is_some(), "{} is not in the template", key.path);
    }
}

#[test]
fn the_words_of_both_sources_load_as_they_are() {
    let first = "\
concurrency:
  max_loops: 50       # Total concurrent loops
  per_type:
    plan: 2           # Max 2 concurrent plan loops
    spec: 5
    phase: 20
    ralph: 50         # Unlimited (up to global max)
scheduler:
  poll_interval_secs: 1     # How often to check for runnable loops
  priority:
    plan: 40
    spec: 60
    phase: 80
    ralph: 100
    age_boost_per_minute: 1
    age_boost_max: 50
    depth_boost_per_level: 10
    retry_penalty_per_iteration: 5
    retry_penalty_max: 30
rate_limit:
  initial_backoff_secs: 5
  max_backoff_secs: 120
  recovery_period_secs: 30
  max_concurrent_api_calls: 10
disk_quota_min_gb: 5
";
    let mut wanted = Policy::default();
    let kinds = [("plan", 2), ("spec", 5), ("phase", 20), ("ralph", 50)];
    wanted.queues.get_mut("loops").unwrap().per_kind =
        kinds.map(|(kind, limit)| (kind.to_owned(), limit)).into();
    assert_eq!(policy_of(first), wanted);
    let second = "concurrency:\n  max-loops: 7\n  max-api-calls: 3\n  max-worktrees: 9\n";
    let mut wanted = Policy::default();
    wanted.queues.get_mut("loops").unwrap().max_concurrent = Some(7);
    wanted.gate.max_concurrent = 3;
    assert_eq!(policy_of(second), wanted);
    assert_eq!(parsed(second).max_worktrees, 9);
}

#[test]
fn the_file_changes_what_it_names_and_nothing_else() {
    let mut published = Policy::default();
    published.gate.burst = 3;
    published.queues.get_mut("loops").unwrap().lease_ttl_ms = 5_000;
    let config = parsed(
        "scheduler: {priority: {ralph: 7, review: 9, starvation-guard-minutes: false}}\n\
         rate-limit: {default_priority: high, max_concurrent_api_calls: 4}\nloops: {review: {}}\n",
    );
    let mut wanted = published.clone();
    let loops = wanted.queues.get_mut("loops").unwrap();
    let score = loops.score.as_mut().unwrap();
    score.base.extend([("ralph".to_owned(), 7), ("review".to_owned(), 9)]);
    score.starvation_guard_minutes = None;
    wanted.gate.default_priority = GateLevel::High;
    wanted.gate.max_concurrent = 4;
    assert_eq!(config.apply_to(&published).unwrap(), wanted);
    let error = parsed("rate_limit: {max_backoff_secs: 100}").apply_to(&{
        let mut policy = Policy::default();
        policy.gate.initial_backoff_secs = 110;
        policy
    });
    assert_eq!(
        error.unwrap_err().to_string(),
        "gate.maxBackoffSecs: expected at least initialBackoffSecs (110), got 100"
    );
}

#[test]
fn a_kind_says_how_it_is_run() {
    let config = parsed(
        "loops:\n  ralph: {run: [\"my-agent\", \"--prompt-file\", \"{prompt}\"], validate: \"cargo test\", \
         max_iterations: 100, timeout_secs: 3600, worktree: false, uses_api: anthropic, env: {KEY: value}, \
         pass_env: [PATH, HOME]}\n  my-kind: {run: ./go, timeout-secs: false, keep-worktree-on-failure: true}\n",
    );
    let argv = ["my-agent", "--prompt-file", "{prompt}"].map(str::to_owned).to_vec();
    let ralph = LoopKind {
        run: Some(Program::Argv(argv)),
        validate: Some(Program::Shell("cargo test".into())),
        uses_api: Some("anthropic".into()),
        env: [("KEY".to_owned(), "value".to_owned())].into(),
        pass_env: vec!["PATH".into(), "HOME".into()],
        ..LoopKind::default()
    };
    assert_eq!(config.kind("ralph"), ralph);
    let own = LoopKind {
        run: Some(Program::Shell("./go".into())),
        timeout: None,
        keep_worktree_on_failure: true,
        ..LoopKind::default()
    };
    assert_eq!(config.kind("my-kind"), own);
    assert_eq!(config.kind("other"), LoopKind::default());
    let more =
        parsed("disk: {min-free-gb: 0.25}\nscheduler: {poll_interval_secs: 0.05}\nshared_folder: true\n");
    assert_eq!((more.disk_min_free_bytes, more.poll_interval), (250_000_000, Duration::from_millis(50)));
    assert!(more.shared_folder);
}

#[test]
fn one_thing_said_twice_must_agree() {
    let agreeing = "concurrency: {max_api_calls: 4, max-api-calls: 4}\nrate_limit: {max_concurrent_api_calls: 4}\n\
                    disk: {min_free_gb: 2, disk_quota_min_gb: 2.0}\ndisk_quota_min_gb: 2\n";
    assert_eq!(parsed(agreeing).disk_min_free_bytes, 2_000_000_000);
    assert_eq!(policy_of(agreeing).gate.max_concurrent, 4);
}

/// What is wrong, and what is said; `{known_top}` and `{known_kind}` stand for the known keys.
const REFUSED: &[(&str, &str)] = &[
    ("- a", "top: expected a mapping, got a list"),
    ("scop: x", "scop: unknown key, did you mean 'scope'? {known_top}"),
    ("colour: x", "colour: unknown key {known_top}"),
    ("loops: {ralph: {rn: x}}", "loops.ralph.rn: unknown key, did you mean 'run'? {known_kind}"),
    ("1: x", ": expected a text as key, got 1"),
    (
        "concurrency: {max-lops: 3}",
        "concurrency.max-lops: unknown key, did you mean 'max_loops'? \
             (known here: max_api_calls, max_loops, max_worktrees, per_type)",
    ),
    (
        "concurrency: {per_type: {rlph: 3}}",
        "concurrency.per_type.rlph: unknown key, did you mean 'ralph'? (known here: phase, plan, ralph, spec)",
    ),
    ("scope: [1]", "scope: expected a text, got a list"),
    ("scope: 7", "scope: expected a text (in quotes), got 7"),
    ("scheduler: 3", "scheduler: expected a mapping, got 3"),
    ("supervisor: [x]", "supervisor: expected a mapping, got a list"),
    (
        "concurrency: {max_loops: 0}",
        "concurrency.max_loops: expected a whole number from 1 to 1000000, got 0",
    ),
    (
        "concurrency: {max_loops: 1.5}",
        "concurrency.max_loops: expected a whole number from 1 to 1000000, got 1.5",
    ),
    (
        "scheduler: {poll_interval_secs: -1}",
        "scheduler.poll_interval_secs: expected a number from 0.001 to 3600 with at most three decimals, got -1",
    ),
    (
        "disk: {min_free_gb: .nan}",
        "disk.min_free_gb: expected a number from 0 to 1000000 with at most three decimals, got .nan",
    ),
    (
        "rate_limit: {default_priority: urgent}",
        "rate_limit.default_priority: expected one of critical, high, normal, low, got \"urgent\"",
    ),
    (
        "rate_limit: {initial_backoff_secs: 130}",
        "rate_limit.max_backoff_secs: does not go with initial_backoff_secs \
             (gate.maxBackoffSecs: expected at least initialBackoffSecs (130), got 120)",
    ),
    ("loops: {ralph: {run: []}}", "loops.ralph.run: names no program"),
    ("loops: {ralph: {run: ''}}", "loops.ralph.run: is empty"),
    ("loops: {ralph: {run: [sleep, 5]}}", "loops.ralph.run[1]: expected a text (in quotes), got 5"),
    (
        "loops: {ralph: {validate: 5}}",
        "loops.ralph.validate: expected a text for `sh -c`, or a list of texts, got 5",
    ),
    (
        "loops: {ralph: {worktree: yes please}}",
        "loops.ralph.worktree: expected true or false, got \"yes please\"",
    ),
    (
        "loops: {ralph: {uses_api: true}}",
        "loops.ralph.uses_api: expected the name of an upstream, or false, got true",
    ),
    (
        "loops: {ralph: {env: {ROTA_TASK: x}}}",
        "loops.ralph.env.ROTA_TASK: ROTA_TASK: names that begin with ROTA_ are set by rota itself",
    ),
    ("loops: {ralph: {pass_env: ['*']}}", "loops.ralph.pass_env: '' cannot be the name of a variable"),
    ("agents: {user: bot}", "agents: needs both 'user' and 'folder'"),
    ("agents: {user: bot, folder: here}", "agents: 'folder' must be an absolute path, outside of .rota"),
    ("agents: {user: -u, folder: /tmp}", "agents: 'user' must be the name of a user"),
    ("loops: {a-b: {}, a_b: {}}", "loops.a_b: differs from 'a-b' only in '-' and '_'"),
    (
        "concurrency: {max_api_calls: 4}\nrate_limit: {max_concurrent_api_calls: 5}",
        "rate_limit.max_concurrent_api_calls: says 5, but concurrency.max_api_calls says 4, and both mean one thing",
    ),
    (
        "disk: {min_free_gb: 4}\ndisk_quota_min_gb: 5",
        "disk_quota_min_gb: says 5, but disk.min_free_gb says 4, and both mean one thing",
    ),
    (
        "concurrency: {max_loops: 4, max-loops: 5}",
        "concurrency: 'max_loops' and 'max-loops' say different things",
    ),
];

const KNOWN_TOP: &str = "(known here: scope, store, shared_folder, loops, agents, work, scheduler, concurrency, rate_limit, queues, disk, \
                         disk_quota_min_gb, supervisor, gateway, notify)";
const KNOWN_KIND: &str = "(known here: run, validate, uses_api, max_iterations, timeout_secs, worktree, \
                          keep_worktree_on_failure, env, pass_env, commits)";

#[test]
fn what_cannot_be_meant_is_refused_with_its_path() {
    for (text, message) in REFUSED {
        let message = message.replace("{known_top}", KNOWN_TOP).replace("{known_kind}", KNOWN_KIND);
        assert_eq!(Config::parse(text).map_err(|error| error.to_string()), Err(message), "{text}");
    }
    for text in ["scope: a\nscope: b\n", "loops: {ralph: {run: a, run: b}}", "a: [", "a: &x [*x]"] {
        let error = Config::parse(text).unwrap_err();
        assert!(matches!(error, ParseError::NotYaml { .. }), "{text}: {error}");
    }
}

#[test]
fn every_value_says_where_it_comes_from() {
    let config = parsed(
        "concurrency: {max_loops: 4, max_worktrees: 3}\nscheduler: {priority: {ralph: 90}}\n\
         rate_limit: {burst: 2}\nloops: {ralph: {run: agent, env: {TOKEN: secret}}}\n",
    );
    let mut published = config.apply_to(&Policy::default()).unwrap();
    published.gate.burst = 8;
    published.gate.recovery_period_secs = 1;
    let settings = config.settings("ralph", &published);
    let of = |name: &str| {
        let found = settings.iter().find(|setting| setting.name == name).unwrap();
        (found.value.clone(), found.from.as_ref(), found.file.clone())
    };
    assert_eq!(of("loops.ralph.run"), (json!("agent"), "rota.yml", None));
    assert_eq!(of("loops.ralph.env"), (json!(["TOKEN"]), "rota.yml", None));
    assert_eq!(of("loops.ralph.max_iterations"), (json!(100), "default", None));
    assert_eq!(of("concurrency.max_loops"), (json!(4), "rota.yml", None));
    assert_eq!(of("concurrency.max_worktrees"), (json!(3), "rota.yml", None));
    assert_eq!(of("scheduler.priority.ralph"), (json!(90), "rota.yml", None));
    assert_eq!(of("rate_limit.burst"), (json!(8), "policy", Some(json!(2))));
    assert_eq!(of("rate_limit.recovery_period_secs"), (json!(1), "policy", None));
    assert_eq!(of("rate_limit.rate_window_secs"), (json!(60), "default", None));
    assert_eq!(of("concurrency.per_type.ralph"), (json!(false), "default", None));
    assert_eq!(of("disk.min_free_gb"), (json!(5), "default", None));
}

#[test]
fn a_file_is_read_or_told_about() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rota.yml");
    assert!(Config::read_if_there(&path).unwrap().is_none());
    assert!(matches!(Config::read(&path), Err(ConfigError::Read { .. })));
    assert!(matches!(Config::read(folder.path()), Err(ConfigError::Read { .. })));
    std::fs::write(&path, "scope: mine\n").unwrap();
    assert_eq!(Config::read(&path).unwrap().scope.as_deref(), Some("mine"));
    std::fs::write(&path, [b'a', 0xff]).unwrap();
    assert!(matches!(Config::read(&path), Err(ConfigError::Read { .. })));
    std::fs::write(&path, vec![b'#'; 1_024 * 1_024 + 1]).unwrap();
    assert!(matches!(Config::read(&path), Err(ConfigError::TooLong { .. })));
    std::fs::write(&path, "scope: [\n").unwrap();
    assert!(matches!(Config::read(&path), Err(ConfigError::Wrong { .. })));
}

#[test]
fn the_gateway() {
    use rota_gateway::{Api, Credentials, GatewayConfig};
    assert_eq!(parsed("scope: a\n").gateway, None);
    assert_eq!(parsed("gateway: {listen: \"localhost:1\"}\n").gateway.unwrap().config.listen.port(), 1);
    let whole = parsed(
        "gateway:\n  hold-secs: 30\n  credentials: pass\n  url: http://10.0.0.7:8787\n  upstreams:\n    \
         anthropic: {url: \"https://proxy.example/a\"}\n    local: {api: openai, url: \"http://127.0.0.1:9\", key_env: false}\n  \
         groups: {opus: {models: [\"*opus*\"], max_requests_per_window: 5}}\n  \
         budget: {usd_per_day: 12.5, usd_per_task: 1, prices: {\"*opus*\": {input: 15, output: 75.5}, \"*\": {input: 0, output: 0}}}\n",
    );
    let section = whole.gateway.unwrap();
    assert_eq!(section.url.unwrap().to_string(), "http://10.0.0.7:8787");
    let GatewayConfig { hold, credentials, upstreams, groups, budget, .. } = section.config;
    assert_eq!((hold.as_secs(), credentials), (30, Credentials::Pass));
    let names: Vec<&str> = upstreams.keys().map(String::as_str).collect();
    assert_eq!(names, ["anthropic", "local", "openai"]);
    assert_eq!(upstreams["anthropic"].url.to_string(), "https://proxy.example/a");
    assert_eq!(upstreams["anthropic"].key_env.as_deref(), Some("ANTHROPIC_API_KEY"));
    assert_eq!((upstreams["local"].api, &upstreams["local"].key_env), (Api::OpenAi, &None));
    assert_eq!((groups["opus"].max_requests_per_window, groups["opus"].burst), (Some(5), None));
    assert_eq!((budget.day_nanos, budget.task_nanos), (Some(12_500_000_000), Some(1_000_000_000)));
    assert_eq!(
        budget.price("claude-opus-4").map(|price| (price.input, price.output)),
        Some((15_000, 75_500))
    );
    for (text, problem) in [
        ("gateway: {liten: 1}", "gateway.liten: unknown key, did you mean 'listen'?"),
        ("gateway: {listen: here}", "gateway.listen: expected ADDRESS:PORT"),
        ("gateway: {hold_secs: 0}", "gateway.hold_secs: expected a whole number from 1 to 3600"),
        ("gateway: {credentials: none}", "gateway.credentials: expected one of inject, pass"),
        ("gateway: {upstreams: {mine: {url: \"http://h\"}}}", "gateway.upstreams.mine: needs api"),
        ("gateway: {upstreams: {mine: {api: openai}}}", "gateway.upstreams.mine: needs url"),
        ("gateway: {upstreams: {rota: {api: openai}}}", "gateway.upstreams.rota: is a path"),
        ("gateway: {upstreams: {openai: {url: \"h\"}}}", "gateway.upstreams.openai.url: expected http://"),
        ("gateway: {groups: {a: {}}}", "gateway.groups.a: needs models"),
        ("gateway: {budget: {usd_per_day: 1}}", "gateway.budget.prices: is missing"),
        ("gateway: {budget: {prices: {m: {input: 1}}}}", "gateway.budget.prices.m: needs input and output"),
    ] {
        let error = Config::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(problem), "{text}: {error}");
    }
}

/// Whole documents of every kind.
fn documents() -> Vec<String> {
    let quickstart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart/rota.yml");
    vec![
        uncommented(&template()),
        examples(&template()),
        std::fs::read_to_string(quickstart).unwrap(),
        "rate-limit: {max-backoff-secs: 200}\nconcurrency:\nloops: {mine: {run: a, timeout-secs: false}, other: }\n\
         scheduler: {priority: {mine: 5, starvation_guard_minutes: false}}\n\
         queues: {runs: {max_concurrent: 5, max-attempts: null, leaseTtlMs: 9, backoff: {base_ms: 5}}}\n"
            .to_owned(),
    ]
}

/// The fragments that the guides show.
fn fragments() -> Vec<String> {
    let guides = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides")).unwrap();
    let texts = guides.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let fragments = |text: String| -> Vec<String> {
        let blocks = text.split("\n```yaml\n").skip(1);
        // One that is indented is a part of the section that its page is about.
        let whole = |block: &str| match block.starts_with(' ') {
            true => format!("supervisor:\n{block}"),
            false => block.to_owned(),
        };
        blocks.map(|block| whole(block.split("\n```").next().unwrap())).collect()
    };
    texts.flat_map(fragments).collect()
}

/// The examples of the template, which are indented by five.
fn examples(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.strip_prefix("#     "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_schema_accepts_and_refuses_what_reading_does() {
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("rota.schema.json", Config::schema()).unwrap();
    let index = compiler.compile("rota.schema.json", &mut schemas).unwrap();
    let accepts = |text: &str| {
        let document: serde_json::Value = serde_yaml_ng::from_str(text).unwrap();
        schemas.validate(&document, index).is_ok()
    };
    let fragments = fragments();
    assert!(fragments.len() > 8, "{}", fragments.len());
    let documents = documents();
    documents.iter().for_each(|text| drop(parsed(text)));
    for text in documents.iter().chain(&fragments) {
        assert!(accepts(text), "{text}");
    }
    // What a schema cannot say well: two keys at once, names, and texts of a form of their own.
    let only_reading_finds = [
        "does not go with",
        "is empty",
        "names no program",
        "names that begin with",
        "cannot be the name",
        "needs ",
        "must be",
        "differs from",
        "both mean one thing",
        "say different things",
        "per_type.rlph: unknown key",
    ];
    for (text, message) in
        REFUSED.iter().filter(|(text, _)| !text.starts_with("1:") && !text.contains(".nan"))
    {
        let is_found = !only_reading_finds.iter().any(|words| message.contains(words));
        assert_eq!(accepts(text), !is_found, "{text}: {message}");
    }
}

#[test]
fn every_key_is_described() {
    use rota_core::shape::Key;
    fn undescribed(path: &str, keys: &[Key], found: &mut Vec<String>) {
        for key in keys {
            let path = format!("{path}.{}", key.name);
            undescribed(&path, key.shape.keys(), found);
            if !key.about.ends_with('.') || key.about.contains('\n') {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    undescribed("", keys::TOP, &mut found);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn the_table_has_the_defaults_of_the_gateway() {
    let section = parsed("gateway: {}").gateway.unwrap();
    assert_eq!(section, GatewaySection::default());
}
