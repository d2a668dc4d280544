//! Texts, lists and times that verbs take.

use std::path::Component;
use std::str::FromStr;

use rota_core::id::check_name;
use rota_core::text::escaped;
use rota_core::{Front, Json, Status, TaskId, UnixMillis, limits};
use rota_store::Cursor;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{BadInput, deserialize_text, refuse};
use crate::context::{bad_value, checked_text};
use crate::{Error, Result};

/// No control characters, and no dash in front.
const NAME: &str = r"^[^\-\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$";
/// The same, or nothing.
const NAME_OR_NONE: &str = r"^([^\-\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*)?$";
/// A task and the number of a grant.
pub const LEASE: &str =
    r"^lease-[^\-\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*-[1-9][0-9]{0,17}$";
/// A path that stays below its folder.
const PATH: &str = r"^[A-Za-z0-9_]+([./\-][A-Za-z0-9_]+)*$";
const CURSOR: &str = "^[0-9]{1,18}-[0-9]{1,18}$";

type Parsed<T> = std::result::Result<T, BadInput>;

/// Declares values that JSON has as strings: what is kept of each, how it is parsed, and its schema. The schema's title is
/// how a message calls a missing one.
macro_rules! texts {
    ($(
        $(#[$doc:meta])*
        $name:ident($inner:ty), parse |$text:ident| $parse:expr, write |$value:ident| $write:expr, schema $schema:tt;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name($inner);

        impl $name {
            /// The value.
            pub fn into_inner(self) -> $inner {
                self.0
            }
        }

        impl FromStr for $name {
            type Err = BadInput;

            fn from_str($text: &str) -> Parsed<Self> {
                let parse = || -> Parsed<$inner> { $parse };
                parse().map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                let $value = &self.0;
                serializer.serialize_str($write.as_ref())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                deserialize_text(deserializer)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

/// Declares free words that may be left empty, which is the same as not given.
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident $field:literal;)*) => {
        texts! {$(
            $(#[$doc])*
            $name(Option<String>), parse |text| named($field, text),
                write |name| name.as_deref().unwrap_or_default(),
                schema {"type": "string", "pattern": NAME_OR_NONE, "maxLength": limits::NAME_BYTES};
        )*}
    };
}

names! {
    /// The category of a task.
    Category "category";
    /// The spec that a task belongs to.
    SpecRef "spec";
    /// A free reference.
    Reference "ref";
    /// The run that an entry belongs to.
    RunId "runId";
    /// The app that an entry runs.
    App "app";
    /// The workflow that an entry runs.
    Workflow "workflow";
    /// A host.
    Host "host";
}

texts! {
    /// The id of a task.
    Id(TaskId), parse |text| Ok(TaskId::new(text)?), write |id| id.as_str(),
        schema {"title": "task ID", "type": "string", "pattern": NAME, "maxLength": limits::ID_BYTES};
    /// The id of a task; an empty one is the same as not given.
    IdOrNone(Option<TaskId>), parse |text| Ok((!text.is_empty()).then(|| TaskId::new(text)).transpose()?),
        write |id| id.as_ref().map_or("", TaskId::as_str),
        schema {"type": "string", "pattern": NAME_OR_NONE, "maxLength": limits::ID_BYTES};
    /// The id of an entry. One that cannot be is not found.
    EntryId(String), parse |text| Ok(text.to_owned()), write |id| id,
        schema {"title": "entry ID", "type": "string", "pattern": NAME, "maxLength": limits::ID_BYTES};
    /// The id of a lease. One that cannot be is not found.
    LeaseName(String), parse |text| Ok(text.to_owned()), write |lease| lease,
        schema {"title": "lease ID", "type": "string", "pattern": LEASE, "maxLength": limits::ID_BYTES};
    /// The id of an agent.
    AgentId(String), parse |text| given("agent ID", text), write |id| id,
        schema {"title": "agent ID", "type": "string"};
    /// Why a task is parked.
    Reason(String), parse |text| reason(text), write |reason| reason, schema {"type": "string", "minLength": 1};
    /// The title of a task.
    Title(String), parse |text| titled(text), write |title| title,
        schema {"title": "task title", "type": "string", "pattern": r"\S", "maxLength": limits::TITLE_BYTES};
    /// The title of a task; an empty one is the same as not given.
    TitleOrNone(Option<String>), parse |text| (!text.is_empty()).then(|| titled(text)).transpose(),
        write |title| title.as_deref().unwrap_or_default(),
        schema {"type": "string", "pattern": r"^$|\S", "maxLength": limits::TITLE_BYTES};
    /// The name of a queue.
    QueueName(String), parse |text| { check_name("queue name", text)?; Ok(text.to_owned()) }, write |queue| queue,
        schema {"title": "queue", "type": "string", "pattern": NAME, "maxLength": limits::NAME_BYTES};
    /// The kind of a loop.
    Kind(String), parse |text| named("kind", text)?.ok_or_else(|| bad_value("kind is empty".into()).into()),
        write |kind| kind, schema {"type": "string", "pattern": NAME, "maxLength": limits::NAME_BYTES};
    /// A label of an issue.
    Label(String), parse |text| named("label", text)?.ok_or_else(|| bad_value("label is empty".into()).into()),
        write |label| label, schema {"type": "string", "pattern": NAME, "maxLength": limits::NAME_BYTES};
    /// The path of an artifact, below the folder it counts from.
    Path(String), parse |text| below(text), write |path| path,
        schema {"type": "string", "pattern": PATH, "maxLength": limits::NAME_BYTES};
    /// The state of a task.
    TaskStatus(Status), parse |text| status(text, Front::Task), write |status| status.word(),
        schema {"type": "string", "pattern": format!("^({})$", words(Front::Task))};
    /// States of tasks, comma-separated.
    TaskStatuses(Vec<Status>), parse |text| statuses(text, Front::Task), write |list| joined(list, Front::Task),
        schema {"type": "string", "pattern": format!("^({0})(,({0}))*$", words(Front::Task))};
    /// States of loops, comma-separated.
    LoopStatuses(Vec<Status>), parse |text| statuses(text, Front::Loop), write |list| joined(list, Front::Loop),
        schema {"type": "string", "pattern": format!("^({0})(,({0}))*$", words(Front::Loop))};
    /// The state of an entry.
    EntryStatus(String), parse |text| entry_status(text), write |word| word,
        schema {"type": "string", "pattern": format!("^({})$", ENTRY_STATUSES.join("|"))};
    /// The number of an issue: `3` or `#3`.
    IssueNumber(u64), parse |text| issue_number(text), write |number| number.to_string(),
        schema {"title": "issue number", "type": "string", "pattern": "^#?[1-9][0-9]{0,17}$"};
    /// A place in the journal.
    JournalCursor(Cursor),
        parse |text| text.parse().map_err(|error: rota_store::BadCursor| bad_value(error.to_string()).into()),
        write |cursor| cursor.to_string(), schema {"type": "string", "pattern": CURSOR};
    /// A time that a task waits for.
    Time(UnixMillis), parse |text| text.parse().map_err(|error| BadInput::Malformed(format!("--after: {error}"))),
        write |time| time.to_string(), schema {"type": "string", "format": "date-time"};
}

impl From<TaskId> for Id {
    fn from(id: TaskId) -> Self {
        Self(id)
    }
}

impl From<Vec<Status>> for TaskStatuses {
    fn from(statuses: Vec<Status>) -> Self {
        Self(statuses)
    }
}

impl From<Vec<Status>> for LoopStatuses {
    fn from(statuses: Vec<Status>) -> Self {
        Self(statuses)
    }
}

impl From<Cursor> for JournalCursor {
    fn from(cursor: Cursor) -> Self {
        Self(cursor)
    }
}

// Not `From<String>`: clap would prefer it to `FromStr`, and check nothing.
impl QueueName {
    /// A name that was checked before.
    pub fn known(name: &str) -> Self {
        Self(name.to_owned())
    }
}

fn refused(error: Error) -> BadInput {
    match error {
        Error::Refused(refusal) => refusal.into(),
        Error::Fault(fault) => BadInput::Malformed(fault.to_string()),
    }
}

fn given(what: &str, text: &str) -> Parsed<String> {
    if text.is_empty() {
        return Err(BadInput::Malformed(format!("missing {what}")));
    }
    Ok(text.to_owned())
}

fn named(field: &'static str, text: &str) -> Parsed<Option<String>> {
    if text.is_empty() {
        return Ok(None);
    }
    check_name(field, text)?;
    Ok(Some(text.to_owned()))
}

fn titled(title: &str) -> Parsed<String> {
    if title.trim().is_empty() {
        return Err(bad_value("title is empty".into()).into());
    }
    checked_text("title", title, limits::TITLE_BYTES).map_err(refused)?;
    Ok(title.to_owned())
}

fn reason(text: &str) -> Parsed<String> {
    if text.is_empty() {
        return Err(BadInput::Malformed("missing --reason".to_owned()));
    }
    checked_text("reason", text, limits::TEXT_BYTES).map_err(refused)?;
    Ok(text.to_owned())
}

fn below(path: &str) -> Parsed<String> {
    checked_text("--triggered-by", path, limits::NAME_BYTES).map_err(refused)?;
    let plain = |step| matches!(step, Component::Normal(_) | Component::CurDir);
    let mut steps = std::path::Path::new(path).components();
    if path.is_empty() || path.contains(char::is_control) || !steps.all(plain) {
        let given = escaped(path);
        let problem = format!("--triggered-by must be a relative path without '..', got: {given}");
        return Err(bad_value(problem).into());
    }
    Ok(path.to_owned())
}

fn words(front: Front) -> String {
    Status::ALL.map(|status| status.word_for(front, false)).join("|")
}

fn status(word: &str, front: Front) -> Parsed<Status> {
    let found = Status::ALL.into_iter().find(|status| status.word_for(front, false) == word);
    let known = || Status::ALL.map(|status| status.word_for(front, false)).join(", ");
    found.ok_or_else(|| bad_value(format!("unknown status '{}' (known: {})", escaped(word), known())).into())
}

fn statuses(list: &str, front: Front) -> Parsed<Vec<Status>> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    let statuses = words.map(|word| status(word, front)).collect::<Parsed<Vec<Status>>>()?;
    if statuses.is_empty() {
        return Err(bad_value("--status is empty".into()).into());
    }
    Ok(statuses)
}

fn joined(statuses: &[Status], front: Front) -> String {
    statuses.iter().map(|status| status.word_for(front, false)).collect::<Vec<_>>().join(",")
}

const ENTRY_STATUSES: [&str; 9] =
    ["pending", "ready", "leased", "paused", "drained", "failed", "parked", "invalidated", "deleted"];

fn entry_status(word: &str) -> Parsed<String> {
    if ENTRY_STATUSES.contains(&word) {
        return Ok(word.to_owned());
    }
    let known = ENTRY_STATUSES.join(", ");
    Err(bad_value(format!("Unknown --status \"{}\": expected one of {known}", escaped(word))).into())
}

fn issue_number(text: &str) -> Parsed<u64> {
    let number = super::digits(text.strip_prefix('#').unwrap_or(text)).filter(|number| *number > 0);
    number.ok_or_else(|| {
        bad_value(format!("the number of an issue counts from 1, got: {}", escaped(text))).into()
    })
}

/// Ids of tasks: comma-separated on the command line, a list in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Ids(pub Vec<Id>);

impl FromStr for Ids {
    type Err = BadInput;

    fn from_str(list: &str) -> Parsed<Self> {
        let ids = list.split(',').map(str::trim).filter(|part| !part.is_empty());
        ids.map(str::parse).collect::<Parsed<_>>().map(Self)
    }
}

/// The steps of a task: a JSON array of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Steps(Vec<String>);

impl Steps {
    fn checked(steps: Vec<String>) -> Parsed<Self> {
        if steps.len() > limits::STEPS {
            let problem = format!("{} steps, at most {} are allowed", steps.len(), limits::STEPS);
            return Err(bad_value(problem).into());
        }
        let step = |step: &String| checked_text("step", step, limits::TEXT_BYTES);
        steps.iter().try_for_each(step).map_err(refused)?;
        Ok(Self(steps))
    }

    /// The steps.
    pub fn into_inner(self) -> Vec<String> {
        self.0
    }
}

impl FromStr for Steps {
    type Err = BadInput;

    fn from_str(text: &str) -> Parsed<Self> {
        let problem = |error| format!("-s (steps) must be a JSON array of texts: {error}");
        Self::checked(serde_json::from_str(text).map_err(|error| BadInput::Malformed(problem(error)))?)
    }
}

impl<'de> Deserialize<'de> for Steps {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Self::checked(Vec::deserialize(deserializer)?).map_err(refuse)
    }
}

/// The result of a task: a JSON object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ResultObject(Json);

impl ResultObject {
    fn checked(json: Json) -> Parsed<Self> {
        checked_text("result", json.as_str(), limits::TEXT_BYTES).map_err(refused)?;
        if !json.is_object() {
            return Err(bad_value("result JSON must be an object".into()).into());
        }
        Ok(Self(json))
    }

    /// The object.
    pub fn into_inner(self) -> Json {
        self.0
    }
}

impl FromStr for ResultObject {
    type Err = BadInput;

    fn from_str(text: &str) -> Parsed<Self> {
        checked_text("result", text, limits::TEXT_BYTES).map_err(refused)?;
        let json = Json::parse(text).map_err(|error| bad_value(format!("--result is not JSON: {error}")))?;
        Self::checked(json)
    }
}

impl<'de> Deserialize<'de> for ResultObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Self::checked(Json::deserialize(deserializer)?).map_err(refuse)
    }
}

