//! A gateway that runs follows what is published and what is edited: slots, windows, groups, the default priority.

use rota_testbed::dialogue;
use rota_testbed::provider::{Provider, Step, answer as said};
use serde_json::Value;

use super::{Running, answer, operator, until};
use crate::support::Lab;

/// Writes a configuration; the first part goes in front, the second below `gateway`.
fn configure(lab: &Lab, provider: &Provider, top: &str, gateway: &str) {
    let url = provider.url();
    let text = format!(
        "{top}gateway:\n  listen: 127.0.0.1:0\n  upstreams:\n    anthropic: {{url: \"{url}\"}}\n    openai: {{url: \"{url}\"}}\n{gateway}"
    );
    std::fs::write(lab.path().join("rota.yml"), text).unwrap();
}

fn json(lab: &Lab, line: &str) -> Value {
    serde_json::from_str(&lab.line(line).ok()).unwrap()
}

fn gate(lab: &Lab) -> Value {
    json(lab, "gate status --json")["upstreams"][0].clone()
}

/// Row 003-50 of the requirements: the keys of the source, in kebab-case, decide what a gateway and a fleet may do, and
/// `rota gateway` publishes them as `rota up` does.
#[test]
fn the_keys_of_the_source_reach_the_gate() {
    let provider = Provider::start(dialogue::reply);
    let lab = Lab::new();
    configure(&lab, &provider, "concurrency: {max-loops: 50, max-api-calls: 10, max-worktrees: 50}\n", "");
    let running = Running::start(&lab);
    assert_eq!(gate(&lab)["slots"], 10);
    let policy = json(&lab, "policy show");
    assert_eq!(policy["policy"]["queues"]["loops"]["maxConcurrent"], 50, "{policy}");
    drop(running);
    configure(&lab, &provider, "concurrency: {max-loops: 7, max-api-calls: 3, max-worktrees: 5}\n", "");
    let _running = Running::start(&lab);
    assert_eq!(gate(&lab)["slots"], 3);
    let policy = json(&lab, "policy show");
    let found =
        (&policy["policy"]["queues"]["loops"]["maxConcurrent"], &policy["policy"]["gate"]["maxConcurrent"]);
    assert_eq!(found, (&7.into(), &3.into()), "published: {policy}");
    let copy = std::fs::read_to_string(lab.path().join("rota.policy.json")).unwrap();
    assert!(copy.contains("\"maxConcurrent\": 7"), "mirrored: {copy}");
}

#[test]
fn policies_edits_and_reloads_reach_a_running_gate() {
    let provider = Provider::start(dialogue::reply);
    let lab = Lab::new();
    configure(&lab, &provider, "concurrency: {max_api_calls: 3}\n", "");
    let running = Running::start(&lab);
    assert_eq!(
        (gate(&lab)["slots"].clone(), gate(&lab)["windows"][0]["maxStarts"].clone()),
        (3.into(), 50.into())
    );

    // What somebody publishes.
    let mut policy = json(&lab, "policy show")["policy"].clone();
    policy["gate"]["maxConcurrent"] = 4.into();
    policy["gate"]["maxRequestsPerWindow"] = 33.into();
    std::fs::write(lab.path().join("new.json"), policy.to_string()).unwrap();
    lab.line("policy apply new.json").ok();
    until("the published slots and window", || {
        gate(&lab)["slots"] == 4 && gate(&lab)["windows"][0]["maxStarts"] == 33
    });

    // What somebody edits.
    let groups = "  groups: {big: {models: [\"claude-opus-*\"], max_requests_per_window: 5}}\n";
    configure(&lab, &provider, "concurrency: {max_api_calls: 5}\n", groups);
    until("the edited slots", || gate(&lab)["slots"] == 5);
    let windows = gate(&lab)["windows"].clone();
    assert_eq!((&windows[0]["group"], &windows[0]["maxStarts"]), (&"big".into(), &5.into()), "{windows}");

    // What somebody has read again: it counts when the verb has ended.
    configure(&lab, &provider, "concurrency: {max_api_calls: 6}\n", "");
    assert_eq!(lab.line("reload").ok(), "reloaded\n");
    assert_eq!(
        (gate(&lab)["slots"].clone(), gate(&lab)["windows"][0]["group"].clone()),
        (6.into(), "*".into())
    );

    // A bad file changes nothing, and says so.
    configure(&lab, &provider, "concurrency: {max_api_calls: 0}\n", "");
    let refused = lab.line("reload");
    assert!(refused.code != 0 && refused.stderr.contains("max_api_calls"), "{}", refused.stderr);
    until("the operator is told", || running.said().contains("the configuration is refused"));
    assert!(answer(running.ask(&operator(lab.path()))).starts_with("HTTP/1.1 200"));
    configure(&lab, &provider, "concurrency: {max_api_calls: 6}\n", "");
    assert_eq!(gate(&lab)["slots"], 6);
}

