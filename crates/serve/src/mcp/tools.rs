//! The tools: every verb that is offered to models, with its own fields as arguments.

use std::sync::OnceLock;

use rota_core::text::nearest;
use rota_core::{LeaseId, Refusal};
use rota_verbs::registry::{Done, Failure, Operation};
use rota_verbs::verb::{Method, Tool as Offered, ToolCaller};
use rota_verbs::{Claimant, Context, Error, Result, Said, checked_name, input, mirror, settle};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::arguments::{Given, non_null};
use super::session::Session;

/// Which tools are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolSet {
    /// What an agent needs to work through a backlog.
    Core,
    /// Everything.
    All,
}

/// One tool.
pub struct Tool {
    /// The CLI's words, joined by underscores.
    pub name: String,
    /// The verb.
    pub operation: &'static Operation,
    /// What models are told.
    pub offered: Offered,
}

/// Every tool, in the order of the registry.
fn all() -> &'static [Tool] {
    static ALL: OnceLock<Vec<Tool>> = OnceLock::new();
    ALL.get_or_init(|| {
        let tool = |operation: &'static Operation| {
            let name = format!("rota_{}", operation.route.name.replace([' ', '-'], "_"));
            operation.tool.map(|offered| Tool { name, operation, offered })
        };
        Operation::all().iter().filter_map(tool).collect()
    })
}

impl ToolSet {
    /// Its tools, the core ones first.
    pub fn tools(self) -> impl Iterator<Item = &'static Tool> {
        let core = all().iter().filter(|tool| tool.offered.is_core);
        let extra = all().iter().filter(move |tool| self == Self::All && !tool.offered.is_core);
        core.chain(extra)
    }

    /// The tool of a name, or why there is none.
    pub fn find(self, name: &str) -> std::result::Result<&'static Tool, String> {
        if let Some(tool) = self.tools().find(|tool| tool.name == name) {
            return Ok(tool);
        }
        let shown = rota_core::text::escaped(name);
        if Self::All.tools().any(|tool| tool.name == name) {
            return Err(format!("tool '{shown}' is not offered: start the server with --tools all"));
        }
        let hint = nearest(name, self.tools().map(|tool| tool.name.as_str()));
        let hint = hint.map_or(String::new(), |known| format!(", did you mean '{known}'?"));
        Err(format!("unknown tool '{shown}'{hint}"))
    }
}

impl Tool {
    /// Whether it changes nothing.
    pub fn reads(&self) -> bool {
        self.operation.route.method == Method::Get
    }

    /// Everything it takes: the fields of the verb, and what a call may say of its caller and scope. The time is only for
    /// looking, unless the server allows it for changes too.
    pub fn arguments(&self, allow_now: bool) -> Vec<(String, Value)> {
        let mut arguments: Vec<(String, Value)> =
            self.operation.fields.iter().map(|(name, schema)| (name.clone(), non_null(schema))).collect();
        let mut add = |name: &str, description: &str| {
            arguments.push((name.to_owned(), json!({"type": "string", "description": description})));
        };
        if self.offered.caller != ToolCaller::Anonymous {
            add(
                "agent",
                "Your name, the same in every call. Leave out where the connection is a session: it has a name of its own.",
            );
        }
        if self.offered.caller == ToolCaller::Holder {
            add(
                "leaseId",
                "The leaseId that the claim returned: proves that the task is still yours. Leave out for the lease that \
                 this session holds.",
            );
        }
        add("scope", "Namespace of tasks, queues and policy. Leave out for the server's own.");
        if allow_now || self.reads() {
            add("now", "Decide as if it were this time (RFC 3339). Leave out for the real time.");
        }
        arguments
    }

