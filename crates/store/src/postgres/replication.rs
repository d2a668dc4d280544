//! Whether a standby that is promoted has everything that was acknowledged.

use super::PostgresStore;
use super::readback::first_row;
use crate::fault::Fault;

/// The server's settings about standbys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replication {
    /// `synchronous_commit`
    pub commit: String,
    /// `synchronous_standby_names`
    pub standby_names: String,
}

impl Replication {
    /// Whether a commit waits until a standby has it on disk.
    pub fn keeps_what_was_acknowledged(&self) -> bool {
        !self.standby_names.trim().is_empty() && matches!(&*self.commit, "on" | "remote_apply")
    }
}

impl PostgresStore {
    /// Asks the server for its settings.
    pub async fn replication(&self) -> Result<Replication, Fault> {
        let client = self.shared.client().await?;
        let text =
            "SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names')";
        let answer = client.simple_query(text).await.map_err(|error| self.shared.fault(error))?;
        let (commit, standby_names) = first_row(&answer);
        Ok(Replication {
            commit: commit.unwrap_or_default(),
            standby_names: standby_names.unwrap_or_default(),
        })
    }
}
