//! Very many waiters, and time that runs backwards.

use super::*;

impl PureGate {
    /// Room held for requests and waiters, used or not.
    fn capacity(&self) -> usize {
        let queues: usize = self.groups.iter().map(|group| group.queue.capacity()).sum();
        queues + self.entries.capacity() + self.ids.capacity() + self.effects.capacity()
    }
}

fn crowd(waiters: usize) -> (PureGate, Vec<Ticket>) {
    let config = GateConfig { max_concurrent: 1, ..GateConfig::default() };
    let mut gate = PureGate::new(&config).unwrap();
    gate.request(Moment::ZERO, Request::new("runs")).unwrap();
    let mut tickets = Vec::with_capacity(waiters);
    for number in 0..waiters {
        let now = Moment::from_micros(number as u64);
        let request = Request::new(number.to_string()).priority(Priority::ALL[number % 4]);
        let Ok(Admission::Queued(ticket)) = gate.request(now, request) else {
            panic!("one slot, one runner")
        };
        tickets.push(ticket);
    }
    (gate, tickets)
}

/// A million waiters cancelled in random order: no panic, memory returns.
#[test]
fn a_million_waiters_leave_and_their_memory_returns() {
    const WAITERS: usize = 1_000_000;
    let (mut gate, mut tickets) = crowd(WAITERS);
    assert_eq!(gate.counters.stats.peak_queue_depth, WAITERS);
    // A fixed shuffle: every run is the same run.
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    for last in (1..WAITERS).rev() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        tickets.swap(last, (seed % (last as u64 + 1)) as usize);
    }
    let now = Moment::from_secs(3);
    for ticket in tickets {
        assert!(gate.leave(now, ticket).is_some());
    }
    assert_eq!((gate.queued, gate.running, gate.counters.stats.cancelled), (0, 1, WAITERS as u64));
    assert!(gate.capacity() < 4_096, "room for {} kept", gate.capacity());
}

/// Refused all at once, they leave no memory behind either.
#[test]
fn a_quota_empties_a_long_queue() {
    let (mut gate, tickets) = crowd(100_000);
    let runs = gate.ticket_of(&"runs".into()).unwrap();
    gate.finish(Moment::from_secs(1), runs, Outcome::Quota { resets_in: None }).unwrap();
    let mut refused = 0;
    while let Some(effect) = gate.next_effect() {
        assert!(matches!(effect, Effect::Refused(_, Refusal::Quota { resets_in: None }, ())));
        refused += 1;
    }
    assert_eq!((refused, gate.queued, gate.running), (tickets.len(), 0, 0));
    assert!(gate.capacity() < 4_096, "room for {} kept", gate.capacity());
}

/// P8: a slot that was given and not collected is no start; a block in between takes it back, the place stays.
#[test]
fn a_block_takes_back_what_was_not_collected() {
    let config = GateConfig { max_concurrent: 3, ..GateConfig::default() };
    let mut gate = <PureGate>::new(&config).unwrap();
    let now = Moment::from_secs(1);
    let runs = ["a", "b", "c"].map(|id| gate.request(Moment::ZERO, Request::new(id)).unwrap());
    let waits = ["d", "e", "f"].map(|id| match gate.request(Moment::ZERO, Request::new(id)).unwrap() {
        Admission::Queued(ticket) => ticket,
        Admission::Started(_) => panic!("three slots, three runners"),
    });
    let [a, b, c] = runs.map(|run| match run {
        Admission::Started(ticket) => ticket,
        Admission::Queued(_) => panic!("three slots"),
    });
    let success = Outcome::Success(Usage::default());
    gate.finish(now, a, success).unwrap();
    gate.finish(now, b, success).unwrap();
    assert_eq!(gate.next_effect(), Some(Effect::Started(waits[0], ())));
    assert_eq!(gate.next_effect(), Some(Effect::Started(waits[1], ())));
    let before = gate.stats();
    gate.finish(now, c, Outcome::RateLimited { retry_after: None }).unwrap();
    assert_eq!((gate.running, gate.queued), (0, 3));
    assert_eq!(gate.stats().scheduled, before.scheduled - 2);
    assert_eq!(gate.groups[0].window.used(now), 3);
    assert_eq!(waits.map(|ticket| gate.position(ticket)), [Some(1), Some(2), Some(3)]);
    assert_eq!(gate.collect(waits[0]), None, "not before the block ends");
    gate.advance(Moment::from_secs(6));
    assert_eq!(gate.next_effect(), Some(Effect::Started(waits[0], ())));
    assert_eq!(gate.collect(waits[0]), Some(Duration::from_secs(6)));
}

#[test]
fn time_never_runs_backwards() {
    let mut gate =
        <PureGate>::new(&GateConfig { max_requests_per_window: 1, ..GateConfig::default() }).unwrap();
    gate.request(Moment::from_secs(100), Request::new("a")).unwrap();
    assert_eq!(
        gate.try_request(Moment::from_secs(1), Request::new("b")),
        Answer::RateLimited { retry_after: Some(Duration::from_secs(60)) }
    );
    gate.advance(Moment::from_secs(5));
    assert_eq!(gate.now, Moment::from_secs(100));
}
