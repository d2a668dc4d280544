//! What goes wrong, in the words and exit codes of the contract.

use std::borrow::Cow;
use std::error::Error as _;
use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use rota_core::Refusal;
use rota_core::text::{escaped, escaped_lines};
use rota_verbs::error_report::Nature;
use rota_verbs::input::BadInput;
use rota_verbs::registry::Operation;
use rota_verbs::{Error, Said};
use serde::Serialize;

use crate::args::Cli;
use crate::commands::usage_of;

/// Why a command ends without having done what it was asked.
#[derive(Debug)]
pub enum CliError {
    /// The command line is wrong.
    Usage {
        /// What is wrong.
        message: String,
        /// What is right.
        usage: Option<String>,
    },
    /// A verb declined or the store failed.
    Verb(Error),
    /// A server declined, or something behind it failed.
    Said(Said),
    /// Anything declined, in one line.
    OneLine(String),
    /// A file or stream failed.
    Io(String),
    /// Nobody runs the daemon of this workspace.
    NotRunning,
    /// Nobody runs the gateway of this workspace.
    NoGateway(String),
    /// The reader of our output went away.
    PipeClosed,
}

/// An error as a line of JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonLine<'a> {
    schema_version: u32,
    error: ErrorLine<'a>,
}

#[derive(Serialize)]
struct ErrorLine<'a> {
    code: &'a str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// Whether errors of this command line also get a line of JSON: with `--json`, those of `task`, `loop` and `why`.
pub fn wants_json_line(arguments: &[std::ffi::OsString]) -> bool {
    let has_flag =
        arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json");
    has_flag && command_path(arguments).first().is_some_and(|noun| matches!(&**noun, "task" | "loop" | "why"))
}

/// The result of a command.
pub type CliResult<T> = Result<T, CliError>;

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        Self::Verb(error)
    }
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        Self::Verb(refusal.into())
    }
}

impl From<BadInput> for CliError {
    fn from(bad: BadInput) -> Self {
        match bad {
            BadInput::Malformed(problem) => Self::value(problem),
            BadInput::Refused(refusal) => Self::from(*refusal),
        }
    }
}

impl From<rota_store::Fault> for CliError {
    fn from(fault: rota_store::Fault) -> Self {
        Self::Verb(fault.into())
    }
}

impl From<rota_daemon::config::ConfigError> for CliError {
    fn from(error: rota_daemon::config::ConfigError) -> Self {
        Self::Io(error.to_string())
    }
}

