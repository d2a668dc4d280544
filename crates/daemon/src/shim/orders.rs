//! What a daemon tells a shim: lines on its socket.

use serde::{Deserialize, Serialize};

use super::record::Tenure;
use crate::runner::terminate::Urgency;

/// The longest line.
pub const LINE_BYTES: usize = 4 * 1_024;

/// All that a shim is told; what was told last counts, and nothing is taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Orders {
    /// How long the run may go on.
    pub until: Tenure,
    /// Whether it should end, and how.
    pub end: Option<Urgency>,
}

impl Orders {
    /// What counts after both.
    pub fn and(self, later: Self) -> Self {
        let until = if later.until.stop_at > self.until.stop_at { later.until } else { self.until };
        Self { until, end: self.end.max(later.end) }
    }

    /// As a line.
    pub fn line(&self) -> std::io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self).map_err(std::io::Error::other)?;
        line.push(b'\n');
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::boot::BootTime;

    #[test]
    fn nothing_is_taken_back() {
        let lease = |secs| {
            Tenure::since(BootTime::default().after(Duration::from_secs(secs)), Duration::from_secs(10))
        };
        let of = |secs, end| Orders { until: lease(secs), end };
        for (told, later, wanted) in [
            (of(0, None), of(3, None), of(3, None)),
            (of(3, None), of(0, None), of(3, None)),
            (of(0, Some(Urgency::Ask)), of(3, None), of(3, Some(Urgency::Ask))),
            (of(0, Some(Urgency::Tell)), of(0, Some(Urgency::Ask)), of(0, Some(Urgency::Tell))),
        ] {
            assert_eq!(told.and(later), wanted);
        }
    }
}
