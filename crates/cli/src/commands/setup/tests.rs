//! Edits of whole files: setup, and setup undone.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::State;
use super::clients::{Client, Part};

fn part(client: Client, file: &str, remind: bool) -> Part {
    client.parts(remind).into_iter().find(|part| part.file == file).unwrap()
}

/// The file after setup, once it was seen that setup undone, done twice and checked is what it should be.
#[track_caller]
fn added(part: &Part, before: Option<&str>) -> String {
    let after = part.add(before.map(str::as_bytes)).unwrap();
    let text = String::from_utf8(after.clone()).unwrap();
    assert_eq!(String::from_utf8(part.add(Some(&after)).unwrap()).unwrap(), text, "twice: {before:?}");
    assert_eq!(part.state(Some(&after)), Ok(State::Current), "{text}");
    let removed = part.remove(&after).unwrap().map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(removed.as_deref(), before, "{text}");
    text
}

const SERVER: &str = r#"{"args":["mcp"],"command":"rota","env":{"ROTA_SETUP":"1"}}"#;

#[test]
fn a_server_is_registered_in_the_style_of_the_file() {
    let mcp = part(Client::Claude, ".mcp.json", false);
    let pretty = |indent: &str, eol: &str| {
        let lines = [
            "\"rota\": {",
            "  \"args\": [",
            "    \"mcp\"",
            "  ],",
            "  \"command\": \"rota\",",
            "  \"env\": {",
            "    \"ROTA_SETUP\": \"1\"",
            "  }",
            "}",
        ];
        let unit = |line: &str| line.replace("  ", if indent.starts_with('\t') { "\t" } else { "  " });
        lines.map(|line| format!("{indent}{}", unit(line))).join(eol).trim_start().to_owned()
    };
    for (before, after) in [
        (None, format!("{{\n  \"mcpServers\": {{\n    {}\n  }}\n}}\n", pretty("    ", "\n"))),
        (Some("{}"), format!("{{ \"mcpServers\":{{\"rota\":{SERVER}}}}}")),
        (Some("{\n}\n"), format!("{{ \"mcpServers\":{{\"rota\":{SERVER}}}\n}}\n")),
        (Some("{\"a\":1}"), format!("{{\"a\":1,\"mcpServers\":{{\"rota\":{SERVER}}}}}")),
        (Some("{\"mcpServers\":{}}"), format!("{{\"mcpServers\":{{ \"rota\":{SERVER}}}}}")),
        (
            Some("{\n  \"z\": 1,\n  \"a\": [1,2]\n}"),
            format!(
                "{{\n  \"z\": 1,\n  \"a\": [1,2],\n  \"mcpServers\": {{\n    {}\n  }}\n}}",
                pretty("    ", "\n")
            ),
        ),
        (
            Some("{\r\n\t\"mcpServers\": {\r\n\t\t\"x\": {}\r\n\t}\r\n}\r\n"),
            format!(
                "{{\r\n\t\"mcpServers\": {{\r\n\t\t\"x\": {{}},\r\n\t\t{}\r\n\t}}\r\n}}\r\n",
                pretty("\t\t", "\r\n")
            ),
        ),
    ] {
        assert_eq!(added(&mcp, before), after, "{before:?}");
    }
}

#[test]
fn hooks_go_behind_those_that_are_there() {
    let settings = part(Client::Claude, ".claude/settings.json", false);
    let with_reminder = part(Client::Claude, ".claude/settings.json", true);
    let own = r#"{"matcher":"startup","hooks":[{"type":"command","command":"echo hello"}]}"#;
    for before in [
        None,
        Some("{}".to_owned()),
        Some(format!("{{\n    \"hooks\": {{\"SessionStart\": [{own}], \"Stop\": []}}\n}}\n")),
        Some(format!("{{\"hooks\":{{\"SessionEnd\":[ ],\"SessionStart\":[\n{own}\n]}}}}")),
    ] {
        let text = added(&settings, before.as_deref());
        let value: Value = serde_json::from_str(&text).unwrap();
        let last = |event: &str| value["hooks"][event].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last("SessionStart")["hooks"][0]["command"], "rota hook claude session-start");
        assert_eq!(last("StopFailure")["matcher"], "rate_limit|overloaded");
        assert_eq!(value["hooks"]["Stop"].as_array().map_or(0, Vec::len), 0, "only with --remind");
        let reminding = added(&with_reminder, before.as_deref());
        assert!(reminding.contains("rota hook claude stop\""), "{reminding}");
        // Without the flag a reminder stays, and leaves with the rest.
        assert_eq!(settings.add(Some(reminding.as_bytes())).unwrap(), reminding.as_bytes());
        let removed = settings.remove(reminding.as_bytes()).unwrap();
        assert_eq!(removed.as_deref(), before.as_deref().map(str::as_bytes));
    }
}

