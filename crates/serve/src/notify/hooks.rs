//! The section `notify:` of `rota.yml`: whom to tell about what.

use rota_core::notify::{HOOK, HOOKS, Topic};
use rota_core::shape::{KeyError, Node, Notation, Section};
use rota_store::Secret;

use crate::client::Target;

/// Somebody to tell.
#[derive(Clone)]
pub struct Hook {
    /// About what.
    pub topics: Vec<Topic>,
    /// How.
    pub way: Way,
}

/// How somebody is told.
#[derive(Clone)]
pub enum Way {
    /// By a POST of JSON.
    Web {
        /// Where to.
        target: Target,
        /// What the body is signed with.
        secret: Option<Secret>,
    },
    /// By a program that reads JSON on its standard input.
    Run {
        /// The program and its arguments.
        argv: Vec<String>,
    },
}

/// Reads the section: a list of hooks. `variable` looks up the environment, where secrets are.
pub fn read(section: &Node, variable: impl Fn(&str) -> Option<String>) -> Result<Vec<Hook>, KeyError> {
    let checked = HOOKS.check(Notation::Yaml, "notify", section)?;
    let Node::List(hooks) = &checked.node else { unreachable!("the section is a list") };
    let hook = |(at, node)| hook(&Section::new(HOOK, format!("notify[{at}]"), node), &variable);
    hooks.iter().enumerate().map(hook).collect()
}

fn hook(given: &Section<'_>, variable: impl Fn(&str) -> Option<String>) -> Result<Hook, KeyError> {
    let listed = |key: &str| {
        let list: Vec<String> = given.get(key).unwrap_or_default();
        if list.is_empty() { Err(given.error_at(key, "must not be empty")) } else { Ok(list) }
    };
    let words = listed("on")?;
    let topics =
        Topic::ALL.into_iter().filter(|topic| words.iter().any(|word| word == topic.word())).collect();
    let way = match (given.get::<String>("url"), given.has("run")) {
        (Some(url), false) => {
            let target =
                Target::parse(&url).ok_or_else(|| given.error_at("url", "must be http://… or https://…"))?;
            let secret = given.get::<String>("secret_env").map(|name| {
                let unset = || given.error_at("secret_env", format!("{name} is not set"));
                variable(&name).map(Secret::from).ok_or_else(unset)
            });
            Way::Web { target, secret: secret.transpose()? }
        }
        (None, true) if !given.has("secret_env") => Way::Run { argv: listed("run")? },
        _ => return Err(given.error("needs either url (with secret_env where wanted) or run")),
    };
    Ok(Hook { topics, way })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sections() {
        let variable = |name: &str| (name == "SECRET").then(|| "s".to_owned());
        let good = json!([
            {"on": ["parked", "failed"], "url": "https://hooks.example/x?y=1", "secret_env": "SECRET"},
            {"on": ["idle"], "run": ["notify-send", "idle"]},
        ]);
        assert_eq!(read(&Node::from(&good), variable).map(|hooks| hooks.len()).ok(), Some(2));
        for (section, problem) in [
            (json!({}), "notify: expected a list of hooks, got a mapping"),
            (json!([1]), "notify[0]: expected a mapping, got 1"),
            (
                json!([{"on": ["parked"], "uri": "x"}]),
                "notify[0].uri: unknown key, did you mean 'url'? (known here: on, url, secret_env, run)",
            ),
            (json!([{"run": ["x"]}]), "notify[0].on: must not be empty"),
            (
                json!([{"on": ["lost"], "run": ["x"]}]),
                "notify[0].on[0]: expected one of parked, failed, rate_limited, quota, budget_spent, idle, \
                 governance_violation, cycle_failed, got \"lost\"",
            ),
            (json!([{"on": ["idle"]}]), "notify[0]: needs either url (with secret_env where wanted) or run"),
            (json!([{"on": ["idle"], "url": "file:///x"}]), "notify[0].url: must be http://… or https://…"),
            (
                json!([{"on": ["idle"], "url": "http://x", "secret_env": "NONE"}]),
                "notify[0].secret_env: NONE is not set",
            ),
        ] {
            let said = read(&Node::from(&section), variable).err().map(|error| error.to_string());
            assert_eq!(said.as_deref(), Some(problem));
        }
    }
}
