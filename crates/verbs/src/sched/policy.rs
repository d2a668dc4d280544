//! `rota sched policy show` and `set`: the rules of a queue, flat.

use async_trait::async_trait;
use rota_core::Json;
use rota_core::policy::FlatPolicy;
use rota_store::Store;
use rota_store::intents::policy::{CurrentPolicy, EditRules};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, bad_value};
use crate::input::{QueueName, Rule, not_a_number};
use crate::queue::runs;
use crate::verb::{ErrorStyle, Route, Tool, Verb};
use crate::{Result, Word};

/// The rules and where they come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct SchedPolicy {
    pub policy: FlatPolicy,
    pub source: Word,
}

/// Show the rules of a queue
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowRules {
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "runs")]
    #[serde(default = "runs")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for ShowRules {
    type Payload = SchedPolicy;
    const ROUTE: Route = Route::get("sched policy show", "/rules");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> = Some(Tool::extra(
        "Show the rules",
        "Show the rules of a queue: how many leases at once, how many attempts, how long a lease and a \
         backoff last. Changes nothing.",
    ));

    /// The source is `file` once anything was published.
    async fn run(self, cx: &Context) -> Result<SchedPolicy> {
        let (published, history) = cx.store.perform(&CurrentPolicy { call: cx.call() }).await?;
        let source = if history.is_empty() { "default" } else { "file" };
        Ok(SchedPolicy { policy: published.policy.flat(&self.queue.into_inner()), source: source.into() })
    }
}

/// Change rules of a queue and publish them
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetRules {
    /// Leases held at once
    #[arg(long = "maxConcurrent", value_name = "N", allow_negative_numbers = true)]
    pub max_concurrent: Option<Rule>,
    /// Counted attempts after which an entry parks
    #[arg(long = "maxAttempts", value_name = "N", allow_negative_numbers = true)]
    pub max_attempts: Option<Rule>,
    /// How long a lease lasts
    #[arg(long = "leaseTtlMs", value_name = "N", allow_negative_numbers = true)]
    pub lease_ttl_ms: Option<Rule>,
    /// The first wait after a failure
    #[arg(long = "backoffBaseMs", value_name = "N", allow_negative_numbers = true)]
    pub backoff_base_ms: Option<Rule>,
    /// What each further wait is multiplied by
    #[arg(long = "backoffFactor", value_name = "N", allow_negative_numbers = true)]
    pub backoff_factor: Option<Rule>,
    /// The longest wait
    #[arg(long = "backoffCapMs", value_name = "N", allow_negative_numbers = true)]
    pub backoff_cap_ms: Option<Rule>,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "runs")]
    #[serde(default = "runs")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for SetRules {
    type Payload = SchedPolicy;
    const ROUTE: Route = Route::patch("sched policy set", "/rules");
    const IS_IDEMPOTENT: bool = true;
    const PUBLISHES: bool = true;
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> = Some(Tool::extra(
        "Change the rules",
        "Change rules of a queue and publish them for everybody, at once. What is left out stays as it is.",
    ).destructive());

    async fn run(self, cx: &Context) -> Result<SchedPolicy> {
        let (flat, queue) = (self.flat()?, self.queue.into_inner());
        let published = cx.store.perform(&EditRules { call: cx.call(), queue: queue.clone(), flat }).await?;
        Ok(SchedPolicy { policy: published.policy.flat(&queue), source: "file".into() })
    }
}

impl ShowRules {
    /// Those of queue `runs`.
    pub fn of_runs() -> Self {
        Self { queue: runs() }
    }
}

impl SetRules {
    /// The flat document that names what is given.
    pub fn flat(&self) -> Result<String> {
        let given = [
            ("maxConcurrent", &self.max_concurrent),
            ("maxAttempts", &self.max_attempts),
            ("leaseTtlMs", &self.lease_ttl_ms),
            ("backoffBaseMs", &self.backoff_base_ms),
            ("backoffFactor", &self.backoff_factor),
            ("backoffCapMs", &self.backoff_cap_ms),
        ];
        let mut fields = Vec::new();
        for (rule, value) in given {
            let Some(text) = value.clone().map(Rule::into_inner) else { continue };
            let number = Json::parse(&text).ok().filter(|json| {
                // A number of any size; the policy says which it takes.
                serde_json::from_str::<serde_json::Number>(json.as_str()).is_ok()
            });
            let number = number.ok_or_else(|| bad_value(not_a_number(rule, &text)))?;
            fields.push(format!("\"{rule}\":{}", number.as_str()));
        }
        if fields.is_empty() {
            return Err(bad_value("missing a rule to set (e.g. --maxConcurrent 4)".into()).into());
        }
        Ok(format!("{{{}}}", fields.join(",")))
    }
}
