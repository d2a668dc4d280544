//! Connections to one provider. A link carries one call at a time and is driven by whoever uses it, not by a task of its
//! own: dropping the call closes it, in every phase, and the provider notices.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::Response;
use http_body::{Frame, SizeHint};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::bound::Bound;
use crate::config::Target;
use crate::limits;
use crate::wire::{self, Framing, Next};

/// Up to here a body is copied behind its head: one piece to write costs less than two.
const COPIED_BYTES: usize = 4 * 1_024;

/// Why no answer began.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The provider has not all of the request; it may be sent again.
    NotConnected,
    /// The provider may have worked on it.
    Broken,
    /// The provider says nothing.
    Silent,
}

/// What a provider is sent.
pub(crate) struct Question<'a, W> {
    /// Writes the head.
    pub head: W,
    pub body: &'a Bytes,
    /// Whether only the head of the answer is asked for.
    pub is_for_head: bool,
}

/// A connection that speaks HTTP/1.1.
pub(crate) struct Link {
    stream: Stream,
    outgoing: Outgoing,
    /// Read, and not taken yet.
    incoming: BytesMut,
    /// How much is read at once.
    room: usize,
    framing: Framing,
    /// Whether another answer may follow this one.
    is_kept: bool,
    silence: Bound,
    /// Since when somebody waits for the provider, if so.
    waits_since: Option<Instant>,
}

