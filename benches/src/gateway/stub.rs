//! The provider behind the proxies: answers at once, or streams twenty events, ten milliseconds apart.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Result;

const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":12,"output_tokens":5},"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"object":"chat.completion","created":1}"#;
const EVENT: &str = "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"word \"}}\n\n";
const EVENTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// The body of the stub.
pub fn be_stub() -> Result<()> {
    listen(serve)
}

/// Listens, says on which port, and serves each connection until the process is killed.
pub fn listen<E, F>(serve: impl Fn(TcpStream) -> F) -> Result<()>
where
    F: Future<Output = std::result::Result<(), E>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            // A client that breaks off is none of ours.
            let served = serve(stream);
            tokio::spawn(async move { drop(served.await) });
        }
    })
}

async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let whole = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ANSWER}",
        ANSWER.len()
    );
    let mut buffer = Vec::with_capacity(16_384);
    loop {
        buffer.clear();
        loop {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            if is_whole(&buffer) {
                break;
            }
        }
        let text = String::from_utf8_lossy(&buffer);
        if text.contains("\"stream\":true") || text.contains("\"stream\": true") {
            events(&mut stream).await?;
        } else {
            stream.write_all(whole.as_bytes()).await?;
        }
    }
}

async fn events(stream: &mut TcpStream) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("{:x}\r\n{EVENT}\r\n", EVENT.len());
    stream.write_all(format!("{head}{chunk}").as_bytes()).await?;
    for _ in 1..EVENTS {
        tokio::time::sleep(PAUSE).await;
        stream.write_all(chunk.as_bytes()).await?;
    }
    stream.write_all(b"0\r\n\r\n").await
}

fn is_whole(buffer: &[u8]) -> bool {
    let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let text = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
    let length =
        text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    match length {
        Some(length) => buffer.len() >= head + 4 + length,
        None => !text.contains("transfer-encoding") || buffer.ends_with(b"0\r\n\r\n"),
    }
}
