//! What people ask the gateway itself, by `rota gate`: how the gates stand, and a slot for a command of theirs.
//!
//! | path | for |
//! |---|---|
//! | `GET /rota/status` | the panel |
//! | `POST /rota/reload` | reading the configuration again; 422 with what is wrong with it |
//! | `POST /rota/slot?upstream=NAME` | a slot, for as long as the answer is read: its first line comes with the slot |

use std::io;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Response};
use http_body::Frame;
use rota_gate::Permit;
use tokio::sync::oneshot;

use crate::headers;
use crate::keeper::Caller;
use crate::refusal::Refusal;
use crate::relay::Reply;
use crate::server::Shared;

/// A slot that a client holds by staying.
pub struct HeldSlot {
    _permit: Permit,
    line: Option<Bytes>,
}

impl HeldSlot {
    /// One line, then nothing, for ever: a server notices when the client goes.
    pub(crate) fn poll_piece(&mut self) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.line.take() {
            Some(line) => Poll::Ready(Some(Ok(Frame::data(line)))),
            None => Poll::Pending,
        }
    }
}

pub(crate) async fn serve(
    shared: &Arc<Shared>,
    parts: &Parts,
    caller: &Caller,
    path: &str,
) -> Result<Response<Reply>, Refusal> {
    if !caller.is_operator {
        return Err(Refusal::NotOperator);
    }
    match (&parts.method, path) {
        (&Method::GET, "rota/status") => {
            let text = serde_json::to_vec(&shared.panel()).unwrap_or_default();
            let mut response = Response::new(Reply::whole(text.into()));
            let kind = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            Ok(response)
        }
        (&Method::POST, "rota/reload") => reload(shared).await,
        (&Method::POST, "rota/slot") => slot(shared, parts).await,
        _ => Err(Refusal::Unknown),
    }
}

async fn reload(shared: &Arc<Shared>) -> Result<Response<Reply>, Refusal> {
    let (answer, answered) = oneshot::channel();
    shared.reloads.try_send(answer).map_err(|_| Refusal::Busy)?;
    match answered.await.map_err(|_| Refusal::Closing)? {
        None => Ok(Response::new(Reply::whole(Bytes::from_static(b"reloaded\n")))),
        Some(problem) => Err(Refusal::NotReloaded(problem)),
    }
}

async fn slot(shared: &Arc<Shared>, parts: &Parts) -> Result<Response<Reply>, Refusal> {
    let query = parts.uri.query().unwrap_or_default();
    let name = query.strip_prefix("upstream=").unwrap_or_default();
    let upstream = shared.upstream(name).ok_or(Refusal::Unknown)?;
    let mut request = rota_gate::Request::new(shared.name_of_exec());
    if let Some(said) = parts.headers.get(headers::PRIORITY) {
        let priority = said.to_str().ok().and_then(|text| text.parse().ok());
        request = request.priority(priority.ok_or(Refusal::Priority)?);
    }
    let granted = upstream.gate.acquire_request(request).await;
    let permit = granted.map_err(|refusal| match refusal {
        rota_gate::Refusal::Quota { .. } => Refusal::Quota(String::new()),
        _ => Refusal::Closing,
    })?;
    let line = Some(Bytes::from_static(b"granted\n"));
    Ok(Response::new(Reply::Slot(Box::new(HeldSlot { _permit: permit, line }))))
}
