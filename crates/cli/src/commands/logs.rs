//! `rota loop logs ID [--iteration N] [-f] [--raw]`

use std::io::{Read, Seek, SeekFrom};
use std::process::ExitCode;
use std::time::Duration;

use rota_core::text::escaped_lines;
use rota_core::{Refusal, TaskId};
use rota_daemon::files::{Dir, Owner};
use rota_daemon::folders::Folders;
use rota_daemon::iteration::{OUTPUT, VALIDATION};
use rota_verbs::loops::ShowLoop;
use rota_verbs::show::ShowTask;
use rota_verbs::{Payload, input};
use serde::Serialize;

use crate::args::Common;
use crate::args_loops::LoopLogsArgs;
use crate::backend::Backend;
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

/// How often a file that grows is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How output is shown.
#[derive(Clone, Copy)]
enum Form {
    /// With all escaped that could steer a terminal, also into a pipe: what reads it may be a terminal's pager.
    Safe,
    /// As the agent wrote it.
    Raw,
    Json,
}

/// What was printed of one iteration so far.
struct Place {
    number: u32,
    /// Bytes of the agent's output and of the validation's.
    printed: [u64; 2],
}

pub fn run(common: &Common, args: &LoopLogsArgs) -> CliResult<ExitCode> {
    let backend = locate::backend(common)?;
    let (workspace, rota) = locate::workspace()?;
    let folders = Folders::new(&workspace, &rota);
    let id = args.id.clone().into_inner();
    let wanted: Option<u32> =
        args.iteration.as_deref().map(|text| input::count("--iteration", text)).transpose()?;
    let shown = backend.ask(ShowLoop { id: id.clone().into() })?.task.task;
    let (mut last, mut runs) = (shown.iteration, shown.lease_id.is_some());
    let number = wanted.unwrap_or(last);
    // A loop's folders are those of its creation: an id that was added again has other ones.
    let (scope, created_at) = (shown.scope.to_string(), shown.created_at);
    let records =
        |number: u32| folders.find_records(&scope, &id, created_at, number).and_then(|path| Dir::open(&path));
    if number == 0 || records(number).is_err() {
        let problem = if last == 0 {
            format!("loop '{id}' has not run yet")
        } else {
            format!("loop '{id}' has no iteration {number} on this host (the last is {last})")
        };
        return Err(Refusal::BadValue { problem }.into());
    }
    let mut place = Place { number, printed: [0, 0] };
    let form = match (common.json, args.raw) {
        (true, true) => return Err(CliError::value("--raw and --json are mutually exclusive")),
        (true, false) => Form::Json,
        (false, true) => Form::Raw,
        (false, false) => Form::Safe,
    };
    loop {
        print_more(&records(place.number), &id, &mut place, form)?;
        if !args.follow {
            return Ok(ExitCode::SUCCESS);
        }
        if wanted.is_none() && last > place.number {
            place = Place { number: place.number + 1, printed: [0, 0] };
            continue;
        }
        if !runs || wanted.is_some_and(|wanted| wanted < last) {
            print_more(&records(place.number), &id, &mut place, form)?;
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
        (last, runs) = state(&backend, &id)?;
    }
}

/// The last iteration, and whether the loop runs.
fn state(backend: &Backend, id: &TaskId) -> CliResult<(u32, bool)> {
    let task = backend.ask(ShowTask { id: id.clone().into(), with_deps: false })?.task;
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

fn print_more(records: &std::io::Result<Dir>, id: &TaskId, place: &mut Place, form: Form) -> CliResult<()> {
    // The next iteration may not have begun yet.
    let Ok(records) = records else { return Ok(()) };
    for (file, printed) in [OUTPUT, VALIDATION].into_iter().zip(&mut place.printed) {
        let failed =
            |error: std::io::Error| CliError::Io(format!("{file} of iteration {}: {error}", place.number));
        let mut opened = match records.open_file(file, Owner::Any) {
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
            match form {
                Form::Json => {
                    let text = &String::from_utf8_lossy(bytes);
                    let piece = Piece { id, iteration: place.number, file, text };
                    output::print(&Payload::new(piece).to_line())?;
                }
                Form::Safe => output::write(escaped_lines(bytes).as_bytes())?,
                Form::Raw => output::write(bytes)?,
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