#[test]
fn the_default_priority_is_used_and_queued_calls_have_a_place() {
    let provider =
        Provider::start(|_| vec![Step::WaitForOpen].into_iter().chain(said(200, &[], "{}")).collect());
    let lab = Lab::new();
    let limits = "concurrency: {max_api_calls: 1}\nrate_limit: {default_priority: low}\n";
    configure(&lab, &provider, limits, "");
    let running = Running::start(&lab);
    let token = lab.line("gate token").ok();
    let first = running.ask(&operator(lab.path()));
    until("one runs", || gate(&lab)["running"] == 1);
    let second = running.ask(token.trim());
    until("one waits", || gate(&lab)["queued"] == 1);
    let view = gate(&lab);
    let levels: Vec<&Value> =
        view["calls"].as_array().unwrap().iter().map(|call| &call["priority"]).collect();
    assert_eq!(levels, ["low", "low"], "{view}");
    assert_eq!(view["scheduled"], 1, "{view}");
    let waiting = &view["calls"][1];
    assert_eq!((&waiting["position"], &waiting["estimatedWaitMs"]), (&1.into(), &30_000.into()), "{view}");
    assert_eq!(view["heldBy"], serde_json::json!(["slots"]), "{view}");
    assert!(view["calls"][0].get("position").is_none(), "{view}");
    provider.open();
    for client in [first, second] {
        assert!(answer(client).starts_with("HTTP/1.1 200"));
    }
}

/// With the defaults, ten first calls start within a second, and the panel says that nothing is limited.
#[test]
fn a_fresh_start_does_not_ramp() {
    let provider =
        Provider::start(|_| vec![Step::WaitForOpen].into_iter().chain(said(200, &[], "{}")).collect());
    let lab = Lab::new();
    configure(&lab, &provider, "", "");
    let running = Running::start(&lab);
    let calls: Vec<_> = (0..10).map(|_| running.ask(&operator(lab.path()))).collect();
    until("all ten run", || gate(&lab)["running"] == 10);
    // The burst is used up, so an eleventh call would be paced for a moment even if it had a slot.
    until("nothing is limited", || {
        lab.line("gate status").ok().contains("Running: 10/10  Queued: 0  Rate Limited: No")
    });
    provider.open();
    for call in calls {
        let answer = answer(call);
        let wait = answer.lines().find_map(|line| line.strip_prefix("x-rota-wait-ms: ")).unwrap();
        assert!(wait.trim().parse::<u64>().unwrap() < 1_000, "{answer}");
    }
}

/// On a server the published policy decides unless the operator publishes the file's; a running gate follows it there, too.
#[test]
fn on_a_server_the_published_policy_decides() {
    let provider = Provider::start(dialogue::reply);
    let lab = Lab::on(rota_testbed::Server::shared().fresh_url());
    configure(&lab, &provider, "concurrency: {max_api_calls: 3}\n", "");
    let running = Running::start(&lab);
    assert!(running.said().contains("gate.maxConcurrent 10 → 3"), "{}", running.said());
    assert_eq!(gate(&lab)["slots"], 10);
    let mut policy = json(&lab, "policy show")["policy"].clone();
    policy["gate"]["maxConcurrent"] = 4.into();
    std::fs::write(lab.path().join("new.json"), policy.to_string()).unwrap();
    lab.line("policy apply new.json").ok();
    until("the published slots", || gate(&lab)["slots"] == 4);
    drop(running);
    let mut command = lab.command();
    let command = command.args(["gateway", "--publish"]).env("ANTHROPIC_API_KEY", super::KEY);
    let _running = Running::of(command);
    assert_eq!(gate(&lab)["slots"], 3);
    assert_eq!(json(&lab, "policy show")["policy"]["gate"]["maxConcurrent"], 3);
}
