//! One record of somebody else's: fields taken one by one, each checked, with the place in every message.

use std::collections::BTreeMap;
use std::fmt;

use rota_core::{Json, Refusal, TaskId, UnixMillis, limits};
use rota_store::intents::add::NewTask;
use serde::de::DeserializeOwned;

/// Where a record stands in its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In which line, from 1.
    Line(usize),
    /// Where in a document or table.
    At(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::At(place) => f.write_str(place),
        }
    }
}

impl Place {
    pub fn refuse(&self, problem: impl fmt::Display) -> Refusal {
        match self {
            Self::Line(line) => Refusal::BadLine { line: *line, problem: problem.to_string() },
            Self::At(place) => Refusal::BadValue { problem: format!("{place}: {problem}") },
        }
    }
}

/// A record, and what is left of it.
pub(crate) struct Record {
    pub place: Place,
    fields: BTreeMap<String, Json>,
}

impl Record {
    /// From the text of a JSON object.
    pub fn parse(place: Place, text: &str) -> Result<Self, Refusal> {
        match serde_json::from_str(text) {
            Ok(fields) => Ok(Self { place, fields }),
            Err(error) => Err(place.refuse(format_args!("not a JSON object: {error}"))),
        }
    }

    /// From columns of text.
    pub fn of_texts(place: Place, row: &BTreeMap<&'static str, String>) -> Self {
        let fields = row.iter().map(|(name, value)| ((*name).to_owned(), Json::of(value)));
        Self { place, fields: fields.collect() }
    }

    /// The value of a field; `null` is none.
    fn take<T: DeserializeOwned>(&mut self, key: &str, wanted: &str) -> Result<Option<T>, Refusal> {
        let Some(value) = self.fields.remove(key) else { return Ok(None) };
        serde_json::from_str(value.as_str()).map_err(|_| {
            let shown: String = value.as_str().chars().take(80).collect();
            self.place.refuse(format_args!("field \"{key}\" must be {wanted}, got: {shown}"))
        })
    }

    /// A text; the empty one is none.
    pub fn text(&mut self, key: &str) -> Result<Option<String>, Refusal> {
        let text = self.take::<Option<String>>(key, "a text")?.flatten().filter(|text| !text.is_empty());
        if text.as_ref().is_some_and(|text| text.contains('\0')) {
            return Err(self.place.refuse(format_args!("field \"{key}\" contains a NUL character")));
        }
        Ok(text)
    }

    /// A text that stays in the rest.
    pub fn peek_text(&mut self, key: &str) -> Result<Option<String>, Refusal> {
        let kept = self.fields.get(key).cloned();
        let text = self.text(key)?;
        self.fields.extend(kept.map(|kept| (key.to_owned(), kept)));
        Ok(text)
    }

    /// Puts something back into the rest, unless it is nothing.
    pub fn keep(&mut self, key: &str, entries: impl Iterator<Item = (String, String)>) {
        let entries: BTreeMap<String, String> = entries.collect();
        if !entries.is_empty() {
            self.fields.insert(key.to_owned(), Json::of(&entries));
        }
    }

    /// A text that must be there.
    pub fn required(&mut self, key: &str) -> Result<String, Refusal> {
        let missing = self.place.refuse(format_args!("field \"{key}\" is missing or empty"));
        self.text(key)?.filter(|text| !text.trim().is_empty()).ok_or(missing)
    }

    /// A text that is one line at most so long.
    pub fn name(&mut self, key: &'static str) -> Result<Option<String>, Refusal> {
        let name = self.text(key)?;
        if let Some(name) = &name {
            rota_core::id::check_name(key, name).map_err(|error| self.place.refuse(error))?;
        }
        Ok(name)
    }

    pub fn whole(&mut self, key: &str) -> Result<Option<u32>, Refusal> {
        Ok(self.take::<Option<u32>>(key, "a non-negative integer")?.flatten())
    }

    pub fn one<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>, Refusal> {
        Ok(self.take::<Option<T>>(key, "a number or a text")?.flatten())
    }

    pub fn list<T: DeserializeOwned>(&mut self, key: &str) -> Result<Vec<T>, Refusal> {
        Ok(self.take::<Option<Vec<T>>>(key, "a list")?.flatten().unwrap_or_default())
    }

    pub fn time(&mut self, key: &str) -> Result<Option<UnixMillis>, Refusal> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let time = text.parse::<UnixMillis>();
        time.map(Some).map_err(|error| self.place.refuse(format_args!("field \"{key}\": {error}")))
    }

    /// The id under a key.
    pub fn id(&mut self, key: &str) -> Result<TaskId, Refusal> {
        let text = self.required(key)?;
        self.task_id(&text)
    }

    pub fn task_id(&self, text: &str) -> Result<TaskId, Refusal> {
        TaskId::new(text).map_err(|error| self.place.refuse(error))
    }

    /// What nobody asked for, to be kept.
    pub fn rest(self) -> Option<Json> {
        (!self.fields.is_empty()).then(|| Json::of(&self.fields))
    }
}

/// A task that would come in, and where it stood.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    pub place: Place,
    pub new: NewTask,
    /// Whether somebody was at it: leases do not move, and the user hears of it.
    pub was_held: bool,
}

/// Refuses what is too large, and ids that are there twice.
pub(crate) fn check(incoming: &[Incoming]) -> Result<(), Refusal> {
    let mut seen: BTreeMap<&TaskId, &Place> = BTreeMap::new();
    for Incoming { place, new, .. } in incoming {
        let texts = [("title", Some(&new.title), limits::TITLE_BYTES)].into_iter().chain([(
            "description",
            new.description.as_ref(),
            limits::TEXT_BYTES,
        )]);
        for (field, text, limit) in texts {
            if let Some(bytes) = text.map(String::len).filter(|bytes| *bytes > limit) {
                let problem = format!("field \"{field}\" is {bytes} bytes long, at most {limit} are allowed");
                return Err(place.refuse(problem));
            }
        }
        if let Some(first) = seen.insert(&new.id, place) {
            return Err(place.refuse(format_args!("id '{}' is there twice, first in {first}", new.id)));
        }
    }
    Ok(())
}
