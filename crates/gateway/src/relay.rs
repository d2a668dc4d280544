//! The way back: pieces of an answer, one by one, as the client takes them. The permit, the link and the count of what
//! was used live in here, so whatever ends the answer ends them: its end, a cut, the client's hang-up.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use rota_gate::{Outcome, Permit, Usage};
use tokio::time::Sleep;

use crate::headers;
use crate::keeper::{Keeper, Spending};
use crate::link::Link;
use crate::meter::Meter;
use crate::upstream::Upstream;

/// How long a cut waits, so that what came before it reaches the client first: the server drops what it has not yet
/// written when a body fails.
const BEFORE_A_CUT: Duration = Duration::from_millis(20);

/// What a client gets.
pub enum Reply {
    /// All of it.
    Whole(Option<Bytes>),
    /// As it comes.
    Relayed(Box<Relayed>),
    /// A slot, for as long as the client stays.
    Slot(Box<crate::control::HeldSlot>),
}

impl Reply {
    /// All of it.
    pub fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Relayed(relayed) => relayed.poll_piece(cx),
            Self::Slot(slot) => slot.poll_piece(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Relayed(relayed) => relayed.link.is_none(),
            Self::Slot(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Relayed(relayed) => {
                relayed.link.as_ref().map_or(SizeHint::with_exact(0), |link| link.size_hint())
            }
            Self::Slot(_) => SizeHint::default(),
        }
    }
}

/// An answer on its way.
pub struct Relayed {
    /// Gone once the answer is over.
    link: Option<Box<Link>>,
    upstream: Arc<Upstream>,
    tally: Tally,
    cut: Option<Pin<Box<Sleep>>>,
}

impl Relayed {
    pub(crate) fn new(link: Box<Link>, upstream: Arc<Upstream>, tally: Tally) -> Self {
        let mut relayed = Self { link: Some(link), upstream, tally, cut: None };
        // A server asks nothing of a body that is at its end.
        relayed.end_if_over();
        relayed
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.cut.is_some() {
            return self.poll_cut(cx);
        }
        let Some(link) = &mut self.link else { return Poll::Ready(None) };
        match link.poll_piece(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                self.end_if_over();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_))) => self.poll_cut(cx),
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.tally.see(data, link.is_over());
                }
                frame.trailers_mut().into_iter().for_each(headers::strip);
                // A server does not ask again once it has all.
                self.end_if_over();
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let cut = self.cut.get_or_insert_with(|| Box::pin(tokio::time::sleep(BEFORE_A_CUT)));
        match cut.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn end_if_over(&mut self) {
        if let Some(link) = self.link.take_if(|link| link.is_over()) {
            self.upstream.links.give_back(link);
            self.tally.end();
        }
    }
}

/// What one call takes and uses, told when it is over, however that comes.
pub(crate) struct Tally {
    permit: Option<Permit>,
    meter: Meter,
    /// What the gate's token windows know already.
    counted: Usage,
    /// Whether the provider did what it was asked.
    is_success: bool,
    keeper: Arc<Keeper>,
    /// Gone once it was noted.
    spending: Option<Spending>,
}

impl Tally {
    pub fn new(
        permit: Option<Permit>,
        meter: Meter,
        is_success: bool,
        keeper: Arc<Keeper>,
        spending: Spending,
    ) -> Self {
        Self { permit, meter, counted: Usage::default(), is_success, keeper, spending: Some(spending) }
    }

    fn see(&mut self, data: &[u8], is_last: bool) {
        self.meter.feed(data, is_last);
        // What is told at the end need not be told before it.
        if is_last {
            return;
        }
        let news = self.news();
        if news != Usage::default()
            && let Some(permit) = &self.permit
            && permit.count(news).is_ok()
        {
            let counted = &mut self.counted;
            counted.input_tokens = counted.input_tokens.saturating_add(news.input_tokens);
            counted.output_tokens = counted.output_tokens.saturating_add(news.output_tokens);
        }
    }

    /// What the gate does not know yet.
    fn news(&self) -> Usage {
        let reading = self.meter.reading();
        Usage {
            input_tokens: reading.counted_input().saturating_sub(self.counted.input_tokens),
            output_tokens: reading.output.saturating_sub(self.counted.output_tokens),
        }
    }

    fn end(&mut self) {
        self.meter.finish();
        let outcome = match (self.is_success, self.meter.reading().is_overloaded) {
            (_, true) => Outcome::Overloaded { earlier: 0 },
            (true, false) => Outcome::Success(self.news()),
            (false, false) => Outcome::Failed,
        };
        // Noted before the slot is free: the call that gets it is judged with this one paid.
        self.note();
        if let Some(permit) = self.permit.take() {
            // Nobody else ends a call of ours by its name.
            let _advice = permit.report(outcome);
        }
    }

    /// Once, and before the client has the last of it: its next call is judged with this one paid.
    fn note(&mut self) {
        if let Some(spending) = self.spending.take() {
            self.keeper.note(&spending, self.meter.reading());
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.meter.finish();
        self.note();
    }
}
