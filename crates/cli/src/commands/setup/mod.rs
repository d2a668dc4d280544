//! `rota setup`: the files by which an agent knows how to use Rota.

mod clients;
mod files;
mod json_edit;
mod json_tree;
mod section;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rota_core::text::escaped;
use serde::Serialize;

use self::clients::{Client, Content, Part};
use self::files::ProjectFile;
use crate::args::Common;
use crate::args_setup::SetupArgs;
use crate::errors::{CliError, CliResult};
use crate::output;

/// How a file, or a part of it, compares to what `setup` would write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Missing,
    Stale,
    Current,
}

impl State {
    /// Of several parts: stale unless they agree.
    fn of_all(states: &[Self]) -> Self {
        match states {
            [first, rest @ ..] if rest.iter().all(|state| state == first) => *first,
            [] => Self::Missing,
            _ => Self::Stale,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Stale => "stale",
            Self::Current => "current",
        }
    }

    /// 1 is for errors.
    fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Current => 0,
            Self::Missing => 2,
            Self::Stale => 3,
        })
    }
}

#[derive(Serialize)]
struct Report {
    client: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    files: Vec<FileReport>,
}

#[derive(Serialize)]
struct FileReport {
    file: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    /// Whether a person changed the managed section.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    edited: bool,
    /// What was done with the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl FileReport {
    fn of(file: &'static str) -> Self {
        Self { file, state: None, edited: false, change: None, text: None }
    }

    fn line(&self) -> String {
        let edited = if self.edited { ", edited by hand" } else { "" };
        match (self.state, self.change) {
            (Some(state), _) => format!("{:<8} {}{edited}\n", state.word(), self.file),
            (None, Some(change)) => format!("{change:<9} {}\n", self.file),
            (None, None) => format!("{}:\n\n{}\n", self.file, self.text.as_deref().unwrap_or_default()),
        }
    }
}

pub fn run(common: &Common, args: &SetupArgs) -> CliResult<ExitCode> {
    let name = args.client.as_deref();
    let name = name.ok_or_else(|| CliError::value(format!("missing agent: {}", Client::NAMES)))?;
    let client = Client::from_name(name).ok_or_else(|| {
        CliError::value(format!("unknown agent '{}' (known: {})", escaped(name), Client::NAMES))
    })?;
    // Removal and checks look for everything that was ever written.
    let parts = client.parts(args.remind);
    let root = project_root()?;
    if args.print {
        let text = |part: &Part| FileReport { text: Some(part.shown()), ..FileReport::of(part.file) };
        return emit(common, client, parts.iter().map(text).collect(), None);
    }
    let files = parts.iter().map(|part| ProjectFile::read(&root, part.file)).collect::<Result<Vec<_>, _>>();
    let files = files.map_err(CliError::Io)?;
    let pairs: Vec<(&Part, &ProjectFile)> = parts.iter().zip(&files).collect();
    if args.check {
        return check(common, client, &pairs);
    }
    change(common, client, &root, &pairs, args.remove)
}

fn check(common: &Common, client: Client, pairs: &[(&Part, &ProjectFile)]) -> CliResult<ExitCode> {
    let mut reports = Vec::new();
    for (part, file) in pairs {
        let content = file.content.as_deref();
        let state = part.state(content).map_err(|problem| refused(file, &problem))?;
        let edited = match (&part.content, content) {
            (Content::Section(section), Some(content)) => section.is_edited(content),
            _ => false,
        };
        reports.push(FileReport { state: Some(state), edited, ..FileReport::of(part.file) });
    }
    let states: Vec<State> = reports.iter().filter_map(|report| report.state).collect();
    let state = State::of_all(&states);
    emit(common, client, reports, Some(state))?;
    Ok(state.exit_code())
}

/// Writes or removes everything. What every file becomes is known before the first is touched.
fn change(
    common: &Common,
    client: Client,
    root: &Path,
    pairs: &[(&Part, &ProjectFile)],
    is_removal: bool,
) -> CliResult<ExitCode> {
    let mut planned = Vec::new();
    for (part, file) in pairs {
        let after = match (&file.content, is_removal) {
            (None, true) => Ok(None),
            (Some(content), true) => part.remove(content),
            (content, false) => part.add(content.as_deref()).map(Some),
        };
        planned.push((*file, after.map_err(|problem| refused(file, &problem))?));
    }
    let mut reports = Vec::new();
    for (file, after) in planned {
        let change = match (&file.content, &after) {
            (before, after) if before == after => "unchanged",
            (None, _) => "created",
            (_, None) => "deleted",
            _ => "updated",
        };
        if change != "unchanged" {
            file.write(root, after.as_deref()).map_err(CliError::Io)?;
        }
        reports.push(FileReport { change: Some(change), ..FileReport::of(file.name) });
    }
    emit(common, client, reports, None)
}

fn refused(file: &ProjectFile, problem: &str) -> CliError {
    CliError::Io(format!("{} {problem}; nothing was changed", file.name))
}

fn emit(
    common: &Common,
    client: Client,
    files: Vec<FileReport>,
    state: Option<State>,
) -> CliResult<ExitCode> {
    let report = Report { client: client.name(), state, files };
    output::emit(common.json, report, |report| report.files.iter().map(FileReport::line).collect())
}

/// The work tree that the current folder is in, also a linked one, or else the current folder.
fn project_root() -> CliResult<PathBuf> {
    let here = std::env::current_dir().and_then(|here| here.canonicalize());
    let here = here.map_err(|error| CliError::Io(format!("current folder: {error}")))?;
    let root = here.ancestors().find(|folder| folder.join(".git").exists());
    Ok(root.unwrap_or(&here).to_owned())
}
