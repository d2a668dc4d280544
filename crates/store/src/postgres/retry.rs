//! When to try again: after a lost race, and while the server is away for a moment, both for a bounded time.

use std::time::Duration;

use tokio::time::Instant;

use crate::fault::Fault;

/// How often a transaction that lost a race is tried again.
const RACES: u32 = 10;
/// How long a server may be away before that is told: a restart takes a second or two.
pub(super) const AWAY: Duration = Duration::from_secs(10);
/// The same for programs that ask again by themselves, and have other things to do meanwhile.
pub(super) const AWAY_SHORT: Duration = Duration::from_secs(1);
/// The longest pause between two tries to reach it.
const LONGEST: Duration = Duration::from_millis(250);

/// What was tried so far. Only for faults after which nothing was written.
pub(super) struct Retry {
    races: u32,
    away: Option<(Instant, Duration)>,
    /// How long a server that is away is waited for.
    patience: Duration,
}

impl Retry {
    pub fn new(patience: Duration) -> Self {
        Self { races: 0, away: None, patience }
    }

    /// Waits a moment before the next try, or gives the fault back if there is none.
    pub async fn pause_after(&mut self, fault: Fault) -> Result<(), Fault> {
        let pause = match &fault {
            Fault::LostRace { .. } if self.races + 1 < RACES => {
                self.races += 1;
                // Others were first; a moment that grows, so that the same racers do not meet again.
                Duration::from_millis(u64::from(self.races * self.races))
            }
            Fault::Away { .. } => {
                let (since, pause) = *self.away.get_or_insert((Instant::now(), Duration::from_millis(1)));
                if since.elapsed() >= self.patience {
                    return Err(fault);
                }
                self.away = Some((since, (pause * 2).min(LONGEST)));
                pause
            }
            _ => return Err(fault),
        };
        tokio::time::sleep(pause).await;
        Ok(())
    }
}
