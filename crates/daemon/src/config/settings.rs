//! Every setting that bears on a kind of loops, and where it comes from.

use rota_core::Policy;
use rota_core::shape::decimal;
use serde_json::{Value, json};

use super::policy_keys::POLICY_KEYS;
use super::{Config, LoopKind, Program};

pub use rota_verbs::loops::Setting;

const DEFAULT: &str = "default";
const FILE: &str = "rota.yml";
const POLICY: &str = "policy";

impl Config {
    /// What bears on loops of a kind under a policy in force.
    pub fn settings(&self, kind: &str, policy: &Policy) -> Vec<Setting> {
        let mut settings = self.of_kind(kind);
        settings.extend(self.of_daemon());
        settings.extend(self.of_policy(kind, policy));
        settings
    }

    fn said(&self, name: String, value: Value) -> Setting {
        let from = if self.named.contains(&name) { FILE } else { DEFAULT };
        Setting { name, value, from: from.into(), file: None }
    }

    fn of_kind(&self, kind: &str) -> Vec<Setting> {
        let LoopKind {
            run,
            validate,
            max_iterations,
            timeout,
            worktree,
            keep_worktree_on_failure,
            uses_api,
            env,
            pass_env,
            commits_are_optional,
        } = self.kind(kind);
        let values = [
            ("run", program(run)),
            ("validate", program(validate)),
            ("max_iterations", json!(max_iterations)),
            ("timeout_secs", timeout.map_or(json!(false), |timeout| json!(timeout.as_secs()))),
            ("worktree", json!(worktree)),
            ("keep_worktree_on_failure", json!(keep_worktree_on_failure)),
            ("uses_api", uses_api.map_or(json!(false), |upstream| json!(upstream))),
            // Only the names: a value may be a secret.
            ("env", json!(env.into_keys().collect::<Vec<_>>())),
            ("pass_env", json!(pass_env)),
            ("commits", json!(if commits_are_optional { "optional" } else { "required" })),
        ];
        values.map(|(key, value)| self.said(format!("loops.{kind}.{key}"), value)).into()
    }

    fn of_daemon(&self) -> Vec<Setting> {
        let milliseconds = u64::try_from(self.poll_interval.as_millis()).unwrap_or(u64::MAX);
        let values = [
            ("scheduler.poll_interval_secs", number(milliseconds)),
            ("concurrency.max_worktrees", json!(self.max_worktrees)),
            ("disk.min_free_gb", number(self.disk_min_free_bytes / 1_000_000)),
            ("shared_folder", json!(self.shared_folder)),
        ];
        values.map(|(name, value)| self.said(name.to_owned(), value)).into()
    }

    fn of_policy(&self, kind: &str, policy: &Policy) -> Vec<Setting> {
        let defaults = Policy::default();
        let base = |policy: &Policy| {
            let score = policy.queue("loops").score.as_ref();
            score.map_or(json!(false), |score| json!(score.base.get(kind).unwrap_or(&score.base_other)))
        };
        let ceiling = |policy: &Policy| {
            policy.queue("loops").per_kind.get(kind).map_or(json!(false), |ceiling| json!(ceiling))
        };
        let named =
            self.policy.per_kind().map(|kinds| kinds.get(kind).map_or(json!(false), |kind| json!(kind)));
        let mut settings = vec![
            decided(
                format!("scheduler.priority.{kind}"),
                base(policy),
                base(&defaults),
                self.policy.base(kind).map(|points| json!(points)),
            ),
            decided(format!("concurrency.per_type.{kind}"), ceiling(policy), ceiling(&defaults), named),
        ];
        settings.extend(POLICY_KEYS.iter().map(|key| {
            let (value, default) = (key.value_in(policy), key.value_in(&defaults));
            decided(key.path.to_owned(), value, default, self.policy.value(key).cloned())
        }));
        settings
    }
}

/// The published policy decides; who said it first is told.
fn decided(name: String, value: Value, default: Value, file: Option<Value>) -> Setting {
    match file {
        Some(file) if file == value => Setting { name, value, from: FILE.into(), file: None },
        file => {
            let from = if value == default { DEFAULT } else { POLICY };
            Setting { name, value, from: from.into(), file }
        }
    }
}

fn program(program: Option<Program>) -> Value {
    match program {
        None => json!(false),
        Some(Program::Argv(argv)) => json!(argv),
        Some(Program::Shell(line)) => json!(line),
    }
}

/// Thousandths as a number of JSON.
fn number(thousandths: u64) -> Value {
    serde_json::from_str(&decimal(thousandths)).unwrap_or(Value::Null)
}
