//! A budget that is spent beside a daemon: loops wait instead of failing, and everybody is told.

use rota_testbed::provider::{Provider, answer as said};
use serde_json::json;

use super::{KEY, until};
use crate::support::Lab;

/// Asks the model once, by what its environment says, and fails if that is refused.
const AGENT: &str = r#"
import json, os, urllib.request
body = json.dumps({"model": "claude-opus-4", "max_tokens": 9, "messages": []}).encode()
headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60)
"#;

fn configure(lab: &Lab, provider: &Provider, budget: &str) {
    let url = provider.url();
    std::fs::write(lab.path().join("agent.py"), AGENT).unwrap();
    let text = format!(
        "concurrency: {{max_loops: 1}}\n\
         gateway:\n  listen: 127.0.0.1:0\n  upstreams:\n    anthropic: {{url: \"{url}\"}}\n  budget: {{{budget}, prices: {{\"*\": {{input: 1000, output: 1000}}}}}}\n\
         notify:\n  - {{on: [budget_spent], run: [sh, -c, \"cat >> told\"]}}\n\
         loops:\n  ralph: {{run: [python3, {}/agent.py], uses_api: anthropic}}\n",
        lab.path().display()
    );
    std::fs::write(lab.path().join("rota.yml"), text).unwrap();
}

fn statuses(lab: &Lab) -> Vec<String> {
    let list: serde_json::Value = serde_json::from_str(&lab.line("loop list --json").ok()).unwrap();
    let loops = list["loops"].as_array().unwrap().clone();
    loops.iter().map(|one| one["status"].as_str().unwrap().to_owned()).collect()
}

/// One loop spends the day's money: the others wait for it, are not started, and do not fail. A higher budget in rota.yml
/// lets them go on.
#[test]
fn a_spent_budget_holds_loops_back() {
    let reply = r#"{"id":"m","type":"message","usage":{"input_tokens":10,"output_tokens":7}}"#;
    let provider = Provider::start(move |_| said(200, &[], reply));
    let lab = Lab::new();
    // 17 tokens cost 0.017 dollars.
    configure(&lab, &provider, "usd_per_day: 0.01");
    for id in ["one", "two", "three"] {
        lab.line(&format!("loop add --kind ralph --id {id} --title {id}")).ok();
    }
    let log = lab.path().join("log");
    let mut command = lab.command();
    command.arg("up").env("ANTHROPIC_API_KEY", KEY).stderr(std::fs::File::create(&log).unwrap());
    let mut daemon = command.spawn().unwrap();
    let waits = |id: &str| {
        let why: serde_json::Value =
            serde_json::from_str(&lab.line(&format!("why {id} --json")).ok()).unwrap();
        let waits = why["waits"].as_array().cloned().unwrap_or_default();
        waits.into_iter().find(|wait| wait["reason"] == "budget_spent")
    };
    until("the money is spent", || waits("three").is_some());
    let wait = waits("three").unwrap();
    assert_eq!(wait["budget"], "usd_per_day", "{wait}");
    assert!(wait["until"].as_str().is_some_and(|until| until.contains("T00:00:00")), "{wait}");
    let status = || lab.line("status").ok();
    until("status shows it", || status().contains("loops that use anthropic wait: the budget 'usd_per_day'"));
    assert!(
        status().contains("rate limited: Budget") && status().contains("budget: $0.017 of $0.01 today"),
        "{}",
        status()
    );
    let json: serde_json::Value = serde_json::from_str(&lab.line("status --json").ok()).unwrap();
    assert_eq!(json["waits"][0]["wait"]["reason"], "budget_spent", "{json}");
    assert_eq!(json["gate"]["budget"]["usdToday"], "0.017", "{json}");
    let said = || std::fs::read_to_string(&log).unwrap();
    until("the log has a line", || said().contains("the budget of $0.01 a day is spent"));
    let told = lab.path().join("told");
    until("the hook is told", || {
        std::fs::read_to_string(&told).is_ok_and(|text| text.contains("budget_spent"))
    });
    let before = statuses(&lab);
    assert!(!before.iter().any(|status| status == "failed"), "{before:?}");
    assert!(before.iter().filter(|status| *status == "pending").count() >= 1, "{before:?}");
    configure(&lab, &provider, "usd_per_day: 10");
    until("all are complete", || statuses(&lab).iter().all(|status| status == "complete"));
    lab.line("down").ok();
    assert!(daemon.wait().unwrap().success());
}