    /// The JSON Schema of its arguments.
    pub fn input_schema(&self, allow_now: bool) -> Map<String, Value> {
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), Map::from_iter(self.arguments(allow_now)).into());
        if !self.operation.required.is_empty() {
            schema.insert("required".into(), self.operation.required.clone().into());
        }
        schema.insert("additionalProperties".into(), false.into());
        schema
    }

    /// The JSON Schema of its answers. Clients check every answer against it, so it is as open as the payloads: more keys
    /// may come.
    pub fn output_schema(&self) -> Map<String, Value> {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        let mut schema = (self.operation.payload)(&mut settings.into_generator()).to_value();
        without_prose(&mut schema);
        schema["properties"]["schemaVersion"] = json!({"type": "integer"});
        if let Some(required) = schema["required"].as_array_mut() {
            required.push("schemaVersion".into());
        }
        match schema {
            Value::Object(schema) => schema,
            _ => unreachable!("a payload is an object"),
        }
    }

    /// Calls the verb: the bytes that the command line prints, or what it says instead.
    pub async fn call(
        &self,
        settings: &Settings,
        session: &Session,
        passed: Option<Map<String, Value>>,
        cancelled: CancellationToken,
    ) -> std::result::Result<String, Said> {
        let report = |error: Error| self.operation.report(&error);
        let given = Given::read(self, settings.context.allow_future, passed).map_err(report)?;
        if let Some(remote) = &settings.remote {
            return remote.call(self.operation, given).await;
        }
        self.run(settings, session, &given, cancelled).await.map_err(report)
    }

    async fn run(
        &self,
        settings: &Settings,
        session: &Session,
        given: &Given,
        cancelled: CancellationToken,
    ) -> Result<String> {
        let caller = context(&settings.context, session, given)?;
        let cx = match self.offered.caller {
            ToolCaller::Holder => holder(&caller, session, given)?,
            ToolCaller::Anonymous | ToolCaller::Agent => caller.clone(),
        };
        let done = (self.operation.run)(&cx, &given.input()).await.map_err(|failure| match failure {
            Failure::Shape(error) => Refusal::BadValue { problem: error.to_string() }.into(),
            Failure::Verb(error) => error,
        })?;
        if self.operation.publishes {
            mirror::write(&cx, &settings.policy_file).await?;
        }
        remember(&caller, session, &done, &cancelled).await;
        Ok(done.text)
    }
}

/// Notes in the session what a call did to leases. Leases that were granted to a caller that has gone are released.
async fn remember(cx: &Context, session: &Session, done: &Done, cancelled: &CancellationToken) {
    if let Some(task) = &done.leases.ended {
        session.forget(&cx.scope, task.as_str());
    }
    if let Some(lease) = &done.leases.renewed {
        session.extend(&cx.scope, lease.id.task.as_str(), lease.lasts_ms);
    }
    for lease in &done.leases.granted {
        let task = lease.id.task.as_str();
        let is_kept = session.hold(cx, task, &lease.id.to_string(), lease.lasts_ms);
        if !is_kept || cancelled.is_cancelled() {
            session.forget(&cx.scope, task);
            // A lease that cannot be released expires.
            drop(settle::release_granted(cx, lease).await);
        }
    }
}

/// The server's context, in the name of the session's agent, but for what this call names.
fn context(server: &Context, session: &Session, given: &Given) -> Result<Context> {
    let mut cx = Context { agent: session.agent().map(str::to_owned), ..server.clone() };
    if let Some(scope) = checked_name("scope", given.option("scope"))? {
        cx.scope = scope;
    }
    if let Some(now) = given.option("now") {
        cx.now = Some(input::now(&now)?);
    }
    if let Some(agent) = given.option("agent") {
        cx.agent = checked_name("agent", Some(agent))?;
    }
    cx.claimant = cx.agent.clone().map_or(Claimant::Missing, Claimant::Named);
    Ok(cx)
}

