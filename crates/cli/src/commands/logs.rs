//! `rota loop logs ID [--iteration N] [-f]`

use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rota_core::text::escaped;
use rota_core::{Refusal, TaskId};
use rota_daemon::folders::Folders;
use rota_daemon::iteration::{OUTPUT, VALIDATION};
use rota_verbs::table::{ShowLoop, ShowTask};
use rota_verbs::{Payload, input};
use serde::Serialize;

use crate::args::Common;
use crate::args_loops::LoopLogsArgs;
use crate::desk::Desk;
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

/// How often a file that grows is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What was printed of one iteration so far.
struct Place {
    number: u32,
    /// Bytes of the agent's output and of the validation's.
    printed: [u64; 2],
}

pub fn run(common: &Common, args: &LoopLogsArgs) -> CliResult<ExitCode> {
    let desk = locate::desk(common)?;
    let (workspace, rota) = locate::workspace()?;
    let folders = Folders { workspace, rota };
    let id = rota_verbs::task_id(&args.id.id)?;
    let wanted: Option<u32> = args
        .iteration
        .as_deref()
        .map(|text| input::count("--iteration", text))
        .transpose()
        .map_err(CliError::reading)?;
    let shown = desk.ask(ShowLoop { id: id.to_string() })?.task.task;
    let (mut last, mut runs) = (shown.iteration, shown.lease_id.is_some());
    let number = wanted.unwrap_or(last);
    if number == 0 || !folders.of_iteration(&id, number).is_dir() {
        let problem = if last == 0 {
            format!("loop '{id}' has not run yet")
        } else {
            format!("loop '{id}' has no iteration {number} on this host (the last is {last})")
        };
        return Err(Refusal::BadValue { problem }.into());
    }
    let mut place = Place { number, printed: [0, 0] };
    let json = common.json;
    loop {
        print_more(&folders, &id, &mut place, json)?;
        if !args.follow {
            return Ok(ExitCode::SUCCESS);
        }
        if wanted.is_none() && last > place.number {
            place = Place { number: place.number + 1, printed: [0, 0] };
            continue;
        }
        if !runs || wanted.is_some_and(|wanted| wanted < last) {
            print_more(&folders, &id, &mut place, json)?;
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
        (last, runs) = state(&desk, &id)?;
    }
}

/// The last iteration, and whether the loop runs.
fn state(desk: &Desk, id: &TaskId) -> CliResult<(u32, bool)> {
    let task = desk.ask(ShowTask { id: id.to_string(), with_deps: false })?.task;
    Ok((task.iteration, task.lease_id.is_some()))
}

/// Some of what was printed, for programs: one object a line.
#[derive(Serialize)]
struct Piece<'a> {
    id: &'a TaskId,
    iteration: u32,
    file: &'static str,
    text: &'a str,
}

fn print_more(folders: &Folders, id: &TaskId, place: &mut Place, json: bool) -> CliResult<()> {
    let folder = folders.of_iteration(id, place.number);
    for (file, printed) in [OUTPUT, VALIDATION].into_iter().zip(&mut place.printed) {
        let path: PathBuf = folder.join(file);
        let failed = |error: std::io::Error| CliError::Io(format!("{}: {error}", path.display()));
        let mut opened = match File::open(&path) {
            Ok(opened) => opened,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        opened.seek(SeekFrom::Start(*printed)).map_err(failed)?;
        let mut buffer = vec![0; 64 * 1_024];
        loop {
            let count = opened.read(&mut buffer).map_err(failed)?;
            if count == 0 {
                break;
            }
            let bytes = &buffer[..whole(&buffer[..count])];
            *printed += bytes.len() as u64;
            opened.seek(SeekFrom::Start(*printed)).map_err(failed)?;
            if json {
                let text = &String::from_utf8_lossy(bytes);
                output::print(&Payload::new(Piece { id, iteration: place.number, file, text }).to_line())?;
            } else {
                show(bytes)?;
            }
        }
    }
    Ok(())
}

/// How many of these bytes do not end within a character.
fn whole(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        // Cut off at the end; a character has at most four bytes.
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// A terminal is not to be steered by what an agent prints.
fn show(bytes: &[u8]) -> CliResult<()> {
    let mut stdout = std::io::stdout().lock();
    let written = if stdout.is_terminal() {
        let text = String::from_utf8_lossy(bytes);
        let line = |line: &str| escaped(&line.replace('\t', "    ")).into_owned();
        let shown: Vec<String> = text.split('\n').map(line).collect();
        stdout.write_all(shown.join("\n").as_bytes())
    } else {
        stdout.write_all(bytes)
    };
    match written.and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(CliError::PipeClosed),
        Err(error) => Err(CliError::Io(format!("standard output: {error}"))),
    }
}
