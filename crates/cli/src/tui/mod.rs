//! `rota top`: what runs, what waits and why, what the API's budget does, and the ways to act on it, on one screen.
//!
//! One thread draws and decides, one loads ([`load`]), one reads keys, one hears signals; they talk by one channel. The
//! terminal is put back however it ends: by a key, a signal, an error or a panic.

mod draw;
mod load;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use crossterm::event::{Event, KeyEvent, KeyEventKind};
use ratatui::DefaultTerminal;
use rota_daemon::folders::Folders;
use tokio::signal::unix::{SignalKind, signal};

use self::load::{Task, Wanted};
use self::view::{Data, Order, View};
use crate::args::Common;
use crate::backend::Backend;
use crate::commands::gates;
use crate::errors::{CliError, CliResult};
use crate::locate;

/// Four frames a second when nothing happens; the clock on the screen goes on.
const FRAME: Duration = Duration::from_millis(250);

/// What the one loop hears of.
pub enum Happened {
    Key(KeyEvent),
    Resized,
    Loaded(Wanted, Box<Data>),
    Done(String),
    /// By a signal of this number.
    Stopped(i32),
    /// The terminal went away.
    Gone,
}

pub fn run(common: &Common) -> CliResult<ExitCode> {
    if common.json {
        return Err(CliError::value(
            "--json: `rota top` is a screen; see rota status, rota log and rota serve",
        ));
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(CliError::Io("rota top wants a terminal; see rota status and rota log".to_owned()));
    }
    let backend = locate::backend(common)?;
    let folders = match &backend {
        Backend::Store(_) => {
            let (workspace, rota) = locate::workspace()?;
            Some(Folders::new(&workspace, &rota))
        }
        Backend::Server(_) => None,
    };
    let gates = gates(common)?;
    let cycles = crate::commands::supervise::cycles_of(common)?;
    let has_color = locate::variable("NO_COLOR")?.is_none();
    let (told, happened) = mpsc::channel();
    hear_signals(told.clone())?;
    let (tasks, orders) = mpsc::channel();
    let loaded = told.clone();
    std::thread::spawn(move || {
        load::run(&backend, folders.as_ref(), &gates, cycles.as_ref(), &orders, &loaded)
    });
    let mut terminal = Screen::open()?;
    std::thread::spawn(move || read_keys(&told));
    show(&mut terminal.0, View::new(has_color), &happened, &tasks)
}

fn show(
    terminal: &mut DefaultTerminal,
    mut view: View,
    happened: &mpsc::Receiver<Happened>,
    tasks: &Sender<Task>,
) -> CliResult<ExitCode> {
    let failed = |error: std::io::Error| CliError::Io(format!("the terminal: {error}"));
    loop {
        terminal.draw(|frame| draw::draw(frame, &view)).map_err(failed)?;
        let order = match happened.recv_timeout(FRAME) {
            Ok(Happened::Key(key)) => {
                assert!(!is_told_to_panic(&key), "told to panic");
                view.on_key(key)
            }
            // What was asked for before another pane was chosen is late.
            Ok(Happened::Loaded(wanted, data)) if wanted == Wanted::of(&view) => {
                view.take(*data);
                Order::Nothing
            }
            Ok(Happened::Done(said)) => {
                view.message = Some(said);
                Order::Load
            }
            Ok(Happened::Stopped(number)) => {
                return Ok(ExitCode::from(u8::try_from(128 + number).unwrap_or(1)));
            }
            Ok(Happened::Gone) | Err(RecvTimeoutError::Disconnected) => return Ok(ExitCode::SUCCESS),
            Ok(Happened::Resized | Happened::Loaded(..)) | Err(RecvTimeoutError::Timeout) => Order::Nothing,
        };
        let task = match order {
            Order::Quit => return Ok(ExitCode::SUCCESS),
            Order::Nothing => continue,
            Order::Load => Task::Look(Wanted::of(&view)),
            Order::Act(act, id) => Task::Do(act, id),
        };
        if tasks.send(task).is_err() {
            return Err(CliError::Io("whoever loads has ended".to_owned()));
        }
    }
}

/// Only where the program is built to be tested: whether the terminal survives a panic is to be seen.
fn is_told_to_panic(key: &KeyEvent) -> bool {
    cfg!(debug_assertions)
        && key.code == crossterm::event::KeyCode::Char('!')
        && std::env::var_os("ROTA_TOP_PANIC").is_some()
}

fn read_keys(told: &Sender<Happened>) {
    loop {
        let happened = match crossterm::event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Happened::Key(key),
            Ok(Event::Resize(..)) => Happened::Resized,
            Ok(_) => continue,
            Err(_) => Happened::Gone,
        };
        let is_over = matches!(happened, Happened::Gone);
        if told.send(happened).is_err() || is_over {
            return;
        }
    }
}

/// Ends at TERM, INT and HUP, with the terminal put back.
fn hear_signals(told: Sender<Happened>) -> CliResult<()> {
    let failed = |error: std::io::Error| CliError::Io(format!("signals: {error}"));
    let [terminate, interrupt, hangup] =
        [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let (mut terminate, mut interrupt, mut hangup) =
        (terminate.map_err(failed)?, interrupt.map_err(failed)?, hangup.map_err(failed)?);
    tokio::spawn(async move {
        let number = tokio::select! {
            _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
            _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = hangup.recv() => SignalKind::hangup().as_raw_value(),
        };
        drop(told.send(Happened::Stopped(number)));
    });
    Ok(())
}

/// The terminal, for as long as it is ours.
struct Screen(DefaultTerminal);

/// Whether there is anything to put back.
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Screen {
    fn open() -> CliResult<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            put_back();
            before(panic);
        }));
        TAKEN.store(true, Ordering::SeqCst);
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self(terminal)),
            Err(error) => {
                put_back();
                Err(CliError::Io(format!("the terminal: {error}")))
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        put_back();
    }
}

fn put_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // A terminal that is gone cannot be put back.
        drop(ratatui::try_restore());
    }
}
