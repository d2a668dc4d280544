//! The section `notify:` of `rota.yml`: whom to tell about what.

use rota_store::Secret;
use serde_json::Value;

use crate::client::Target;

/// What can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// A task needs a person.
    Parked,
    /// A task failed for good.
    Failed,
    /// An API pushed back.
    RateLimited,
    /// An API's quota is used up, or it is blocked for long.
    Quota,
    /// A budget is spent, and loops wait for it.
    BudgetSpent,
    /// Nothing runs any more, and nothing is left that could.
    Idle,
    /// A rule of governance was broken, or the pin was lost and set anew.
    GovernanceViolation,
    /// A cycle of the supervisor failed.
    CycleFailed,
}

impl Topic {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Parked,
        Self::Failed,
        Self::RateLimited,
        Self::Quota,
        Self::BudgetSpent,
        Self::Idle,
        Self::GovernanceViolation,
        Self::CycleFailed,
    ];

    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Failed => "failed",
            Self::RateLimited => "rate_limited",
            Self::Quota => "quota",
            Self::BudgetSpent => "budget_spent",
            Self::Idle => "idle",
            Self::GovernanceViolation => "governance_violation",
            Self::CycleFailed => "cycle_failed",
        }
    }
}

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

/// What is wrong with the section.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct BadHook {
    /// Where.
    pub path: String,
    /// What.
    pub problem: String,
}

/// Reads the section: a list of hooks. `variable` looks up the environment, where secrets are.
pub fn read(section: &Value, variable: impl Fn(&str) -> Option<String>) -> Result<Vec<Hook>, BadHook> {
    let bad = |path: String, problem: &str| BadHook { path, problem: problem.to_owned() };
    let list = section.as_array().ok_or_else(|| bad("notify".into(), "must be a list of hooks"))?;
    let mut hooks = Vec::new();
    for (at, hook) in list.iter().enumerate() {
        let path = |key: &str| format!("notify[{at}].{key}");
        let object = hook.as_object().ok_or_else(|| bad(format!("notify[{at}]"), "must be an object"))?;
        let known = ["on", "url", "secret_env", "run"];
        if let Some(key) = object.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(bad(path(key), "is not known (known: on, url, secret_env, run)"));
        }
        let words = |key: &str| -> Result<Vec<String>, BadHook> {
            let wrong = || bad(path(key), "must be a list of texts");
            let list = hook[key].as_array().filter(|list| !list.is_empty()).ok_or_else(wrong)?;
            list.iter().map(|word| word.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        };
        let topic = |word: String| {
            let found = Topic::ALL.into_iter().find(|topic| topic.word() == word);
            let known = Topic::ALL.map(Topic::word).join(", ");
            found.ok_or_else(|| bad(path("on"), &format!("'{}' is none of {known}", word.escape_debug())))
        };
        let topics = words("on")?.into_iter().map(topic).collect::<Result<_, _>>()?;
        let way = match (object.get("url").map(|url| url.as_str()), object.contains_key("run")) {
            (Some(Some(url)), false) => {
                let target =
                    Target::parse(url).ok_or_else(|| bad(path("url"), "must be http://… or https://…"))?;
                let name = object.get("secret_env").and_then(Value::as_str);
                let secret = name.map(|name| variable(name).ok_or(name)).transpose();
                let secret = secret.map_err(|name| bad(path("secret_env"), &format!("{name} is not set")))?;
                Way::Web { target, secret: secret.map(Secret::from) }
            }
            (None, true) if !object.contains_key("secret_env") => Way::Run { argv: words("run")? },
            _ => {
                return Err(bad(
                    format!("notify[{at}]"),
                    "needs either url (with secret_env where wanted) or run",
                ));
            }
        };
        hooks.push(Hook { topics, way });
    }
    Ok(hooks)
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
        assert_eq!(read(&good, variable).map(|hooks| hooks.len()).ok(), Some(2));
        for (section, problem) in [
            (json!({}), "notify: must be a list of hooks"),
            (json!([1]), "notify[0]: must be an object"),
            (
                json!([{"on": ["parked"], "uri": "x"}]),
                "notify[0].uri: is not known (known: on, url, secret_env, run)",
            ),
            (json!([{"run": ["x"]}]), "notify[0].on: must be a list of texts"),
            (
                json!([{"on": ["lost"], "run": ["x"]}]),
                "notify[0].on: 'lost' is none of parked, failed, rate_limited, \
              quota, budget_spent, idle, governance_violation, cycle_failed",
            ),
            (json!([{"on": ["idle"]}]), "notify[0]: needs either url (with secret_env where wanted) or run"),
            (json!([{"on": ["idle"], "url": "file:///x"}]), "notify[0].url: must be http://… or https://…"),
            (
                json!([{"on": ["idle"], "url": "http://x", "secret_env": "NONE"}]),
                "notify[0].secret_env: NONE is not set",
            ),
        ] {
            let said = read(&section, variable).err().map(|error| error.to_string());
            assert_eq!(said.as_deref(), Some(problem));
        }
    }
}
