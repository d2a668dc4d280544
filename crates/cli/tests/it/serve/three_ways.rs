//! Every verb that is a tool, three ways at each step: the line, the call of the tool, and the request. Standard output, the
//! text of the tool and the body of the answer must be the same bytes, and a refusal must say the same.

use std::collections::{BTreeMap, BTreeSet};

use rota_testbed::Server;
use serde_json::{Value, json};

use crate::mcp::client::{Http, Pipes, Reply};
use crate::mcp::same_bytes::{ALLOW_NOW, compare, steps, tools, without_folder};
use crate::support::Lab;

/// What every operation takes in its query.
const SURROUNDINGS: [&str; 4] = ["scope", "agent", "leaseId", "now"];

/// A server, and where it says that each verb is.
struct Api<'a> {
    lab: &'a Lab,
    server: Http,
    places: BTreeMap<String, (String, String)>,
}

impl<'a> Api<'a> {
    fn of(lab: &'a Lab) -> Self {
        let server = Http::serve(lab, &[]);
        let described = server.ask("GET", "/openapi.json", None).json();
        let mut places = BTreeMap::new();
        for (path, operations) in described["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let name = operation["operationId"].as_str().unwrap().to_owned();
                let path = path.strip_prefix("/api/v1").unwrap().to_owned();
                places.insert(name, (method.to_ascii_uppercase(), path));
            }
        }
        Self { lab, server, places }
    }

    /// Asks for what a tool was asked for.
    fn ask(&self, tool: &str, arguments: &Value) -> Reply {
        let name = tool.strip_prefix("rota_").unwrap();
        let (method, path) = &self.places[name];
        let mut given = arguments.as_object().unwrap().clone();
        if path.contains("{lease}")
            && let Some(lease) = given.remove("leaseId")
        {
            given.insert("lease".to_owned(), lease);
        }
        if name == "queue_add" && !given.contains_key("repo") {
            given.insert("repo".to_owned(), json!(self.lab.path().canonicalize().unwrap()));
        }
        let parts = path.split('/').map(|part| match part.strip_prefix('{') {
            None => part.to_owned(),
            Some(name_of) => {
                let value = given.remove(name_of.trim_end_matches('}'));
                let queue = if name.starts_with("task") { "tasks" } else { "runs" };
                encoded(&value.unwrap_or_else(|| json!(if part == "{queue}" { queue } else { "" })))
            }
        });
        let path = parts.collect::<Vec<_>>().join("/");
        let has_body = method != "GET" && method != "DELETE";
        let (query, body): (Vec<_>, Vec<_>) =
            given.into_iter().partition(|(name, _)| !has_body || SURROUNDINGS.contains(&name.as_str()));
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let body = has_body.then(|| Value::Object(body.into_iter().collect()));
        self.server.ask(method, &format!("{path}?{}", query.join("&")), body.as_ref())
    }

    /// The same as the tool's answer; whether it came from the verb, and not from whoever reads requests.
    #[track_caller]
    fn says_the_same(&self, reply: &Reply, called: &Value, other: &Lab) -> bool {
        let result = &called["result"];
        let text = without_folder(result["content"][0]["text"].as_str().unwrap(), other);
        if result["isError"] == false {
            assert_eq!((reply.status, without_folder(&reply.body, self.lab)), (200, text), "{reply:?}");
            return true;
        }
        let told = reply.json();
        assert_eq!((reply.status >= 400, &told["status"]), (true, &json!(reply.status)), "{reply:?}");
        if told["code"] == "bad_request" || told["code"] == "not_found" {
            return false;
        }
        let hint = told["hint"].as_str().map_or(String::new(), |hint| format!("  {hint}\n"));
        let said = format!("{}\n{hint}", told["detail"].as_str().unwrap());
        assert_eq!(without_folder(&said, self.lab), text);
        let error = &result["_meta"]["rota/error"];
        assert_eq!((&told["code"], &told["exitCode"]), (&error["code"], &error["exitCode"]), "{reply:?}");
        true
    }
}

fn encoded(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).into() } else { format!("%{byte:02X}") })
        .collect()
}

fn compare_three(lab: impl Fn() -> Lab) {
    let (cli, mcp, http) = (lab(), lab(), lab());
    let mut client = Pipes::start_with(&mcp, &["--tools", "all"], &ALLOW_NOW);
    let api = Api::of(&http);
    let (mut answered, mut unread) = (BTreeSet::new(), 0);
    let seen = compare((&cli, &mcp), &steps(), |tool, arguments| {
        let called = client.call(tool, arguments);
        let reply = api.ask(tool, arguments);
        match api.says_the_same(&reply, &called, &mcp) {
            true if reply.status == 200 => drop(answered.insert(tool.to_owned())),
            true => {}
            false => unread += 1,
        }
        called
    });
    seen.is_everything(&tools(&mcp));
    assert_eq!(answered, tools(&mcp).into_iter().collect(), "every verb answered over HTTP too");
    assert!(unread < 12, "most refusals are the verbs' own, {unread} are not");
    assert_eq!(without_folder(&http.export(), &http), without_folder(&cli.export(), &cli));
}

#[test]
fn every_verb_on_sqlite() {
    compare_three(Lab::new);
}

#[test]
fn every_verb_on_postgresql() {
    compare_three(|| Lab::on(Server::shared().fresh_url()));
}
