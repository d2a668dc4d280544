//! Asking a gateway that runs, for `rota gate`: one request over plain HTTP, waited for on this thread.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rota_store::Secret;

use crate::config::Target;
use crate::panel::Panel;

/// How long connecting and a short answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskFault {
    /// Nobody listens there.
    #[error("nobody listens at {0}")]
    NotRunning(String),
    /// It answers something else.
    #[error("the gateway answers {status}: {said}")]
    Refused {
        /// The status.
        status: u16,
        /// What it says.
        said: String,
    },
    /// It is not a gateway, or the connection broke.
    #[error("the gateway does not answer: {0}")]
    Io(#[from] io::Error),
}

/// The state of all gates.
pub fn status(at: &Target, token: &Secret) -> Result<Panel, AskFault> {
    let mut reader = ask(at, token, "GET", "/rota/status", "")?;
    let length = head(&mut reader)?;
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    serde_json::from_slice(&body).map_err(|error| AskFault::Io(io::Error::other(error)))
}

/// Has the configuration read again. What is wrong with it is a refusal with status 422.
pub fn reload(at: &Target, token: &Secret) -> Result<(), AskFault> {
    let mut reader = ask(at, token, "POST", "/rota/reload", "")?;
    head(&mut reader).map(drop)
}

/// A slot, held until it is dropped.
pub struct Slot {
    _connection: BufReader<TcpStream>,
}

/// Waits for a slot of an upstream's gate.
pub fn slot(at: &Target, token: &Secret, upstream: &str, priority: Option<&str>) -> Result<Slot, AskFault> {
    let path = format!("/rota/slot?upstream={upstream}");
    let more = priority.map_or(String::new(), |priority| format!("x-rota-priority: {priority}\r\n"));
    let mut reader = ask(at, token, "POST", &path, &more)?;
    // The head comes with the slot, and that may take any time.
    reader.get_ref().set_read_timeout(None)?;
    head(&mut reader)?;
    Ok(Slot { _connection: reader })
}

fn ask(
    at: &Target,
    token: &Secret,
    method: &str,
    path: &str,
    more: &str,
) -> Result<BufReader<TcpStream>, AskFault> {
    let mut stream = TcpStream::connect((at.host(), at.port())).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => AskFault::NotRunning(at.to_string()),
        _ => AskFault::Io(error),
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let host = format!("host: {}:{}\r\n", at.authority.host(), at.port());
    let shown = format!("authorization: Bearer {}\r\n", token.expose());
    let text = format!("{method} {path} HTTP/1.1\r\n{host}{shown}{more}content-length: 0\r\n\r\n");
    stream.write_all(text.as_bytes())?;
    Ok(BufReader::new(stream))
}

/// Reads a head; the length of what follows where it is said.
fn head(reader: &mut BufReader<TcpStream>) -> Result<Option<usize>, AskFault> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status: u16 = line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let mut length = None;
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
    if status == 200 {
        return Ok(length);
    }
    let mut said = String::new();
    let most = length.unwrap_or(0).min(4_096) as u64;
    reader.take(most).read_to_string(&mut said)?;
    Err(AskFault::Refused { status, said })
}
