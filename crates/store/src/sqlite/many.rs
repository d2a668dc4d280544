//! Many tasks by one statement. Each statement costs about as much as what it does to one row, so a batch is read and
//! written by as few as possible.

use rota_core::{Json, Status, TaskId, UnixMillis};

use super::row;
use super::sql::ForMany;
use super::tx::SqliteTx;
use crate::fault::Fault;
use crate::tx::{SettlementRow, Transition, fields_differ};

/// What tasks that move alike get. None keeps what each has.
#[derive(PartialEq)]
struct Patch<'a> {
    status: Status,
    fences: i64,
    assignee: Option<&'a String>,
    lease_expires_at: Option<UnixMillis>,
    result: Option<&'a Json>,
    updated_at: UnixMillis,
    started_at: Option<&'a UnixMillis>,
    finished_at: Option<&'a UnixMillis>,
}

impl<'a> Patch<'a> {
    /// None for a move that `sql::ForMany::update_leases` cannot say.
    fn of(moved: &Transition<'a>) -> Option<Self> {
        let Transition { old, next, .. } = *moved;
        if !row::is_lease_alone(old, next) || next.events != old.events + 1 || fields_differ(old, next) {
            return None;
        }
        Some(Self {
            status: next.status,
            fences: next.fence.get().cast_signed() - old.fence.get().cast_signed(),
            assignee: anew(&old.assignee, &next.assignee)?,
            lease_expires_at: next.lease_expires_at,
            result: anew(&old.result, &next.result)?,
            updated_at: next.updated_at,
            started_at: anew(&old.started_at, &next.started_at)?,
            finished_at: anew(&old.finished_at, &next.finished_at)?,
        })
    }
}

/// What a field gets, if anything; no answer if it loses what it has.
fn anew<'a, T: PartialEq>(old: &Option<T>, next: &'a Option<T>) -> Option<Option<&'a T>> {
    match next {
        Some(value) if old.as_ref() != Some(value) => Some(Some(value)),
        None if old.is_some() => None,
        _ => Some(None),
    }
}

/// Whether the events of two tasks that move alike have in common what `sql::ForMany::append` says once.
fn of_one_occasion(left: &Transition<'_>, right: &Transition<'_>) -> bool {
    fn occasion<'a>(moved: &Transition<'a>) -> impl PartialEq + use<'a> {
        (moved.kind, moved.old.status, &moved.next.scope, moved.actor, moved.policy)
    }
    occasion(left) == occasion(right)
}

impl SqliteTx {
    pub(super) fn move_all(&mut self, moved: &[Transition<'_>]) -> Result<(), Fault> {
        let for_many = ForMany::of(moved.len());
        let mut rest = moved;
        while let Some(first) = rest.first() {
            let patch = Patch::of(first);
            let alike = |other: &&Transition<'_>| {
                patch.is_some() && Patch::of(other) == patch && of_one_occasion(first, other)
            };
            let count = 1 + rest[1..].iter().take(for_many.most - 1).take_while(alike).count();
            let (group, later) = rest.split_at(count);
            match &patch {
                Some(patch) if group.len() > 1 => self.move_alike(group, patch)?,
                _ => {
                    self.replace(first.old, first.next, &first.standing)?;
                    self.write_event(&first.event())?;
                }
            }
            rest = later;
        }
        Ok(())
    }

    fn move_alike(&self, group: &[Transition<'_>], patch: &Patch<'_>) -> Result<(), Fault> {
        let for_many = ForMany::of(group.len());
        self.bound(&for_many.update_leases, |binder| {
            binder
                .bind(patch.status.word())?
                .bind(patch.fences)?
                .bind(patch.assignee.map(String::as_str))?
                .time(patch.lease_expires_at)?
                .bind(patch.result.map(Json::as_str))?
                .bind(patch.updated_at.get())?
                .time(patch.started_at.copied())?
                .time(patch.finished_at.copied())?;
            for moved in group {
                binder.bind(moved.next.seq.cast_signed())?;
            }
            Ok(())
        })?;
        self.bound(&for_many.append, |binder| {
            if let Some(Transition { old, next, kind, actor, policy, .. }) = group.first() {
                binder.bind(next.scope.as_str())?.bind(next.updated_at.get())?.bind(kind.word())?;
                binder.bind(old.status.word())?.bind(next.status.word())?.bind(actor)?.bind(policy)?;
            }
            for Transition { old, next, fence, data, .. } in group {
                binder.bind(next.id.as_str())?.bind(next.events.cast_signed())?;
                binder.bind(fence.map(|fence| fence.get().cast_signed()))?;
                binder.bind(data.text_with_changes(old, next))?;
            }
            Ok(())
        })
    }

    pub(super) fn rows_to_settle(&self, scope: &str, ids: &[TaskId]) -> Result<Vec<SettlementRow>, Fault> {
        let mut found: Vec<SettlementRow> = Vec::with_capacity(ids.len());
        for group in ids.chunks(ForMany::of(ids.len()).most) {
            let bound = group.iter().map(TaskId::as_str);
            self.each(&ForMany::of(group.len()).settlement, scope, bound, |row| {
                let before = found.last().map(|found| &found.row.task);
                let (row, is_linked) = (row::task_after(row, before)?, row.get(44)?);
                found.push(SettlementRow { row, is_linked });
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// Reads the rows of a query with a scope and a list of texts.
    fn each<'a>(
        &self,
        text: &str,
        scope: &str,
        list: impl Iterator<Item = &'a str>,
        mut read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Fault> {
        let run = || {
            let mut statement = self.statement(text)?;
            let mut binder = row::Binder::new(&mut statement);
            binder.bind(scope)?;
            for value in list {
                binder.bind(value)?;
            }
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next()? {
                read(row)?;
            }
            Ok(())
        };
        run().map_err(|error| self.fault(error))
    }
}
