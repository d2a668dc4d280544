//! `rota import`: an export of our own, or what people have from others.

use std::path::Path;
use std::process::ExitCode;

use crate::block_on;
use rota_core::TaskId;
use rota_core::text::escaped;
use rota_verbs::carry;
use rota_verbs::import::{Format, ImportForeign, Imported, import_foreign};

use crate::args::Common;
use crate::args_control::ImportArgs;
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

pub fn run(common: &Common, args: ImportArgs) -> CliResult<ExitCode> {
    let file = Path::new(&args.file);
    let format = match &args.from {
        Some(word) => Format::from_word(word)?,
        None => Format::of(file)?,
    };
    if args.only.is_some() && !matches!(format, Format::Ralph | Format::TaskMaster) {
        let problem = format!("--only has no effect on a file of {}", format.word());
        return Err(CliError::value(problem));
    }
    let cx = locate::context(common)?;
    let verb = if args.dry_run { "would import" } else { "imported" };
    if format == Format::Rota {
        let carried = block_on(carry::import(&cx, file, args.dry_run))?;
        return output::emit(common.json, carried, |carried| {
            format!("{verb} {} tasks, {} edges, {} events\n", carried.tasks, carried.edges, carried.events)
        });
    }
    let input = ImportForeign {
        file: file.to_owned(),
        format,
        queue: args.queue,
        only: args.only,
        dry_run: args.dry_run,
    };
    let imported = block_on(import_foreign(&cx, input))?;
    if !imported.held.is_empty() {
        output::warn(&format!("somebody was at these, they come in as open: {}", named(&imported.held)))?;
    }
    output::emit(common.json, imported, |imported| text(imported, verb))
}

fn named(ids: &[TaskId]) -> String {
    ids.iter().map(TaskId::as_str).collect::<Vec<_>>().join(", ")
}

/// A dry run shows every task; otherwise `rota task list` does.
fn text(imported: &Imported, verb: &str) -> String {
    let mut text = String::new();
    for task in imported.tasks.iter().filter(|_| imported.dry_run) {
        let after =
            if task.deps.is_empty() { String::new() } else { format!(" (after {})", named(&task.deps)) };
        let (id, status) = (task.id.as_str(), task.status);
        text.push_str(&format!("{} [{status}] {}{}\n", escaped(id), escaped(&task.title), escaped(&after)));
    }
    let (total, edges, format) = (imported.total, imported.edges, imported.format.word());
    text + &format!("{verb} {total} tasks, {edges} edges ({format})\n")
}
