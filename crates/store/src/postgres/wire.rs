//! The bytes between us and the server, plain or encrypted, and the one message we listen to ourselves.
//!
//! Whoever answers says at the start which process serves us. If the server, asked, names another one, someone stands
//! between: a pooler, which may give each transaction another connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A message longer than this at the start is none that we wait for.
const LONGEST: usize = 64 * 1024;

/// A connection's bytes.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The process that serves us, 0 until it was named.
#[derive(Clone, Default)]
pub(super) struct Served(Arc<AtomicI32>);

impl Served {
    pub fn by(&self) -> i32 {
        self.0.load(Ordering::Acquire)
    }
}

/// A stream that hears which process serves us.
pub(super) struct Wire {
    stream: Stream,
    served: Served,
    /// What was read of the messages of the start; none once we know.
    heard: Option<Vec<u8>>,
}

impl Wire {
    pub fn new(stream: Stream) -> (Self, Served) {
        let served = Served::default();
        (Self { stream, served: served.clone(), heard: Some(Vec::new()) }, served)
    }

    fn hear(&mut self, bytes: &[u8]) {
        let Some(heard) = &mut self.heard else { return };
        heard.extend_from_slice(bytes);
        match process_in(heard) {
            Heard::More if heard.len() <= LONGEST => {}
            Heard::Process(process) => {
                self.served.0.store(process, Ordering::Release);
                self.heard = None;
            }
            Heard::More | Heard::Nobody => self.heard = None,
        }
    }
}

enum Heard {
    More,
    Process(i32),
    Nobody,
}

/// Goes through whole messages (kind, length, body) until one names the process (`K`) or the start is over (`Z`).
fn process_in(mut bytes: &[u8]) -> Heard {
    loop {
        let [kind, a, b, c, d, rest @ ..] = bytes else { return Heard::More };
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let Some(body) = length.checked_sub(4) else { return Heard::Nobody };
        if rest.len() < body {
            return Heard::More;
        }
        match (kind, rest) {
            (b'K', [a, b, c, d, ..]) => return Heard::Process(i32::from_be_bytes([*a, *b, *c, *d])),
            (b'Z' | b'E', _) => return Heard::Nobody,
            _ => bytes = &rest[body..],
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if self.heard.is_some() && matches!(read, Poll::Ready(Ok(()))) {
            self.hear(&buffer.filled()[before..]);
        }
        read
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_heard_however_the_bytes_come() {
        let mut start = vec![b'R', 0, 0, 0, 8, 0, 0, 0, 0];
        start.extend([b'S', 0, 0, 0, 8, b'a', 0, b'b', 0]);
        start.extend([b'K', 0, 0, 0, 12, 0, 0, 1, 2, 9, 9, 9, 9]);
        for end in 0..start.len() {
            assert!(matches!(process_in(&start[..end]), Heard::More), "{end}");
        }
        assert!(matches!(process_in(&start), Heard::Process(258)));
        assert!(matches!(process_in(&[b'Z', 0, 0, 0, 5, b'I']), Heard::Nobody));
        assert!(matches!(process_in(&[b'?', 0, 0, 0, 1]), Heard::Nobody));
    }
}
