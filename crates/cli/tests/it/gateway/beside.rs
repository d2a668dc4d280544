//! The gateway beside the daemon: children with tokens of their own, loops that wait for a blocked upstream.

use rota_testbed::dialogue;
use rota_testbed::provider::{Provider, answer as said};

use super::{KEY, answer, ask, config, until};
use crate::support::Lab;

/// Calls the model as an agent does, by what its environment says, and writes down that environment.
const AGENT: &str = r#"#!/bin/sh
env > "$ROTA_OUT/$ROTA_TASK.env"
exec python3 - <<'PYTHON'
import json, os, urllib.request
body = json.dumps({"model": "claude-opus-4", "max_tokens": 9, "messages": []}).encode()
headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
print(urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60).status)
PYTHON
"#;

fn lab_with(provider: &Provider, more: &str) -> Lab {
    let lab = Lab::new();
    std::fs::write(lab.path().join("agent.sh"), AGENT).unwrap();
    let out = lab.path().display().to_string();
    let run = format!(
        "loops:\n  ralph: {{run: [sh, {out}/agent.sh], uses_api: anthropic, env: {{OUT: \"{out}\"}}}}\n"
    );
    let script = AGENT.replace("$ROTA_OUT", &out);
    std::fs::write(lab.path().join("agent.sh"), script).unwrap();
    std::fs::write(lab.path().join("rota.yml"), format!("{}{run}", config(provider, more))).unwrap();
    lab
}

fn up(lab: &Lab, more: &[&str]) -> std::process::Output {
    let mut command = lab.command();
    command.args(["up", "--until-idle"]).args(more).env("ANTHROPIC_API_KEY", KEY).env("OPENAI_API_KEY", KEY);
    command.output().unwrap()
}

fn variables(lab: &Lab, id: &str) -> std::collections::BTreeMap<String, String> {
    let text = std::fs::read_to_string(lab.path().join(format!("{id}.env"))).unwrap();
    let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter_map(pair).collect()
}

/// Every child gets a token of its own lease, never the provider's key; what it uses is on its loop; the token is no
/// longer good when the lease has ended.
#[test]
fn children_have_tokens_of_their_own() {
    let provider = Provider::start(|seen| match seen.number {
        // What an agent would stumble over.
        0 => said(429, &[], "{}"),
        1 => said(529, &[], "{}"),
        _ => dialogue::reply(seen),
    });
    let lab = lab_with(&provider, "");
    lab.line("loop add --kind ralph --id one --title One").ok();
    lab.line("loop add --kind ralph --id two --title Two --priority high").ok();
    let ran = up(&lab, &[]);
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{told}");
    let (one, two) = (variables(&lab, "one"), variables(&lab, "two"));
    assert_ne!(one["ANTHROPIC_API_KEY"], two["ANTHROPIC_API_KEY"]);
    for (name, value) in one.iter().chain(&two) {
        assert!(!value.contains(KEY), "{name} holds the provider's key");
    }
    assert!(one["OPENAI_BASE_URL"].ends_with("/openai/v1"));
    let codex = std::fs::read_to_string(format!("{}/config.toml", one["CODEX_HOME"])).unwrap();
    assert!(codex.contains(&one["OPENAI_BASE_URL"]), "{codex}");
    let shown = lab.line("loop show one").ok();
    assert!(shown.contains("1 requests, 10 tokens in (0 cached), 7 out"), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&lab.line("loop show two --json").ok()).unwrap();
    assert_eq!(json["usage"]["requests"], 1, "{json}");
    assert!(provider.seen().iter().all(|seen| seen.header("x-api-key") == Some(KEY)));
    let log = lab.line("log --json").ok();
    for text in [&told, &log] {
        assert!(!text.contains(KEY) && !text.contains(&one["ANTHROPIC_API_KEY"]));
    }
    let again = super::Running::start(&lab);
    let late = answer(ask(&again.url, &one["ANTHROPIC_API_KEY"]));
    assert!(late.starts_with("HTTP/1.1 401"), "{late}");
}

/// While the store says that an upstream is blocked, no loop begins that uses it; others do.
#[test]
fn a_blocked_upstream_holds_back_its_loops_only() {
    let provider = Provider::start(dialogue::reply);
    let lab = lab_with(&provider, "");
    let text = std::fs::read_to_string(lab.path().join("rota.yml")).unwrap();
    let other = "  plain: {run: [\"true\"], uses_api: openai}\n";
    std::fs::write(lab.path().join("rota.yml"), format!("{text}{other}")).unwrap();
    lab.line("loop add --kind ralph --id held --title Held").ok();
    lab.line("loop add --kind plain --id free --title Free").ok();
    let keep = rota_store::intents::blocks::KeepBlock {
        call: rota_store::intents::Call::in_scope("default"),
        upstream: "anthropic".into(),
        until: None,
        hits: 1,
        reason: "quota used up".into(),
    };
    rota_testbed::block_on(rota_store::Store::perform(&lab.open(), &keep)).unwrap();
    let told = lab.path().join("told");
    let mut command = lab.command();
    command.args(["up"]).env("ANTHROPIC_API_KEY", KEY).stderr(std::fs::File::create(&told).unwrap());
    let mut daemon = command.spawn().unwrap();
    let status = |id: &str| lab.line(&format!("loop show {id} --json")).ok();
    until("the other one is done", || {
        status("free").contains("\"status\": \"done\"") || status("free").contains("complete")
    });
    assert!(!lab.path().join("held.env").exists(), "it began though its upstream is blocked");
    let tells = |words: &str| std::fs::read_to_string(&told).unwrap().contains(words);
    until("the operator is told", || tells("anthropic: its quota is used up"));
    lab.line("gate unblock anthropic").ok();
    until("it begins", || lab.path().join("held.env").exists());
    until("the operator is told of that, too", || tells("Open again after a limit upstream=anthropic"));
    lab.line("down").ok();
    assert!(daemon.wait().unwrap().success());
}