impl CliError {
    /// A wrong value; the command adds its usage line.
    pub fn value(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), usage: None }
    }

    /// The same with the usage line of a command, unless it has one.
    pub fn with_usage_of(self, path: &[&str]) -> Self {
        match self {
            Self::Usage { message, usage: None } => Self::Usage { message, usage: usage_of(path) },
            other => other,
        }
    }

    /// What cannot be asked of a server.
    pub fn wants_store(server: &str) -> Self {
        Self::Io(format!("this command wants the store itself, not {server}: run it where the store is"))
    }

    /// A value that could not be read is the command line's mistake.
    pub fn reading(error: Error) -> Self {
        match error {
            Error::Refused(refusal @ Refusal::BadValue { .. }) => Self::value(refusal.to_string()),
            other => Self::Verb(other),
        }
    }

    /// A flag without its number is told with one.
    pub fn with_example(self, error: &clap::Error) -> Self {
        let argument = error.get(ContextKind::InvalidArg);
        if !matches!(argument, Some(ContextValue::String(argument)) if argument.ends_with("<N>")) {
            return self;
        }
        match self {
            Self::Usage { message, usage } => match message.strip_suffix(" requires a value") {
                Some(flag) => Self::Usage { message: format!("{message} (e.g. {flag} 4)"), usage },
                None => Self::Usage { message, usage },
            },
            other => other,
        }
    }

    /// As `sched` and `queue` say it: one line, exit code 1. A store that fails keeps its code.
    pub fn in_one_line(self) -> Self {
        match self {
            Self::Usage { message, .. } => Self::OneLine(message),
            Self::Verb(Error::Refused(refusal)) => Self::OneLine(refusal.to_string()),
            Self::Said(said) if !said.is_fault() => Self::OneLine(said.message),
            other => other,
        }
    }

    /// Whether the store failed in a way that may pass by itself.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Verb(error) => Said::of(error).exit_code == 75,
            Self::Said(said) => said.exit_code == 75,
            _ => false,
        }
    }

    /// What it says, without how a program says it.
    pub fn in_words(&self) -> String {
        match self {
            Self::Usage { message, .. } | Self::OneLine(message) | Self::Io(message) => message.clone(),
            Self::Verb(error) => error.to_string(),
            Self::Said(said) => said.message.clone(),
            Self::NotRunning => "no rota up runs here".to_owned(),
            Self::NoGateway(place) => format!("no gateway runs at {place}"),
            Self::PipeClosed => "nobody reads".to_owned(),
        }
    }

    /// The stable word of an error.
    fn code(&self) -> Cow<'_, str> {
        match self {
            Self::Usage { .. } | Self::OneLine(_) => "usage".into(),
            Self::Verb(error) => Said::of(error).code.into_owned().into(),
            Self::Said(said) => (*said.code).into(),
            Self::Io(_) => "io".into(),
            Self::NotRunning => "not_running".into(),
            Self::NoGateway(_) => "no_gateway".into(),
            Self::PipeClosed => "pipe_closed".into(),
        }
    }

    /// The line for programs behind an `error:` line: one compact object. None for an answer ("No eligible tasks").
    fn json_line(&self) -> Option<String> {
        let hint = match self {
            Self::PipeClosed => return None,
            Self::Verb(error) => {
                let said = Said::of(error);
                (said.nature != Nature::Answer).then_some(said.hint)?
            }
            Self::Said(said) => (said.nature != Nature::Answer).then(|| said.hint.clone())?,
            _ => None,
        };
        let (code, message) = (self.code(), escaped(&self.in_words()).into_owned());
        let error = ErrorLine { code: &code, message, hint };
        let line = serde_json::to_string(&JsonLine { schema_version: 1, error });
        line.ok().map(|line| line + "\n")
    }

    /// Prints the error and says how to exit.
    pub fn report(&self, with_json: bool) -> ExitCode {
        let (text, code) = match self {
            Self::Usage { message, usage } => {
                let usage = usage.as_ref().map_or(String::new(), |usage| format!("{}\n", usage.trim_end()));
                (format!("error: {}\n{usage}", escaped(message)), 1)
            }
            Self::Verb(error) => told(&Said::of(error)),
            Self::Said(said) => told(said),
            Self::Io(message) | Self::OneLine(message) => (format!("error: {}\n", escaped(message)), 1),
            Self::NotRunning => ("error: no rota up runs here: start one with rota up\n".to_owned(), 2),
            Self::NoGateway(place) => {
                (format!("error: no gateway runs at {place}: start one with rota gateway\n"), 2)
            }
            Self::PipeClosed => (String::new(), 1),
        };
        let json = with_json.then(|| self.json_line()).flatten().unwrap_or_default();
        let text = escaped_lines(text.as_bytes()).into_owned() + &json;
        if std::io::stderr().write_all(text.as_bytes()).is_err() {
            // Nobody listens; the exit code still tells.
            return ExitCode::from(code);
        }
        ExitCode::from(code)
    }

    /// From clap: its words become ours, its exit code 2 becomes 1.
    pub fn from_clap(error: &clap::Error, arguments: &[std::ffi::OsString]) -> Self {
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(escaped(text).into_owned()),
            Some(ContextValue::Strings(list)) => Some(escaped(&list.join(" ")).into_owned()),
            _ => None,
        };
        let argument = text(ContextKind::InvalidArg).unwrap_or_default();
        let path = command_path(arguments);
        let message = match error.kind() {
            ErrorKind::UnknownArgument if argument.starts_with('-') => format!("unknown flag '{argument}'"),
            ErrorKind::UnknownArgument => format!("unexpected argument '{argument}'"),
            ErrorKind::MissingRequiredArgument => missing(error, &path),
            ErrorKind::InvalidSubcommand => unknown_command(&text(ContextKind::InvalidSubcommand), arguments),
            ErrorKind::InvalidValue
                if text(ContextKind::InvalidValue).is_none_or(|value| value.is_empty()) =>
            {
                format!("{} requires a value", flag(&argument))
            }
            ErrorKind::ValueValidation => match error.source().and_then(|source| source.downcast_ref()) {
                Some(BadInput::Refused(refusal)) => return Refusal::clone(refusal).into(),
                Some(BadInput::Malformed(problem)) => problem.clone(),
                None => first_line(&error.render().to_string()),
            },
            ErrorKind::ArgumentConflict => conflict(flag(&argument), text(ContextKind::PriorArg).as_deref()),
            ErrorKind::InvalidUtf8 => "an argument is not valid UTF-8".to_owned(),
            _ => first_line(&error.render().to_string()),
        };
        Self::value(message).with_usage_of(&path.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

fn told(said: &Said) -> (String, u8) {
    // "Task not eligible" is an answer, not an error.
    let start = if said.nature == Nature::Answer { "" } else { "error: " };
    (format!("{start}{}", said.lines()), said.exit_code)
}

/// Which command an argument list means, as far as it can be told.
pub fn command_path(arguments: &[std::ffi::OsString]) -> Vec<String> {
    let mut root = Cli::command();
    root.build();
    let (mut command, mut path) = (&root, Vec::new());
    let takes_value = |word: &str| {
        let name = word.strip_prefix("--").unwrap_or_default();
        root.get_arguments().any(|arg| arg.get_long() == Some(name) && arg.get_action().takes_values())
    };
    let mut words = arguments.iter().skip(1).map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        if takes_value(&word) {
            words.next();
        } else if let Some(next) = command.find_subcommand(word.as_ref()) {
            path.push(next.get_name().to_owned());
            command = next;
        } else if !word.starts_with('-') {
            break;
        }
    }
    path
}