/// A loop that is running when the money runs out is refused its next call. That iteration says nothing about the loop: it
/// does not count, not even as the last one, and the loop waits.
#[test]
fn a_loop_that_runs_when_the_money_ends_loses_nothing() {
    let reply = r#"{"id":"m","type":"message","usage":{"input_tokens":10,"output_tokens":7}}"#;
    let provider = Provider::start(move |_| said(200, &[], reply));
    let lab = Lab::new();
    configure(&lab, &provider, "usd_per_day: 0.01");
    let file = lab.path().join("rota.yml");
    let text = std::fs::read_to_string(&file).unwrap().replace("max_loops: 1", "max_loops: 2");
    let once = |text: &str| text.replace("uses_api: anthropic", "uses_api: anthropic, max_iterations: 1");
    std::fs::write(&file, once(&text)).unwrap();
    let late = format!(
        "import os, time\nwhile os.environ['ROTA_TASK'] == 'late' and not os.path.exists('{}'):\n    time.sleep(0.05)\n{AGENT}",
        lab.path().join("go").display()
    );
    std::fs::write(lab.path().join("agent.py"), late).unwrap();
    lab.line("loop add --kind ralph --id late --title Late").ok();
    let mut command = lab.command();
    let log = std::fs::File::create(lab.path().join("log")).unwrap();
    let mut daemon = command.arg("up").env("ANTHROPIC_API_KEY", KEY).stderr(log).spawn().unwrap();
    until("it runs", || statuses(&lab) == ["running"]);
    lab.line("loop add --kind ralph --id first --title First").ok();
    until("the money is spent", || provider.seen().len() == 1);
    until("the first is complete", || statuses(&lab).contains(&"complete".to_owned()));
    std::fs::write(lab.path().join("go"), "").unwrap();
    until("it is given back", || !statuses(&lab).contains(&"running".to_owned()));
    let list = lab.line("loop list --json").json();
    let late = list["loops"].as_array().unwrap().iter().find(|one| one["id"] == "late").unwrap();
    assert_eq!((&late["status"], late.get("tries")), (&json!("pending"), None), "{late}");
    assert!(lab.line("why late").ok().contains("usd_per_day"));
    let told = std::fs::read_to_string(lab.path().join("log")).unwrap();
    assert!(told.contains("interrupted") && told.contains("usd_per_day"), "{told}");
    assert_eq!(provider.seen().len(), 1);
    std::fs::write(&file, once(&text).replace("usd_per_day: 0.01", "usd_per_day: 10")).unwrap();
    until("all are complete", || statuses(&lab).iter().all(|status| status == "complete"));
    lab.line("down").ok();
    assert!(daemon.wait().unwrap().success());
}

/// A loop that has spent its own budget is parked, and the daemon ends its agent.
#[test]
fn a_loop_without_money_is_parked() {
    let reply = r#"{"id":"m","type":"message","usage":{"input_tokens":10,"output_tokens":7}}"#;
    let provider = Provider::start(move |_| said(200, &[], reply));
    let lab = Lab::new();
    configure(&lab, &provider, "usd_per_task: 0.01");
    let twice = format!(
        "{AGENT}try:\n    urllib.request.urlopen(urllib.request.Request(url, body, headers))\nexcept Exception:\n    import time\n    time.sleep(600)\n"
    );
    std::fs::write(lab.path().join("agent.py"), twice).unwrap();
    lab.line("loop add --kind ralph --id one --title One").ok();
    let mut command = lab.command();
    let ran = command.args(["up", "--until-idle"]).env("ANTHROPIC_API_KEY", KEY).output().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(told.contains("one has spent its budget of $0.01 and is parked"), "{told}");
    let shown = lab.line("loop show one --json").ok();
    assert!(shown.contains("\"parked\"") && shown.contains("its budget of $0.01"), "{shown}");
    assert_eq!(provider.seen().len(), 1);
}
