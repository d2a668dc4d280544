//! `rota doctor`, `export`, `import`, `backup`, `prune`, `migrate`

use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use crate::block_on;
use rota_core::text::escaped;
use rota_daemon::sweep::{self, Swept};
use rota_store::AnyStore;
use rota_store::intents::Call;
use rota_store::sqlite::ClockBehind;
use rota_verbs::carry::{self, Carried};
use rota_verbs::doctor::{Findings, doctor as examine};
use rota_verbs::migrate::{self as schema, Schema};
use rota_verbs::prune::{PruneStore, Pruned};
use serde::Serialize;

use crate::args::{Common, ExportArgs, FileArg, MigrateArgs};
use crate::args_control::DoctorArgs;
use crate::backend::Backend;
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

pub fn doctor(common: &Common, args: &DoctorArgs) -> CliResult<ExitCode> {
    let backend = locate::backend(common)?;
    if args.accept_clock {
        accept_clock(&backend)?;
    }
    let terminal = std::io::stderr().is_terminal();
    let progress = |tasks: u64| {
        if terminal && tasks.is_multiple_of(10_000) && tasks > 0 {
            // Progress that cannot be shown is no reason to stop.
            drop(write!(std::io::stderr(), "\r{tasks} tasks"));
        }
    };
    let found = match &backend {
        Backend::Store(cx) => block_on(examine(cx, args.input.fix, progress))?,
        Backend::Server(_) => backend.ask(args.input.clone())?,
    };
    if terminal && found.tasks >= 10_000 {
        drop(write!(std::io::stderr(), "\r\x1b[K"));
    }
    let clean = found.is_clean();
    output::emit(common.json, found, findings)?;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says on standard error what was accepted: the answer stays that of a doctor.
fn accept_clock(backend: &Backend) -> CliResult<()> {
    let Backend::Store(cx) = backend else {
        return Err(CliError::value(
            "--accept-clock must run on the host of the server, with the database itself as the store"
                .to_owned(),
        ));
    };
    match rota_verbs::doctor::accept_clock(cx)? {
        Some(ClockBehind { newest, host }) => output::note(&format!(
            "accepted this host's clock, {host}, although the newest entry was written at {newest}"
        )),
        None => output::note("this host's clock is not behind the store"),
    }
}

fn findings(found: &Findings) -> String {
    let mut text = format!(
        "schema {}, {} scopes, {} tasks, {} events\n",
        found.schema, found.scopes, found.tasks, found.events
    );
    for finding in &found.problems {
        let task = finding.task.as_ref().map_or(String::new(), |task| format!(" {}", escaped(task.as_str())));
        let scope = escaped(&finding.scope);
        text.push_str(&format!("{} {scope}{task}: {}", finding.check, escaped(&finding.problem)));
        match (&finding.repair, finding.repaired) {
            (Some(repair), true) => text.push_str(&format!(" (repaired: {repair})")),
            (Some(repair), false) => text.push_str(&format!(" (--fix would {repair})")),
            (None, _) => {}
        }
        text.push('\n');
    }
    let listed = found.problems.len() as u64;
    if found.total > listed {
        text.push_str(&format!("… and {} more\n", found.total - listed));
    }
    for note in &found.notes {
        text.push_str(&format!("note: {}\n", escaped(note)));
    }
    text.push_str(&match (found.total, found.repaired) {
        (0, _) => "nothing is wrong\n".to_owned(),
        (total, 0) => format!("{total} problems\n"),
        (total, repaired) => format!("{total} problems, {repaired} repaired\n"),
    });
    text
}

pub fn export(common: &Common, args: &ExportArgs) -> CliResult<ExitCode> {
    let cx = locate::context(common)?;
    let only = common.scope.clone().filter(|scope| !scope.is_empty());
    match &args.file {
        Some(file) => {
            let carried = block_on(carry::export_file(&cx, only, Path::new(file)))?;
            output::emit(common.json, carried, |carried| counted("exported", carried))
        }
        None => {
            block_on(carry::export_to(&cx, only, BufWriter::new(std::io::stdout())))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn counted(verb: &str, carried: &Carried) -> String {
    format!("{verb} {} tasks, {} edges, {} events\n", carried.tasks, carried.edges, carried.events)
}

/// What a backup is.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BackedUp {
    file: String,
    /// `sqlite`: a database; `export`: what `rota import` reads.
    format: &'static str,
}

pub fn backup(common: &Common, args: &FileArg) -> CliResult<ExitCode> {
    let cx = locate::context(common)?;
    let file = Path::new(&args.file);
    let format = match &cx.store {
        AnyStore::Sqlite(store) => {
            store.backup(file)?;
            "sqlite"
        }
        _ => {
            block_on(carry::export_file(&cx, None, file))?;
            "export"
        }
    };
    output::emit(common.json, BackedUp { file: args.file.clone(), format }, |done| {
        let what = match done.format {
            "sqlite" => "a SQLite database",
            _ => "an export of one snapshot, for `rota import`",
        };
        format!("backed up to {} ({what})\n", escaped(&done.file))
    })
}

pub fn prune(common: &Common, input: PruneStore) -> CliResult<ExitCode> {
    let dry_run = input.dry_run;
    let backend = locate::backend(common)?;
    let folders = locate::folders(common)?;
    let pruned = backend.ask(input)?;
    // Only for the store that this workspace has by itself: to another one, all loops of these folders are unknown.
    let is_own = common.store.is_none() && locate::variable("ROTA_STORE")?.is_none();
    let swept = match &backend {
        Backend::Store(cx) if !dry_run && is_own => {
            let call = Call { now: cx.now, actor: cx.agent.clone(), ..Call::in_scope(&cx.scope) };
            crate::block_on(sweep::sweep(&cx.store, &call, Arc::new(folders)))?
        }
        _ => Swept::default(),
    };
    for kept in &swept.kept {
        output::warn(&format!("the folders of a pruned loop stay: {kept}"))?;
    }
    output::emit(common.json, pruned, |Pruned { dry_run, tasks, needed, events, .. }| {
        let verb = if *dry_run { "would prune" } else { "pruned" };
        let kept = if *needed == 0 { String::new() } else { format!(", kept {needed} that others need") };
        let folders = match swept.loops {
            0 => String::new(),
            loops => format!("removed the folders of {loops} loops\n"),
        };
        format!("{verb} {tasks} tasks and {events} events of others{kept}\n{folders}")
    })
}

pub fn migrate(common: &Common, args: &MigrateArgs) -> CliResult<ExitCode> {
    let location = locate::location_of(common)?;
    let schema = if args.status {
        block_on(schema::status(&location))?
    } else {
        block_on(schema::migrate(&location, args.grant_to.as_deref()))?
    };
    let current = schema.is_current();
    output::emit(common.json, schema, |Schema { found, known, before }| match before {
        Some(before) if before == found => format!("schema {found} is current\n"),
        Some(before) => format!("migrated from schema {before} to {found}\n"),
        None if found == known => format!("schema {found} is current\n"),
        None => format!("schema {found}, this rota knows {known}: run `rota migrate`\n"),
    })?;
    Ok(if current { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
