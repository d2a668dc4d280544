//! MCP over standard input and output: one client, one message per line.

use std::io::Result;
use std::pin::Pin;
use std::task::{Context, Poll};

use rmcp::service::{ServerInitializeError, ServiceExt};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{MESSAGE_BYTES, McpServer};

/// Serves until the client goes away or `stop` says so; calls that are under way are answered first.
pub async fn serve_stdio(server: McpServer, stop: CancellationToken) -> Result<()> {
    // The process is the session, in whichever family the client speaks.
    server.session.begin();
    let (input, output) = stdio_pipes();
    let input = UntilStopped { input, stopped: Box::pin(stop.cancelled_owned()) };
    let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(MESSAGE_BYTES);
    match server.clone().serve(transport).await {
        Ok(running) => {
            running.waiting().await.map_err(std::io::Error::other)?;
        }
        // A client that leaves before it says anything.
        Err(ServerInitializeError::ConnectionClosed(_)) => {}
        Err(error) => return Err(std::io::Error::other(error)),
    }
    server.rest().await;
    Ok(())
}

/// A stream that ends when it is told to: stopping is the same as the client's leaving.
struct UntilStopped<R> {
    input: R,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<R: AsyncRead + Unpin> AsyncRead for UntilStopped<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        match self.stopped.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => Pin::new(&mut self.input).poll_read(cx, buffer),
        }
    }
}