/// `rota status` shows the block of an upstream while it lasts, and the ramp after it.
#[test]
fn status_shows_block_and_ramp() {
    let provider = Provider::start(|seen| match seen.number {
        0 => said(429, &[("retry-after", "4")], "{}"),
        _ => dialogue::reply(seen),
    });
    let lab = lab_with(&provider, "");
    let text = std::fs::read_to_string(lab.path().join("rota.yml")).unwrap();
    let text = text.replace("recovery_period_secs: 0", "recovery_period_secs: 300");
    std::fs::write(lab.path().join("rota.yml"), text).unwrap();
    let mut command = lab.command();
    command.arg("up").env("ANTHROPIC_API_KEY", KEY).stderr(std::process::Stdio::null());
    let mut daemon = command.spawn().unwrap();
    let place = lab.path().join(".rota/run/gateway");
    until("the gateway listens", || place.exists() && lab.line("status").code == 0);
    let status = || lab.line("status").ok();
    assert!(status().contains("gate anthropic: 0/10 running, 0 queued, rate limited: No\n"), "{}", status());
    let url = std::fs::read_to_string(&place).unwrap().trim().to_owned();
    let call = ask(&url, &super::operator(lab.path()));
    until("status shows the block", || status().contains("rate limited: Yes ("));
    assert!(answer(call).starts_with("HTTP/1.1 200"));
    until("status shows the ramp", || status().contains("rate limited: Ramping 1/10\n"));
    lab.line("down").ok();
    assert!(daemon.wait().unwrap().success());
}

/// The commands of `rota work` get tokens of their leases from a gateway that runs here, by whomever it was started.
#[test]
fn work_beside_a_gateway() {
    let provider = Provider::start(dialogue::reply);
    let lab = lab_with(&provider, "");
    let work = |id: &str, more: &[&str]| {
        lab.line(&format!("task create {id} Work")).ok();
        let script = format!("sh {}/agent.sh || test -z \"$ANTHROPIC_BASE_URL\"", lab.path().display());
        let mut command = lab.command();
        command
            .args(["work", "--until-empty"])
            .args(more)
            .args(["--", "sh", "-c", &script])
            .env("ANTHROPIC_API_KEY", KEY);
        let ran = command.output().unwrap();
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success() && told.contains("1 done"), "{told}");
        variables(&lab, id)
    };
    let before = work("before", &[]);
    assert!(!before.contains_key("ANTHROPIC_BASE_URL"), "there is no gateway yet");
    let running = super::Running::start(&lab);
    let (one, two) = (work("one", &[]), work("two", &[]));
    assert!(one["ANTHROPIC_BASE_URL"].starts_with(&running.url), "{}", one["ANTHROPIC_BASE_URL"]);
    assert_ne!(one["ANTHROPIC_API_KEY"], two["ANTHROPIC_API_KEY"]);
    assert!(one.values().chain(two.values()).all(|value| !value.contains(KEY)));
    assert_eq!(provider.seen().len(), 2);
    until("both are accounted for", || {
        ["one", "two"]
            .iter()
            .all(|id| lab.line(&format!("gate usage --task {id}")).ok().contains("1 requests"))
    });
    until("its token is no longer good", || {
        answer(ask(&running.url, &one["ANTHROPIC_API_KEY"])).starts_with("HTTP/1.1 401")
    });
    let without = work("without", &["--no-gateway"]);
    assert!(!without.contains_key("ANTHROPIC_BASE_URL"));
    running.signal("KILL");
    drop(running);
    let after = work("after", &[]);
    assert!(!after.contains_key("ANTHROPIC_BASE_URL"), "nobody listens where the file says");
}

/// Without a gateway children get nothing of it.
#[test]
fn no_gateway_where_none_is_wanted() {
    let provider = Provider::start(dialogue::reply);
    let lab = lab_with(&provider, "");
    let text = std::fs::read_to_string(lab.path().join("rota.yml")).unwrap();
    let run = text.replace("exec python3", "true");
    std::fs::write(lab.path().join("rota.yml"), run).unwrap();
    std::fs::write(
        lab.path().join("agent.sh"),
        AGENT.split("exec").next().unwrap().replace("$ROTA_OUT", &lab.path().display().to_string()),
    )
    .unwrap();
    lab.line("loop add --kind ralph --id one --title One").ok();
    let ran = up(&lab, &["--no-gateway"]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let seen = variables(&lab, "one");
    assert!(!seen.contains_key("ANTHROPIC_BASE_URL") && !seen.contains_key("ANTHROPIC_API_KEY"));
    assert!(provider.seen().is_empty());
}
