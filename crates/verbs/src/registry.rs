//! Every verb, once. [`visit_all`] names the types; [`Operation`] is one of them without its type, for interfaces that
//! serve all of them.

use std::pin::Pin;
use std::sync::OnceLock;

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};

use crate::agent::{DeregisterAgent, ListAgents, RegisterAgent};
use crate::attempts::ShowAttempts;
use crate::block::{BlockTask, UnblockTask};
use crate::claim::ClaimTask;
use crate::create::CreateTask;
use crate::delete::{DeleteTask, DeleteTasks};
use crate::deps::ShowDeps;
use crate::doctor::ExamineStore;
use crate::error_report::Said;
use crate::input::{Unread, read};
use crate::issues::{
    AddIssue, CloseIssue, CommentIssue, EditIssue, LabelIssue, ListIssues, ReopenIssue, ShowIssue,
};
use crate::list::ListTasks;
use crate::log::{FollowJournal, ReadJournal, TailJournal};
use crate::loops::{
    AddLoop, CancelLoop, ConfigureLoop, ListLoops, MoveLoop, PauseLoop, ReiterateLoop, ResumeLoop, ShowLoop,
    ShowScheduler, ShowTree,
};
use crate::overview::{PageTasks, ShowOverview};
use crate::peek::PeekTasks;
use crate::plan_status::CountTasks;
use crate::plan_sync::SyncPlan;
use crate::policy::{ApplyPolicy, CheckPolicy, DescribePolicy, DiffPolicy, ListPolicies, ShowPolicy};
use crate::prune::PruneStore;
use crate::queue::{
    AddEntry, DrainEntries, ExportEntries, ImportEntries, ListEntries, PauseQueue, ResumeQueue, ShowEntry,
};
use crate::renew::RenewTask;
use crate::sched::{
    CompleteLease, GrantLeases, PlanLeases, ReclaimLeases, ReleaseLease, RenewLease, ResetEntry, SetRules,
    ShowRules,
};
use crate::settle::{FailTask, FinishTask, ParkTask, ReleaseTask};
use crate::show::ShowTask;
use crate::step::{PauseTask, ResetTask, ResumeTask, UndeleteTask};
use crate::update::UpdateTask;
use crate::verb::{Access, ErrorStyle, LeaseChanges, Route, Tool, Verb, Visitor};
use crate::why::ExplainTask;
use crate::{Context, Error, Payload};

macro_rules! visit {
    ($visitor:ident: $($verb:ident)*) => { $($visitor.visit::<$verb>();)* };
}

/// Shows every verb to a visitor. Tools are listed to models in this order.
#[rustfmt::skip]
pub fn visit_all(visitor: &mut impl Visitor) {
    visit!(visitor:
        PeekTasks ClaimTask RenewTask FinishTask FailTask ReleaseTask CreateTask ExplainTask SyncPlan ShowTask
        ParkTask ResetTask PauseTask ResumeTask UndeleteTask BlockTask UnblockTask CountTasks ListTasks
        ShowDeps ShowAttempts UpdateTask DeleteTask DeleteTasks RegisterAgent ListAgents DeregisterAgent
        PlanLeases GrantLeases RenewLease CompleteLease ReleaseLease ReclaimLeases ResetEntry ShowRules SetRules
        AddEntry ListEntries ShowEntry DrainEntries ImportEntries ExportEntries PauseQueue ResumeQueue
        ShowPolicy ApplyPolicy DiffPolicy CheckPolicy ListPolicies DescribePolicy
        AddLoop ListLoops ShowTree ShowLoop ReiterateLoop CancelLoop PauseLoop ResumeLoop MoveLoop ConfigureLoop
        ShowScheduler
        AddIssue ListIssues ShowIssue CloseIssue ReopenIssue LabelIssue CommentIssue EditIssue
        ReadJournal TailJournal FollowJournal ShowOverview PageTasks ExamineStore PruneStore
    );
}

/// A verb without its type.
pub struct Operation {
    /// Its name, and its address over HTTP.
    pub route: Route,
    /// How its refusals are reported.
    pub errors: ErrorStyle,
    /// Who may call it.
    pub access: Access,
    /// Whether repeating a call changes nothing more.
    pub is_idempotent: bool,
    /// Whether the caller may name the lease it speaks for.
    pub names_lease: bool,
    /// Whether it publishes a policy.
    pub publishes: bool,
    /// The MCP tool, where it is offered to models.
    pub tool: Option<Tool>,
    /// One line.
    pub about: String,
    /// The JSON Schemas of its fields.
    pub fields: Map<String, Value>,
    /// The fields that must be given.
    pub required: Vec<String>,
    /// Schemas that an input must satisfy one of, where its fields depend on each other.
    pub alternatives: Option<Value>,
    /// Reads the input, carries it out, and writes the payload.
    pub run: for<'a> fn(&'a Context, &'a str) -> Running<'a>,
    /// Describes the payload.
    pub payload: fn(&mut SchemaGenerator) -> Schema,
}

/// An operation under way.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<Done, Failure>> + Send + 'a>>;

/// The outcome of an operation.
pub struct Done {
    /// The payload, as the command line prints it.
    pub text: String,
    /// What it did to leases.
    pub leases: LeaseChanges,
}

/// Why an operation has no payload.
pub enum Failure {
    /// The input is not one.
    Shape(serde_json::Error),
    /// It was refused, or the store failed.
    Verb(Error),
}

impl From<Unread> for Failure {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Shape(error) => Self::Shape(error),
            Unread::Refused(error) => Self::Verb(error),
        }
    }
}

impl Operation {
    /// Every operation.
    pub fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<Operation>> = OnceLock::new();
        ALL.get_or_init(|| {
            let mut list = Listed(Vec::new());
            visit_all(&mut list);
            list.0
        })
    }

    /// The operation of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().iter().find(|operation| operation.route.name == name)
    }

    /// An error in its style.
    pub fn report(&self, error: &Error) -> Said {
        match self.errors {
            ErrorStyle::WithHint => Said::of(error),
            ErrorStyle::OneLine => Said::in_one_line(error),
        }
    }

    /// How messages call a field that is missing.
    pub fn title_of(&self, field: &str) -> Option<&str> {
        self.fields.get(field)?.get("title")?.as_str()
    }
}

struct Listed(Vec<Operation>);

impl Visitor for Listed {
    fn visit<V: Verb>(&mut self) {
        let schema = schemars::schema_for!(V);
        let about = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        self.0.push(Operation {
            route: V::ROUTE,
            errors: V::ERRORS,
            access: V::ACCESS,
            is_idempotent: V::IS_IDEMPOTENT,
            names_lease: V::NAMES_LEASE,
            publishes: V::PUBLISHES,
            tool: V::TOOL,
            about: about.lines().next().unwrap_or_default().to_owned(),
            fields: schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default(),
            required: required.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            alternatives: schema.get("anyOf").cloned(),
            run: run::<V>,
            payload: |generator| generator.subschema_for::<V::Payload>(),
        });
    }
}

fn run<'a, V: Verb>(cx: &'a Context, input: &'a str) -> Running<'a> {
    Box::pin(async move {
        let input: V = read(input)?;
        let payload = input.run(cx).await.map_err(Failure::Verb)?;
        let leases = V::leases(&payload);
        Ok(Done { text: Payload::new(payload).to_text(), leases })
    })
}
