//! Traces of calls, for whoever asks for them: one span per request, sent in batches to an OpenTelemetry collector as
//! OTLP over HTTP, in JSON. A collector that is slow or away costs spans, never a call.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use http::request::Parts;
use rota_store::clock::system_now;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use rota_net::Target;

/// Spans that wait to be sent; more are dropped.
const WAITING: usize = 4_096;
/// Spans in one message.
const BATCH: usize = 512;
/// How long a span waits for others.
const EVERY: Duration = Duration::from_secs(1);
/// How long a collector may take.
const SEND: Duration = Duration::from_secs(10);

/// Takes spans.
#[derive(Clone)]
pub struct Tracer(mpsc::Sender<Value>);

/// A request under way.
pub struct Begun {
    trace: String,
    parent: Option<String>,
    name: String,
    at: i64,
}

impl Tracer {
    /// Begins to send to a collector.
    pub fn start(target: Target, stop: CancellationToken) -> Self {
        let (spans, waiting) = mpsc::channel(WAITING);
        tokio::spawn(send(target, waiting, stop));
        Self(spans)
    }

    /// Ends a span with the status of its answer.
    pub fn end(&self, begun: Begun, status: u16) {
        let now = system_now().get();
        let nanos = |millis: i64| (i128::from(millis) * 1_000_000).to_string();
        let span = json!({
            "traceId": begun.trace,
            "spanId": random(8),
            "parentSpanId": begun.parent.unwrap_or_default(),
            "name": begun.name,
            "kind": 2,
            "startTimeUnixNano": nanos(begun.at),
            "endTimeUnixNano": nanos(now),
            "attributes": [{"key": "http.response.status_code", "value": {"intValue": status.to_string()}}],
            "status": {"code": if status >= 500 { 2 } else { 0 }},
        });
        // Nobody waits for a collector.
        drop(self.0.try_send(span));
    }
}

impl Begun {
    /// A request, within the trace that its `traceparent` names.
    pub fn of(parts: &Parts) -> Self {
        let given = parts.headers.get("traceparent").and_then(|value| value.to_str().ok());
        let parent = given.and_then(parent_of);
        let (trace, parent) = match parent {
            Some((trace, parent)) => (trace, Some(parent)),
            None => (random(16), None),
        };
        Self { trace, parent, name: format!("{} {}", parts.method, parts.uri.path()), at: system_now().get() }
    }
}

/// The trace and span of `00-<trace>-<span>-<flags>`.
fn parent_of(header: &str) -> Option<(String, String)> {
    let mut parts = header.split('-');
    let (_, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let is_id = |text: &str, length: usize| {
        text.len() == length
            && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
            && text.bytes().any(|byte| byte != b'0')
    };
    (is_id(trace, 32) && is_id(span, 16)).then(|| (trace.to_owned(), span.to_owned()))
}

fn random(bytes: usize) -> String {
    let words = bytes.div_ceil(8);
    (0..words).map(|word| format!("{:016x}", RandomState::new().hash_one(word))).collect()
}

async fn send(target: Target, mut waiting: mpsc::Receiver<Value>, stop: CancellationToken) {
    let mut batch = Vec::new();
    loop {
        let is_over = stop.is_cancelled();
        let more = tokio::time::timeout(EVERY, waiting.recv_many(&mut batch, BATCH)).await;
        if !batch.is_empty() {
            let body = message(std::mem::take(&mut batch));
            let headers = [("content-type", "application/json".to_owned())];
            // Spans that a collector does not take are gone.
            drop(tokio::time::timeout(SEND, target.post(&headers, body)).await);
        }
        if is_over || more == Ok(0) {
            return;
        }
    }
}

fn message(spans: Vec<Value>) -> Vec<u8> {
    let service = json!([{"key": "service.name", "value": {"stringValue": "rota"}}]);
    let scope = json!({"name": "rota-serve", "version": env!("CARGO_PKG_VERSION")});
    let message = json!({"resourceSpans": [{
        "resource": {"attributes": service},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }]});
    message.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let good = format!("00-{trace}-{span}-01");
        assert_eq!(parent_of(&good), Some((trace.to_owned(), span.to_owned())));
        for bad in
            ["", "00", "00-xyz-1-01", &format!("00-{}-{span}-01", "0".repeat(32)), &good.to_uppercase()]
        {
            assert_eq!(parent_of(bad), None, "{bad}");
        }
        assert_eq!((random(16).len(), random(8).len()), (32, 16));
    }
}
