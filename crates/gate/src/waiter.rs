//! Waiting for a slot: the future that `acquire` returns, and the ticket of `try_acquire`.
//!
//! A waiter owns its place. It joins the queue once, is granted its slot there, and leaves when it is dropped, before
//! the grant or between the grant and the next poll.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::clock::Timer;
use super::desk::{Desk, Entered, Turn};
use super::permit::Permit;
use super::{Moment, Refusal, Request, Ticket};

/// Waits for a slot; created by [`Gate::acquire`](crate::Gate::acquire).
///
/// It joins the queue when it is first polled. Dropping it leaves the queue, or frees a slot that was granted
/// meanwhile. Like every future in a queue, it must be polled when it is woken, or dropped.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire {
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    New(Arc<Desk>, Request),
    Waiting(QueuedTicket),
    Done,
}

impl Acquire {
    pub(crate) fn new(desk: Arc<Desk>, request: Request) -> Self {
        Self { stage: Stage::New(desk, request) }
    }
}

impl Future for Acquire {
    type Output = Result<Permit, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (mut ticket, turn) = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::New(desk, request) => match desk.enter(request, context.waker()) {
                Ok(Entered::Started(ticket)) => {
                    return Poll::Ready(Ok(Permit::new(desk, ticket, Duration::ZERO)));
                }
                Ok(Entered::Queued(ticket, opening)) => {
                    (QueuedTicket::new(desk, ticket), Turn::Wait(opening))
                }
                Err(refusal) => return Poll::Ready(Err(refusal)),
            },
            Stage::Waiting(ticket) => {
                let turn = ticket.turn(context);
                (ticket, turn)
            }
            Stage::Done => panic!("polled after it was ready"),
        };
        let turn = ticket.follow(turn, context);
        if turn.is_pending() {
            self.stage = Stage::Waiting(ticket);
        }
        turn
    }
}

/// A place in the queue, returned by [`Gate::try_acquire`](crate::Gate::try_acquire).
///
/// Await it to get the permit. Dropping it leaves the queue, or frees a slot that was granted meanwhile. A ticket
/// that is not awaited can be granted a slot too, and then holds it.
#[derive(Debug)]
#[must_use = "a dropped ticket leaves the queue"]
pub struct QueuedTicket {
    /// `None` once the permit or the refusal has been returned.
    desk: Option<Arc<Desk>>,
    ticket: Ticket,
    timer: Option<Timer>,
}

impl QueuedTicket {
    pub(crate) fn new(desk: Arc<Desk>, ticket: Ticket) -> Self {
        Self { desk: Some(desk), ticket, timer: None }
    }

    /// The current position, 1 being next; `None` once it is out of the queue.
    pub fn position(&self) -> Option<usize> {
        let desk = self.desk.as_ref()?;
        desk.with(|gate, now| {
            gate.advance(now);
            gate.position(self.ticket)
        })
    }
}

impl QueuedTicket {
    fn turn(&self, context: &mut Context<'_>) -> Turn {
        match &self.desk {
            Some(desk) => desk.turn(self.ticket, context.waker()),
            None => panic!("polled after it was ready"),
        }
    }

    /// Performs the next action, and repeats whenever the timer has fired.
    fn follow(&mut self, mut turn: Turn, context: &mut Context<'_>) -> Poll<Result<Permit, Refusal>> {
        loop {
            let opening = match turn {
                Turn::Granted(waited) => return Poll::Ready(self.permit(waited)),
                Turn::Refused(refusal) => {
                    self.desk = None;
                    return Poll::Ready(Err(refusal));
                }
                Turn::Wait(opening) => opening,
            };
            if self.keep_time(opening, context).is_pending() {
                return Poll::Pending;
            }
            turn = self.turn(context);
        }
    }

    fn permit(&mut self, waited: Duration) -> Result<Permit, Refusal> {
        match self.desk.take() {
            Some(desk) => Ok(Permit::new(desk, self.ticket, waited)),
            None => panic!("granted twice"),
        }
    }

    /// Ready at the opening for which this waiter keeps the timer.
    fn keep_time(&mut self, opening: Option<Moment>, context: &mut Context<'_>) -> Poll<()> {
        let Some(at) = opening else {
            self.timer = None;
            return Poll::Pending;
        };
        if !self.timer.as_ref().is_some_and(|timer| timer.is_set_for(at)) {
            self.timer = self.desk.as_ref().map(|desk| desk.clock().timer(at));
        }
        let Some(timer) = &mut self.timer else { return Poll::Pending };
        let fired = timer.poll(context);
        if fired.is_ready() {
            self.timer = None;
        }
        fired
    }
}

impl Future for QueuedTicket {
    type Output = Result<Permit, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let turn = self.turn(context);
        self.follow(turn, context)
    }
}

impl Drop for QueuedTicket {
    fn drop(&mut self) {
        if let Some(desk) = self.desk.take() {
            desk.leave(self.ticket);
        }
    }
}