impl Link {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            outgoing: Outgoing::default(),
            incoming: BytesMut::new(),
            room: limits::READ_BYTES,
            framing: Framing::Over,
            is_kept: true,
            silence: Bound::default(),
            waits_since: None,
        }
    }

    /// Sends a request and waits for the head of the answer, which may come before all was sent.
    async fn ask<W: Fn(&mut Vec<u8>)>(
        &mut self,
        question: &Question<'_, W>,
    ) -> Result<Response<()>, NoAnswer> {
        self.outgoing.begin(&question.head, question.body);
        self.waits_since = None;
        poll_fn(|cx| {
            self.outgoing.drive(&mut self.stream, cx);
            loop {
                match wire::take_head(&mut self.incoming, question.is_for_head) {
                    Err(wire::Malformed) => return Poll::Ready(Err(NoAnswer::Broken)),
                    Ok(None) => {}
                    Ok(Some(head)) => {
                        (self.framing, self.is_kept) = (head.framing, head.is_kept);
                        self.waits_since = None;
                        return Poll::Ready(Ok(head.answer));
                    }
                }
                match self.poll_read(cx) {
                    Poll::Ready(Ok(count)) if count > 0 => {}
                    Poll::Ready(_) if self.outgoing.sent == 0 => {
                        return Poll::Ready(Err(NoAnswer::NotConnected));
                    }
                    Poll::Ready(_) => return Poll::Ready(Err(NoAnswer::Broken)),
                    Poll::Pending if self.is_silent(cx) => return Poll::Ready(Err(NoAnswer::Silent)),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// The next piece of the answer; nothing once it is over. An answer that was cut, or whose provider has said nothing
    /// for too long, is an error.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            match self.framing.take(&mut self.incoming) {
                Err(wire::Malformed) => return Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into()))),
                Ok(Next::Over) => return Poll::Ready(None),
                Ok(Next::Piece(piece)) => {
                    self.waits_since = None;
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                Ok(Next::Trailers(trailers)) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Ok(Next::Unknown) => {}
            }
            self.outgoing.drive(&mut self.stream, cx);
            match self.poll_read(cx) {
                // A provider that broke off while it was sent something has not ended its answer.
                Poll::Ready(Ok(0)) if self.framing == Framing::UntilClose && !self.outgoing.is_broken => {
                    self.framing = Framing::Over;
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending if self.is_silent(cx) => {
                    return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether the answer is over.
    pub fn is_over(&self) -> bool {
        self.framing == Framing::Over
    }

    /// How much of the answer is left.
    pub fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Length(left) => SizeHint::with_exact(left),
            _ => SizeHint::default(),
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Pieces that are still on their way out keep the buffer: another one only when there is need.
        if self.incoming.capacity() - self.incoming.len() < self.room / 4 {
            self.incoming.reserve(self.room);
        }
        let polled = pin!(self.stream.read_buf(&mut self.incoming)).poll(cx);
        match polled {
            Poll::Ready(Ok(count)) if count >= self.room => {
                self.room = (self.room * 2).min(limits::READ_MOST_BYTES);
            }
            Poll::Pending if self.incoming.is_empty() => self.rest(),
            _ => {}
        }
        polled
    }

    /// Whether the provider has said nothing for too long, of all that waits.
    fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        self.silence.poll(since + limits::SILENCE, cx).is_ready()
    }

    /// Whether another call could use it, as far as it is known.
    fn is_reusable(&self) -> bool {
        self.is_over() && self.is_kept && self.incoming.is_empty() && self.outgoing.is_done
    }

    /// Whether the provider has closed it meanwhile, or says what nobody asked for. Nobody is woken for that.
    fn is_lost(&mut self) -> bool {
        let mut byte = [0];
        let look = poll_fn(|cx| Pin::new(&mut self.stream).poll_read(cx, &mut ReadBuf::new(&mut byte)));
        // Also where the task has had its share of this turn.
        pin!(unconstrained(look)).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Gives back what only an answer that comes fast needs.
    fn rest(&mut self) {
        if self.room > limits::READ_BYTES {
            (self.incoming, self.room) = (BytesMut::new(), limits::READ_BYTES);
        }
    }
}

/// A request on its way out.
#[derive(Default)]
struct Outgoing {
    head: Vec<u8>,
    /// Gone once it was sent.
    body: Bytes,
    sent: usize,
    /// All of it is with the system.
    is_done: bool,
    /// The provider takes no more; what it has said may still be read.
    is_broken: bool,
}

impl Outgoing {
    fn begin(&mut self, write_head: impl Fn(&mut Vec<u8>), body: &Bytes) {
        self.head.clear();
        write_head(&mut self.head);
        if body.len() <= COPIED_BYTES {
            self.head.extend_from_slice(body);
        } else {
            self.body = body.clone();
        }
        (self.sent, self.is_done, self.is_broken) = (0, false, false);
    }

    /// Writes as much as the provider takes.
    fn drive(&mut self, stream: &mut Stream, cx: &mut Context<'_>) {
        if self.is_done || self.is_broken {
            return;
        }
        while self.sent < self.head.len() + self.body.len() {
            let head = self.head.get(self.sent..).unwrap_or_default();
            let body = self.body.get(self.sent.saturating_sub(self.head.len())..).unwrap_or_default();
            let stream = Pin::new(&mut *stream);
            let written = match (head, body) {
                (head, []) => stream.poll_write(cx, head),
                ([], body) => stream.poll_write(cx, body),
                (head, body) => {
                    stream.poll_write_vectored(cx, &[io::IoSlice::new(head), io::IoSlice::new(body)])
                }
            };
            match written {
                Poll::Ready(Ok(count)) if count > 0 => self.sent += count,
                Poll::Ready(_) => return self.give_up(),
                Poll::Pending => return,
            }
        }
        match Pin::new(stream).poll_flush(cx) {
            Poll::Ready(Ok(())) => (self.is_done, self.body) = (true, Bytes::new()),
            Poll::Ready(Err(_)) => self.give_up(),
            Poll::Pending => {}
        }
    }

    fn give_up(&mut self) {
        (self.is_broken, self.body) = (true, Bytes::new());
    }
}

/// The links to one provider that nobody uses now, and how to make more.
pub(crate) struct Links {
    target: Target,
    tls: Option<TlsConnector>,
    idle: Mutex<Vec<(Box<Link>, Instant)>>,
}

impl Links {
    pub fn new(target: Target, tls: &TlsConnector) -> Self {
        let tls = target.is_tls.then(|| tls.clone());
        Self { target, tls, idle: Mutex::default() }
    }

    /// Sends a request and waits for the head of the answer. A link that was used before may have been closed by the
    /// provider meanwhile: then it is sent on a new one, unless it was sent already.
    pub async fn ask<W: Fn(&mut Vec<u8>)>(
        &self,
        question: Question<'_, W>,
    ) -> Result<(Response<()>, Box<Link>), NoAnswer> {
        if let Some(mut link) = self.idle_link() {
            match link.ask(&question).await {
                Ok(answer) => return Ok((answer, link)),
                Err(NoAnswer::NotConnected) => drop(link),
                Err(other) => return Err(other),
            }
        }
        let mut link = Box::pin(self.connect()).await?;
        let answer = link.ask(&question).await?;
        Ok((answer, link))
    }

    /// Takes back a link whose answer has ended.
    pub fn give_back(&self, mut link: Box<Link>) {
        if !link.is_reusable() {
            return;
        }
        link.rest();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < limits::IDLE_LINKS {
            idle.push((link, Instant::now()));
        }
    }

    /// How many nobody uses.
    pub fn idle_count(&self) -> usize {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn idle_link(&self) -> Option<Box<Link>> {
        loop {
            let (mut link, since) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if since.elapsed() < limits::IDLE && !link.is_lost() {
                return Some(link);
            }
        }
    }

    /// Closes links that were not used for long.
    pub fn tidy(&self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, since)| since.elapsed() < limits::IDLE);
    }

    async fn connect(&self) -> Result<Box<Link>, NoAnswer> {
        let opened = timeout(limits::CONNECT, self.open()).await;
        let stream = opened.map_err(|_| NoAnswer::NotConnected)?.map_err(|_| NoAnswer::NotConnected)?;
        Ok(Box::new(Link::new(stream)))
    }

    async fn open(&self) -> io::Result<Stream> {
        let tcp = TcpStream::connect((self.target.host(), self.target.port())).await?;
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Stream::Plain(tcp)) };
        let name = ServerName::try_from(self.target.host().to_owned()).map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(tls.connect(name, tcp).await?)))
    }
}

/// With TLS or without.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
