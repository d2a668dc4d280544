//! The signals that ask a program of ours to stop: the first politely, the second at once.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::runner::terminate::Urgency;

/// TERM, INT, and HUP unless whoever started us had it ignored (`nohup`): commands have process groups of their own, and
/// would go on without us when the terminal is closed.
pub struct Signals {
    term: Signal,
    int: Signal,
    hangup: Option<Signal>,
    seen: u32,
}

/// What HUP means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hangup {
    /// As TERM.
    Ends,
    /// Something else, which is not our business here.
    IsOther,
}

impl Signals {
    /// From now on they are ours.
    pub fn catch(hangup: Hangup) -> std::io::Result<Self> {
        let ends = hangup == Hangup::Ends && !hangup_is_ignored();
        let hangup = if ends { Some(signal(SignalKind::hangup())?) } else { None };
        bound_waiting()?;
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hangup,
            seen: 0,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Urgency {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
            _ = hangup => {}
        }
        self.seen += 1;
        if self.seen == 1 { Urgency::Ask } else { Urgency::Tell }
    }
}

/// From the first signal on, a server that is away is waited for only so long. With the ten seconds in which results are
/// offered to it again, whoever asked us to stop waits less than half a minute.
pub(crate) const PARTING: Duration = Duration::from_secs(15);

/// Not left to whoever waits for the next signal, which may be busy waiting for the server.
fn bound_waiting() -> std::io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        rota_store::postgres::stop_waiting_after(PARTING);
    });
    Ok(())
}

/// As the kernel says; where it does not, it counts as ignored, which changes nothing.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_else(|_| String::new());
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Bit 0 is signal 1, HUP.
    mask.is_none_or(|mask| mask & 1 != 0)
}
