//! More connections without a request than the gateway keeps, by somebody without a token.

use std::time::{Duration, Instant};

use rota_testbed::dialogue;
use rota_testbed::provider::Provider;

use super::{Running, answer, config, operator};
use crate::serve::half_open::{allow_descriptors, crowd};
use crate::support::Lab;

#[test]
fn the_next_call_is_answered_at_once() {
    allow_descriptors();
    let provider = Provider::start(dialogue::reply);
    let lab = Lab::new();
    std::fs::write(lab.path().join("rota.yml"), config(&provider, "")).unwrap();
    let gateway = Running::start(&lab);
    let token = operator(lab.path());
    assert!(answer(gateway.ask(&token)).starts_with("HTTP/1.1 200"), "before");
    // The crowd counts: where the gateway is full, connecting waits until it has dropped somebody.
    let since = Instant::now();
    let waiting = crowd(gateway.url.trim_start_matches("http://"), 1_024 + 200);
    assert!(answer(gateway.ask(&token)).starts_with("HTTP/1.1 200"));
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    drop(waiting);
}