/// The first thing that must be given and is not: a field of a verb by its title, else by its name.
fn missing(error: &clap::Error, path: &[String]) -> String {
    let Some(ContextValue::Strings(wanted)) = error.get(ContextKind::InvalidArg) else {
        return first_line(&error.render().to_string());
    };
    let Some(argument) = wanted.iter().find(|argument| argument.starts_with('<')).or(wanted.first()) else {
        return "missing argument".to_owned();
    };
    let name = argument.trim_matches(['<', '>']);
    let operation = Operation::named(&path.join(" "));
    let title_of = |field: &str| operation?.title_of(field);
    let title = title_of(name).or_else(|| title_of(&field_of(argument, path)?));
    format!("missing {}", title.unwrap_or_else(|| flag(name)))
}

/// The field of a verb's input that a positional argument is.
fn field_of(argument: &str, path: &[String]) -> Option<String> {
    let root = Cli::command();
    let command = path.iter().try_fold(&root, |command, name| command.find_subcommand(name))?;
    let id = command.get_positionals().find(|known| known.to_string() == argument)?.get_id().as_str();
    let mut words = id.split('_').map(str::to_owned);
    let first = words.next()?;
    Some(words.fold(first, |name, word| name + &word[..1].to_ascii_uppercase() + &word[1..]))
}

/// A flag that another one excludes. For clap, a flag given twice is in conflict with itself.
fn conflict(given: &str, prior: Option<&str>) -> String {
    match prior.map(flag).filter(|prior| *prior != given) {
        Some(prior) => format!("{given} and {prior} are mutually exclusive"),
        None => format!("{given} is given twice"),
    }
}

/// `--lease <SECONDS>` without what is behind it.
fn flag(argument: &str) -> &str {
    argument.split_whitespace().next().unwrap_or(argument)
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn unknown_command(word: &Option<String>, arguments: &[std::ffi::OsString]) -> String {
    let word = word.as_deref().unwrap_or_default();
    let position = arguments.iter().position(|argument| argument.to_string_lossy() == word);
    let before = position.and_then(|position| position.checked_sub(1)).map(|before| &arguments[before]);
    if before.is_some_and(|before| before == "agent") {
        return format!("unknown agent subcommand '{word}'");
    }
    if word == "plan-export" {
        return format!("unknown command '{word}': use `rota task list --all`");
    }
    format!("unknown command '{word}'")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn parsed(words: &[&str]) -> Result<(), String> {
        let arguments: Vec<std::ffi::OsString> = ["rota"].iter().chain(words).map(Into::into).collect();
        match Cli::try_parse_from(&arguments) {
            Ok(_) => Ok(()),
            Err(error) => Err(CliError::from_clap(&error, &arguments).in_words()),
        }
    }

    /// Every verb of the registry that is a command: an unknown flag, and the first thing that is missing.
    #[test]
    fn every_verb_reports_usage_errors_in_the_words_of_the_contract() {
        let mut root = Cli::command();
        root.build();
        let mut seen = 0;
        for operation in Operation::all() {
            let path: Vec<&str> = operation.route.name.split(' ').collect();
            let Some(command) = path.iter().try_fold(&root, |command, name| command.find_subcommand(name))
            else {
                continue;
            };
            // The number of an issue may begin with a dash, so that it is refused as a number.
            if !command.get_positionals().any(clap::Arg::is_allow_hyphen_values_set) {
                let flag = [path.as_slice(), &["--bogus"]].concat();
                assert_eq!(parsed(&flag), Err("unknown flag '--bogus'".to_owned()), "{path:?}");
            }
            let required = command.get_arguments().filter(|argument| argument.is_required_set());
            let mut required: Vec<_> = required.collect();
            required.sort_by_key(|argument| !argument.is_positional());
            if let Some(first) = required.first() {
                let field = field_of(
                    &first.to_string(),
                    &path.iter().map(|&word| word.to_owned()).collect::<Vec<_>>(),
                );
                let title = field.as_deref().and_then(|field| operation.title_of(field));
                let message = parsed(&path).err().unwrap_or_default();
                match title {
                    Some(title) => assert_eq!(message, format!("missing {title}"), "{path:?}"),
                    None => assert!(message.starts_with("missing "), "{path:?}: {message}"),
                }
            }
            seen += 1;
        }
        assert!(seen > 60, "{seen} verbs are commands");
    }

    #[test]
    fn values_are_refused_in_the_words_of_their_types() {
        for (line, message) in [
            ("task claim --lease x", "--lease must be a non-negative integer, got: x"),
            ("task renew a --lease -1", "--lease must be a non-negative integer, got: -1"),
            ("task create a A -p x", "-p (priority) must be a non-negative integer, got: x"),
            ("task show", "missing task ID"),
            ("task create a", "missing task title"),
            ("task block a", "missing --by"),
            ("task agent deregister", "missing agent ID"),
            ("queue show", "missing entry ID"),
            ("queue pause", "missing queue"),
            ("queue import", "missing FILE"),
            ("sched renew", "missing lease ID"),
            ("sched lease --limit x", "Invalid --limit \"x\": expected a number (e.g. --limit 4)"),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(parsed(&words), Err(message.to_owned()), "{line}");
        }
    }
}
