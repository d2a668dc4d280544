//! Connections to one provider. A link is driven by whoever uses it, not by a task of its own: dropping the call closes
//! it, in every phase, and the provider notices.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::bound::Bound;
use crate::config::Target;
use crate::limits;

/// Why no answer began.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// Nothing was sent; it may be sent again.
    NotConnected,
    /// The provider may have worked on it.
    Broken,
    /// The provider says nothing.
    Silent,
}

/// A connection that speaks HTTP/1.1.
pub(crate) struct Link {
    sender: SendRequest<Full<Bytes>>,
    driver: Connection<TokioIo<Stream>, Full<Bytes>>,
    is_closed: bool,
    silence: Bound,
    /// Since when somebody waits for the provider, if so.
    waits_since: Option<Instant>,
}

impl Link {
    /// Moves bytes; whatever this wakes is the one who calls.
    pub fn drive(&mut self, cx: &mut Context<'_>) {
        // Not to be polled again once it has ended.
        self.is_closed = self.is_closed || Pin::new(&mut self.driver).poll(cx).is_ready();
    }

    /// Whether the provider has said nothing for too long, of all that waits.
    pub fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        self.silence.poll(since + limits::SILENCE, cx).is_ready()
    }

    /// The provider has said something.
    pub fn has_spoken(&mut self) {
        self.waits_since = None;
    }

    /// Whether its answer is over, as far as it has noticed.
    fn is_ready(&self) -> bool {
        !self.is_closed && self.sender.is_ready()
    }

    /// Whether another call can use it. Whoever used it last is not woken for that call.
    fn is_free(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.is_ready()
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, NoAnswer> {
        let mut sent = pin!(unconstrained(self.sender.try_send_request(request)));
        // What comes back was never sent.
        let why = |mut error: TrySendError<_>| match error.take_message() {
            Some(_) => NoAnswer::NotConnected,
            None => NoAnswer::Broken,
        };
        self.waits_since = None;
        poll_fn(|cx| {
            self.drive(cx);
            // Only what drives it brings the answer, and whoever drives it looks here next: nobody need be woken, and
            // nothing here waits for its turn.
            match sent.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => Poll::Ready(answer.map_err(why)),
                Poll::Pending if self.is_closed => Poll::Ready(Err(NoAnswer::Broken)),
                Poll::Pending if self.is_silent(cx) => Poll::Ready(Err(NoAnswer::Silent)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
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
    pub async fn call(
        &self,
        request: impl Fn() -> Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Box<Link>), NoAnswer> {
        if let Some(mut link) = self.idle_link() {
            match link.send(request()).await {
                Ok(answer) => return Ok((answer, link)),
                Err(NoAnswer::NotConnected) => drop(link),
                Err(other) => return Err(other),
            }
        }
        let mut link = Box::pin(self.connect()).await?;
        let answer = link.send(request()).await?;
        Ok((answer, link))
    }

    /// Takes back a link whose answer has ended.
    pub fn give_back(&self, mut link: Box<Link>) {
        // Driven only if it must be: until the last piece is written, it would need another buffer.
        if !link.is_ready() && !link.is_free() {
            return;
        }
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
            if since.elapsed() < limits::IDLE && link.is_free() {
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
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(limits::HEAD_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| NoAnswer::NotConnected)?;
        let (silence, waits_since) = (Bound::default(), None);
        Ok(Box::new(Link { sender, driver, is_closed: false, silence, waits_since }))
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

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
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