impl JsonSchema for ResultObject {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ResultObject".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let commit = serde_json::json!({"type": ["string", "number", "boolean", "object", "array"]});
        json_schema!({"type": "object", "required": ["commit"], "properties": {"commit": commit}})
    }
}

/// A rule of a queue as it was given: a number of any size, which the policy accepts or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule(String);

impl Rule {
    /// As it would be typed.
    pub fn into_inner(self) -> String {
        self.0
    }
}

impl FromStr for Rule {
    type Err = BadInput;

    fn from_str(text: &str) -> Parsed<Self> {
        Ok(Self(text.to_owned()))
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match Json::parse(&self.0) {
            Ok(json) => json.serialize(serializer),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        let text = serde_json::from_str(json.as_str()).unwrap_or_else(|_| json.as_str().to_owned());
        if text.contains('\0') {
            return Err(D::Error::custom("a rule contains a NUL character"));
        }
        Ok(Self(text))
    }
}

impl JsonSchema for Rule {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Rule".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number"})
    }
}

/// Checks a description; an empty one is none.
pub(crate) fn description(text: Option<String>) -> Result<Option<String>> {
    if let Some(text) = &text {
        checked_text("description", text, limits::TEXT_BYTES)?;
    }
    Ok(text.filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below() {
        for path in ["a", "artifacts/spec.md", "./a", "a..b/c"] {
            assert_eq!(path.parse::<Path>().ok(), Some(Path(path.to_owned())));
        }
        for path in ["", "/a", "..", "a/../b", "a\nb"] {
            assert!(path.parse::<Path>().is_err(), "{path}");
        }
    }

    #[test]
    fn lists_of_states_are_written_as_they_are_read() {
        let read: LoopStatuses = "pending, running".parse().unwrap_or_else(|bad| panic!("{bad}"));
        assert_eq!(serde_json::to_string(&read).ok().as_deref(), Some("\"pending,running\""));
        let told = "pending,lost".parse::<LoopStatuses>().map_err(|bad| bad.to_string());
        assert!(told.is_err_and(|told| told.starts_with("unknown status 'lost' (known: pending, running")));
    }
}
