//! Calls of one process that come at the same time go to the server together.
//!
//! A statement and its commit cost the server more than what it does for one task. So only a few statements of a kind are
//! at work at a time: who comes then waits, and goes with the others that wait when one of them is back. Who comes alone
//! waits for nobody.

use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::tx::PostgresTx;
use super::{Object, Shared};
use crate::fault::Fault;

/// Statements of a kind that are at work at a time.
const AT_WORK: usize = 4;
/// Calls that go together.
const MOST: usize = 64;

/// A call that others may go with.
pub(super) trait Joint: Send + Sync + Sized + 'static {
    /// What it is answered.
    type Answer: Send;

    /// Where those of its kind wait.
    fn room(shared: &Shared) -> &Mutex<Room<Self>>;
    /// Whether it may go with these.
    fn goes_with(&self, others: &[&Self]) -> bool;
    /// Carries them out as one. Those who get no answer go by themselves: nothing was done for them.
    fn carry_out(
        tx: &mut PostgresTx,
        calls: &[&Self],
    ) -> impl Future<Output = Result<Vec<Self::Answer>, Fault>> + Send;
}

/// Those at work, and those who wait.
pub(super) struct Room<C: Joint> {
    at_work: usize,
    waiting: VecDeque<Waiting<C>>,
}

/// One who waits, with the connection that it brought.
struct Waiting<C: Joint> {
    call: C,
    client: Option<Object>,
    reply: oneshot::Sender<(Option<Object>, Became<C>)>,
}

/// What became of a call that waited.
enum Became<C: Joint> {
    /// It went with others.
    Done(C::Answer),
    /// Nothing was done for it: it goes by itself.
    Alone(Option<Seat<C>>),
    /// It may have been done.
    Unknown(String),
}

/// What a call may do.
pub(super) enum Entry<C: Joint> {
    /// Nothing: it went with others.
    Answered(C::Answer),
    /// Go by itself. The seat is to be kept until it is back.
    Go(Option<Seat<C>>),
}

impl<C: Joint> Default for Room<C> {
    fn default() -> Self {
        Self { at_work: 0, waiting: VecDeque::new() }
    }
}

impl<C: Joint> Room<C> {
    /// The first who waits, and those who may go with it.
    fn next(&mut self) -> Vec<Waiting<C>> {
        let mut going: Vec<Waiting<C>> = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            if waiting.reply.is_closed() {
                continue;
            }
            if going.len() < MOST && waiting.call.goes_with(&calls(&going)) {
                going.push(waiting);
            } else {
                self.waiting.push_back(waiting);
            }
        }
        going
    }
}

fn calls<C: Joint>(list: &[Waiting<C>]) -> Vec<&C> {
    list.iter().map(|waiting| &waiting.call).collect()
}

/// The right to send a statement. When it is given up, those who wait go.
pub(super) struct Seat<C: Joint> {
    shared: Arc<Shared>,
    kind: PhantomData<fn(C)>,
}

impl<C: Joint> Seat<C> {
    fn of(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), kind: PhantomData }
    }
}

impl<C: Joint> Drop for Seat<C> {
    fn drop(&mut self) {
        let going = {
            let mut room = C::room(&self.shared).lock().unwrap_or_else(PoisonError::into_inner);
            let going = room.next();
            if going.is_empty() {
                room.at_work -= 1;
                return;
            }
            going
        };
        let seat = Self::of(&self.shared);
        // Without a runtime nobody is left to be answered.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(go(seat, going)));
        }
    }
}

/// Carries out calls and answers each.
async fn go<C: Joint>(seat: Seat<C>, mut going: Vec<Waiting<C>>) {
    let Some(client) = going.first_mut().and_then(|first| first.client.take()) else { return };
    if let [_] = going[..] {
        // It has a statement of its own, which is faster.
        let alone = going.into_iter().zip([Became::Alone(Some(seat))]);
        let mut client = Some(client);
        return alone.for_each(|(waiting, became)| answer(waiting, &mut client, became));
    }
    let mut tx = PostgresTx::on(Arc::clone(&seat.shared), client);
    let result = C::carry_out(&mut tx, &calls(&going)).await;
    drop(seat);
    let is_part_done = tx.done_before.is_some();
    let mut client = tx.into_client();
    let problem =
        result.as_ref().err().filter(|fault| is_part_done || may_be_done(fault)).map(Fault::to_string);
    let mut answers = result.unwrap_or_default().into_iter();
    for waiting in going {
        let became = match (answers.next(), &problem) {
            (Some(answer), _) => Became::Done(answer),
            (None, Some(problem)) => Became::Unknown(problem.clone()),
            (None, None) => Became::Alone(None),
        };
        answer(waiting, &mut client, became);
    }
}

/// Answers who may still wait, and gives it back a connection, `client` if it lent its own.
fn answer<C: Joint>(waiting: Waiting<C>, client: &mut Option<Object>, became: Became<C>) {
    let client = waiting.client.or_else(|| client.take());
    // Who went away leaves its connection to the pool, and its seat to the next.
    drop(waiting.reply.send((client, became)));
}

/// Whether something may have been done. After any other fault each finds out for itself.
fn may_be_done(fault: &Fault) -> bool {
    matches!(fault, Fault::OutcomeUnknown { .. } | Fault::Unreadable { .. })
}

impl Shared {
    /// A seat, if one is free; else the call waits for its answer.
    fn seat_or_wait<C: Joint>(self: &Arc<Self>, waiting: impl FnOnce() -> Waiting<C>) -> Option<Seat<C>> {
        let mut room = C::room(self).lock().unwrap_or_else(PoisonError::into_inner);
        if room.at_work < AT_WORK {
            room.at_work += 1;
            return Some(Seat::of(self));
        }
        room.waiting.push_back(waiting());
        None
    }
}

impl PostgresTx {
    /// Goes with others if many are at work.
    pub(super) async fn enter<C: Joint>(&mut self, call: impl FnOnce() -> C) -> Result<Entry<C>, Fault> {
        let shared = Arc::clone(&self.shared);
        let mut waits = None;
        let seat = shared.seat_or_wait(|| {
            let (reply, answer) = oneshot::channel();
            waits = Some(answer);
            Waiting { call: call(), client: self.client.take(), reply }
        });
        let Some(answer) = waits else { return Ok(Entry::Go(seat)) };
        let Ok((client, became)) = answer.await else {
            return Err(shared.unknown("the call that it went with was given up"));
        };
        self.client = match client {
            Some(client) => Some(client),
            None => Some(shared.client().await.map_err(|fault| match became {
                Became::Alone(_) => fault,
                Became::Done(_) | Became::Unknown(_) => shared.unknown(&fault.to_string()),
            })?),
        };
        match became {
            Became::Done(answer) => Ok(Entry::Answered(answer)),
            Became::Unknown(problem) => Err(shared.unknown(&problem)),
            Became::Alone(seat) => Ok(Entry::Go(seat)),
        }
    }
}