#[test]
fn what_an_older_version_wrote_is_stale_and_replaced() {
    let settings = part(Client::Claude, ".claude/settings.json", false);
    let text = String::from_utf8(settings.add(Some(b"{\n  \"a\": 1\n}\n")).unwrap()).unwrap();
    let old = text.replace("session-end", "end --old");
    assert_eq!(settings.state(Some(old.as_bytes())), Ok(State::Stale));
    assert_eq!(settings.add(Some(old.as_bytes())).unwrap(), text.as_bytes());
    assert_eq!(settings.remove(old.as_bytes()).unwrap().unwrap(), b"{\n  \"a\": 1\n}\n");
    let partly = settings.add(Some(b"{}")).unwrap();
    let without_one = String::from_utf8(partly).unwrap().replace("rota hook claude session-start", "true");
    assert_eq!(settings.state(Some(without_one.as_bytes())), Ok(State::Stale));
}

#[test]
fn files_that_cannot_be_edited_are_refused() {
    let mcp = part(Client::Claude, ".mcp.json", false);
    for (text, problem) in [
        ("", "is not valid JSON (EOF while parsing a value at line 1 column 0)"),
        ("{\n  // mine\n}", "is not valid JSON (key must be a string at line 2 column 3)"),
        ("[]", "is not an object"),
        ("{\"mcpServers\": []}", "has mcpServers, which is not an object"),
        (
            "{\"mcpServers\": {\"rota\": {\"command\": \"mine\"}}}",
            "has mcpServers.rota, which `rota setup` did not write: rename or delete it, then run setup again",
        ),
    ] {
        assert_eq!(mcp.add(Some(text.as_bytes())), Err(problem.to_owned()));
    }
    assert_eq!(mcp.add(Some(b"\"\xff\"")), Err("is not valid UTF-8".to_owned()));
    let toml = part(Client::Codex, ".codex/config.toml", false);
    for text in [
        "[mcp_servers.rota]\n",
        "[ mcp_servers . \"rota\" ]",
        "mcp_servers = {}\n",
        "mcp_servers.rota.command = 1",
    ] {
        assert!(toml.add(Some(text.as_bytes())).is_err(), "{text}");
    }
    added(&toml, Some("model = \"x\"\n[mcp_servers.rotation]\ncommand = \"y\""));
}

/// Any JSON, often with the keys that setup looks for.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z\"\\\\{}\\[\\],: é\n]{0,6}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("hooks".to_owned()),
        Just("mcpServers".to_owned()),
        Just("SessionStart".to_owned()),
        Just("SessionEnd".to_owned()),
        "[a-z\"\\\\]{0,4}",
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let key = key.clone();
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key, inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A value as text, with white space from a list wherever JSON allows it.
fn written(value: &Value, spaces: &mut dyn Iterator<Item = &'static str>) -> String {
    let mut space = || spaces.next().unwrap_or_default();
    let (before, after) = (space(), space());
    let inner = match value {
        Value::Object(members) => {
            let empty = if members.is_empty() { space() } else { "" };
            let mut parts = Vec::new();
            for (key, value) in members {
                let (a, b) = (spaces.next().unwrap_or_default(), spaces.next().unwrap_or_default());
                parts.push(format!("{a}{}{b}:{}", json!(key), written(value, spaces)));
            }
            format!("{{{empty}{}}}", parts.join(","))
        }
        Value::Array(items) => {
            let empty = if items.is_empty() { space() } else { "" };
            let parts: Vec<String> = items.iter().map(|item| written(item, spaces)).collect();
            format!("[{empty}{}]", parts.join(","))
        }
        leaf => leaf.to_string(),
    };
    format!("{before}{inner}{after}")
}

proptest! {
    #[test]
    fn setup_and_removal_leave_json_as_it_was(
        members in proptest::collection::btree_map(
            prop_oneof![Just("hooks".to_owned()), Just("mcpServers".to_owned()), "[a-z]{0,3}"], json_value(), 0..4,
        ),
        spaces in proptest::collection::vec(
            prop_oneof![Just(""), Just(" "), Just("\n"), Just("\r\n  "), Just("\t"), Just("\n    ")], 1..12,
        ),
        remind in any::<bool>(),
    ) {
        let value = Value::Object(members.into_iter().collect());
        let before = written(&value, &mut spaces.iter().copied().cycle());
        for file in [".mcp.json", ".claude/settings.json"] {
            let part = part(Client::Claude, file, remind);
            let Ok(after) = part.add(Some(before.as_bytes())) else { continue };
            prop_assert!(serde_json::from_slice::<Value>(&after).is_ok());
            prop_assert_eq!(part.state(Some(&after)), Ok(State::Current));
            prop_assert_eq!(part.add(Some(&after)).unwrap(), after.clone());
            let removed = part.remove(&after).unwrap().map(|bytes| String::from_utf8(bytes).unwrap());
            prop_assert_eq!(removed.as_deref(), Some(before.as_str()));
        }
    }
}