/// The context of a call that ends or extends a lease. A call that names neither lease nor agent means the lease that its
/// session holds; without a session it must name the lease.
fn holder(cx: &Context, session: &Session, given: &Given) -> Result<Context> {
    let named = given.option("leaseId").filter(|lease| !lease.is_empty());
    let agent = given.option("agent");
    if named.is_none() && session.agent().is_none() {
        let problem = "missing leaseId: without a session a call must name the lease that it ends or extends";
        return Err(Refusal::BadValue { problem: problem.to_owned() }.into());
    }
    if named.is_some() || agent.is_some() {
        // A lease id speaks for itself, whoever it was granted to.
        let agent = if agent.is_some() { cx.agent.clone() } else { None };
        return Ok(Context { lease: named, agent, ..cx.clone() });
    }
    let id = given.text("id").unwrap_or_default();
    Ok(match session.held(&cx.scope, &id) {
        Some(held) => Context { lease: Some(held.lease), agent: held.agent, ..cx.clone() },
        None if is_ambient(cx, &id) => Context { agent: None, ..cx.clone() },
        None => cx.clone(),
    })
}

/// Whether the server was started under the lease of this task.
fn is_ambient(cx: &Context, id: &str) -> bool {
    let lease = cx.ambient_lease.as_deref().and_then(|lease| LeaseId::parse(lease).ok());
    lease.is_some_and(|lease| lease.task.as_str() == id)
}

/// Removes descriptions: a model pays for each word of a schema, and the keys of an answer speak for themselves.
fn without_prose(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            if let Some(Value::Object(properties)) = map.get_mut("properties") {
                // Some clients take no `true` for a schema.
                properties.values_mut().filter(|schema| **schema == true).for_each(|any| *any = json!({}));
            }
            map.values_mut().for_each(without_prose);
        }
        Value::Array(list) => list.iter_mut().for_each(without_prose),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of the contract.
    #[test]
    fn the_names_are_those_of_the_contract() {
        let names = |set: ToolSet| set.tools().map(|tool| tool.name.as_str()).collect::<Vec<_>>();
        let core = [
            "rota_task_peek",
            "rota_task_claim",
            "rota_task_renew",
            "rota_task_done",
            "rota_task_fail",
            "rota_task_release",
            "rota_task_create",
            "rota_why",
        ];
        let mut all = core.to_vec();
        all.extend([
            "rota_task_plan_sync",
            "rota_task_show",
            "rota_sched_plan",
            "rota_sched_lease",
            "rota_sched_renew",
            "rota_sched_complete",
            "rota_sched_release",
            "rota_sched_reclaim",
            "rota_sched_reset",
            "rota_sched_policy_show",
            "rota_sched_policy_set",
            "rota_queue_add",
            "rota_queue_list",
            "rota_queue_show",
            "rota_queue_drain",
        ]);
        assert_eq!(names(ToolSet::Core), core);
        assert_eq!(names(ToolSet::All), all);
    }

    #[test]
    fn a_tool_that_is_not_there() {
        let said = |set: ToolSet, name: &str| set.find(name).err().unwrap_or_default();
        assert_eq!(said(ToolSet::Core, "rota_why"), "");
        assert_eq!(
            said(ToolSet::Core, "rota_task_clam"),
            "unknown tool 'rota_task_clam', did you mean 'rota_task_claim'?"
        );
        assert_eq!(
            said(ToolSet::Core, "rota_sched_plan"),
            "tool 'rota_sched_plan' is not offered: start the server with --tools all"
        );
        assert_eq!(said(ToolSet::All, "make_coffee"), "unknown tool 'make_coffee'");
    }

    /// The description of a key named `description` stays a schema.
    #[test]
    fn answers_are_described() {
        let claim = ToolSet::Core.find("rota_task_claim").unwrap_or_else(|problem| panic!("{problem}"));
        let schema = Value::Object(claim.output_schema());
        assert_eq!(schema["type"], "object");
        assert!(schema["properties"]["description"].is_object(), "{schema}");
        assert!(schema["properties"]["blockerResults"].is_object(), "{schema}");
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        assert!(required.contains(&json!("schemaVersion")) && required.contains(&json!("id")), "{schema}");
    }
}
