//! One task with what stands around it, by one statement. Most tasks stand alone, which a short one tells; for the others
//! that is forgotten, and a longer one has a row for each blocker, or one without.

use rota_core::TaskId;
use rota_core::obstacle::ParentFact;
use rusqlite::params;
use rusqlite::types::ValueRef;

use super::row::{self, TASK_COLUMNS};
use super::{SqliteTx, sql};
use crate::fault::Fault;
use crate::in_context::InContext;
use crate::tx::Blocker;

const PARENT: usize = TASK_COLUMNS;
const BLOCKER: usize = PARENT + 2;

impl SqliteTx {
    pub(super) fn look_around(&self, scope: &str, id: &TaskId) -> Result<Option<InContext>, Fault> {
        let found = self.one(sql::TASK_TO_READ, params![scope, id.as_str()], |row| {
            Ok((row::task(row)?, row.get::<_, bool>(TASK_COLUMNS)?))
        })?;
        let Some((row, has_blockers)) = found else { return Ok(None) };
        if !has_blockers && row.task.parent.is_none() {
            return Ok(Some(InContext { row, parent: None, blockers: Vec::new() }));
        }
        self.has_asked.set(false);
        self.all_around(scope, id)
    }

    fn all_around(&self, scope: &str, id: &TaskId) -> Result<Option<InContext>, Fault> {
        let mut found: Option<InContext> = None;
        self.fold(sql::IN_CONTEXT, params![scope, id.as_str()], &mut found, |row, found| {
            let blocker = blocker(row)?;
            match found {
                Some(found) => found.blockers.extend(blocker),
                None => {
                    let blockers = blocker.into_iter().collect();
                    *found = Some(InContext { row: row::task(row)?, parent: parent(row)?, blockers });
                }
            }
            Ok(())
        })?;
        Ok(found)
    }
}

fn blocker(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Blocker>> {
    let is_none = row.get_ref(BLOCKER)? == ValueRef::Null;
    (!is_none).then(|| row::blocker(row, BLOCKER)).transpose()
}

fn parent(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<ParentFact>> {
    let is_none = row.get_ref(PARENT)? == ValueRef::Null;
    let read = || Ok(ParentFact { status: row::status(row, PARENT)?, iteration: row.get(PARENT + 1)? });
    (!is_none).then(read).transpose()
}
