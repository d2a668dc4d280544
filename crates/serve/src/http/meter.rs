//! Prometheus metrics. What is counted of tasks is counted now and then by somebody who has time, and kept: a scrape only
//! prints. What happens is counted from the journal since the first scrape, what is refused and how long calls take by
//! the server itself. Where nobody scrapes, nothing is counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rota_core::supervisor::Standing;
use rota_core::{TaskId, UnixMillis};
use rota_gateway::panel::{Cause, GateView, Panel, WindowView};
use rota_store::Cursor;
use rota_verbs::log::{EventPayload, placed, tail};
use rota_verbs::overview::{Overview, overview};
use rota_verbs::{Context, Result};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::Settings;

/// The shortest time between two counts.
const SHORTEST: Duration = Duration::from_secs(1);
/// After so long without a scrape nothing is counted any more.
const FORGOTTEN: Duration = Duration::from_secs(300);
/// A count may take one part of so many of a thread's time.
const SHARE: u32 = 100;
/// How many events are read at once.
const PAGE: usize = 1_000;
/// How many tasks that wait are remembered, to say how long they did.
const REMEMBERED: usize = 100_000;
/// Seconds: calls of a store are fast, agents are not.
const CALL_BOUNDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
const TASK_BOUNDS: [f64; 12] =
    [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0, 43_200.0, 86_400.0];

/// Everything that is measured.
#[derive(Clone, Default)]
pub struct Meter {
    readings: Arc<Mutex<Readings>>,
    scraped: Arc<Notify>,
    counted: Arc<watch::Sender<bool>>,
}

#[derive(Default)]
struct Readings {
    scraped_at: Option<Instant>,
    place: Option<Cursor>,
    seen: Option<Overview>,
    counted_in: Duration,
    panel: Option<Panel>,
    cycles: Option<Standing>,
    ticks: Histogram,
    claims: u64,
    outcomes: BTreeMap<String, u64>,
    refusals: BTreeMap<String, u64>,
    calls: BTreeMap<&'static str, Histogram>,
    waits: Histogram,
    runs: Histogram,
    ready: BTreeMap<TaskId, UnixMillis>,
    running: BTreeMap<String, UnixMillis>,
}

/// How often how long.
#[derive(Clone, Default)]
struct Histogram {
    buckets: [u64; 12],
    count: u64,
    sum: f64,
}

impl Histogram {
    fn note(&mut self, seconds: f64, bounds: &[f64; 12]) {
        for (bucket, bound) in self.buckets.iter_mut().zip(bounds) {
            *bucket += u64::from(seconds <= *bound);
        }
        self.count += 1;
        self.sum += seconds;
    }

    fn print(&self, text: &mut String, name: &str, labels: &str, bounds: &[f64; 12]) {
        let comma = if labels.is_empty() { "" } else { "," };
        for (bucket, bound) in self.buckets.iter().zip(bounds) {
            put(text, format_args!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {bucket}"));
        }
        put(text, format_args!("{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", self.count));
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        put(text, format_args!("{name}_sum{braces} {}", self.sum));
        put(text, format_args!("{name}_count{braces} {}", self.count));
    }
}

pub(super) fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.push_str(&format!("{line}\n"));
}

impl Meter {
    fn readings(&self) -> std::sync::MutexGuard<'_, Readings> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call took so long, and was refused with this code.
    pub fn note_call(&self, verb: &'static str, took: Duration, refusal: Option<&str>) {
        let mut readings = self.readings();
        readings.calls.entry(verb).or_default().note(took.as_secs_f64(), &CALL_BOUNDS);
        if let Some(code) = refusal {
            *readings.refusals.entry(code.to_owned()).or_default() += 1;
        }
    }

    /// The daemon took so long to look after everything.
    pub fn note_tick(&self, took: Duration) {
        self.readings().ticks.note(took.as_secs_f64(), &CALL_BOUNDS);
    }

    /// Counts and follows until it is told to stop. A store that is away is asked again.
    pub async fn run(self, settings: Arc<Settings>, stop: CancellationToken) {
        let mut next_count = Instant::now();
        loop {
            let scraped_at = self.readings().scraped_at;
            if scraped_at.is_none_or(|at| at.elapsed() > FORGOTTEN) {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.scraped.notified() => {}
                }
            }
            let due = Instant::now() >= next_count;
            let asked = Arc::clone(&settings);
            let beside = tokio::task::spawn_blocking(move || {
                let panel = asked.gates.as_ref().and_then(|gates| gates());
                (panel, asked.cycles.as_ref().and_then(|cycles| cycles()))
            });
            if let Ok((panel, cycles)) = beside.await {
                let mut readings = self.readings();
                (readings.panel, readings.cycles) = (panel, cycles);
            }
            let took = self.look(&settings.context, due).await;
            if due {
                next_count = Instant::now() + (took * SHARE).max(SHORTEST);
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(SHORTEST) => {}
            }
        }
    }

    /// Follows the journal from where it was left, and counts if that is due. How long the count took.
    pub async fn look(&self, cx: &Context, due: bool) -> Duration {
        // A store that is away is asked again.
        drop(self.follow(cx).await);
        let start = Instant::now();
        if due && let Ok(seen) = overview(cx).await {
            let mut readings = self.readings();
            (readings.seen, readings.counted_in) = (Some(seen), start.elapsed());
            drop(readings);
            self.counted.send_replace(true);
        }
        start.elapsed()
    }

    async fn follow(&self, cx: &Context) -> Result<()> {
        loop {
            let place = self.readings().place;
            let Some(place) = place else {
                let cursor = tail(cx, None, 0).await?.cursor;
                self.readings().place = Some(cursor);
                return Ok(());
            };
            let (events, cursor) = placed(cx, place, PAGE).await?;
            let mut readings = self.readings();
            // Somebody else may have looked meanwhile.
            if readings.place == Some(place) {
                events.iter().for_each(|(_, event)| readings.note(event));
                readings.place = Some(cursor);
            }
            if events.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Somebody wants to know.
    pub fn ask(&self) {
        self.readings().scraped_at = Some(Instant::now());
        self.scraped.notify_one();
    }

    /// Until everything was counted once.
    pub async fn counted(&self) {
        // The sender lives as long as we do.
        drop(self.counted.subscribe().wait_for(|counted| *counted).await);
    }

    /// The text that a scraper reads.
    pub fn text(&self) -> String {
        let readings = self.readings();
        let mut text = String::with_capacity(16 * 1_024);
        if let Some(seen) = &readings.seen {
            print_overview(&mut text, seen);
            help(&mut text, "rota_count_seconds", "gauge", "How long the last count of tasks took.");
            put(&mut text, format_args!("rota_count_seconds {}", readings.counted_in.as_secs_f64()));
        }
        if let Some(panel) = &readings.panel {
            print_panel(&mut text, panel);
        }
        if let Some(standing) = &readings.cycles {
            super::cycles::print(&mut text, standing);
        }
        readings.print(&mut text);
        text
    }
}

pub(super) fn help(text: &mut String, name: &str, kind: &str, about: &str) {
    put(text, format_args!("# HELP {name} {about}\n# TYPE {name} {kind}"));
}

/// A label's value: backslash, quote and line break are escaped, as the format wants.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn print_overview(text: &mut String, seen: &Overview) {
    help(text, "rota_tasks", "gauge", "Tasks by queue and state, when they were last counted.");
    for queue in &seen.queues {
        for (state, count) in &queue.counts {
            put(
                text,
                format_args!("rota_tasks{{queue=\"{}\",state=\"{state}\"}} {count}", label(&queue.queue)),
            );
        }
    }
    help(text, "rota_queue_paused", "gauge", "Whether a person holds the queue back.");
    for queue in &seen.queues {
        let paused = u8::from(queue.paused);
        put(text, format_args!("rota_queue_paused{{queue=\"{}\"}} {paused}", label(&queue.queue)));
    }
    help(text, "rota_gate_blocked", "gauge", "Whether calls of an upstream are held back.");
    for block in &seen.blocks {
        let (upstream, blocked) = (label(&block.upstream), u8::from(block.blocked));
        put(text, format_args!("rota_gate_blocked{{upstream=\"{upstream}\"}} {blocked}"));
    }
    help(text, "rota_gate_limits_in_row", "gauge", "Rate limits in a row of an upstream.");
    for block in &seen.blocks {
        put(
            text,
            format_args!("rota_gate_limits_in_row{{upstream=\"{}\"}} {}", label(&block.upstream), block.hits),
        );
    }
    help(text, "rota_tokens_today", "gauge", "Tokens used today (UTC) by model and kind.");
    help(text, "rota_requests_today", "gauge", "Calls let through today (UTC) by model.");
    help(text, "rota_spend_dollars_today", "gauge", "What was spent today (UTC) by model.");
    for used in &seen.usage {
        let labels = format!("upstream=\"{}\",model=\"{}\"", label(&used.upstream), label(&used.model));
        let kinds = [
            ("input", used.input_tokens),
            ("output", used.output_tokens),
            ("cache_read", used.cache_read_tokens),
        ];
        for (kind, tokens) in kinds {
            put(text, format_args!("rota_tokens_today{{{labels},kind=\"{kind}\"}} {tokens}"));
        }
        put(text, format_args!("rota_requests_today{{{labels}}} {}", used.requests));
        // Billionths fit into what a float keeps exactly.
        let dollars = used.usd.nanos() as f64 / 1e9;
        put(text, format_args!("rota_spend_dollars_today{{{labels}}} {dollars}"));
    }
    help(text, "rota_kind_tokens_today", "gauge", "Tokens used today (UTC) by kind of task.");
    help(text, "rota_kind_spend_dollars_today", "gauge", "What was spent today (UTC) by kind of task.");
    for used in &seen.usage_by_kind {
        let kind = label(&used.kind);
        let tokens = [
            ("input", used.input_tokens),
            ("output", used.output_tokens),
            ("cache_read", used.cache_read_tokens),
        ];
        for (word, tokens) in tokens {
            put(text, format_args!("rota_kind_tokens_today{{kind=\"{kind}\",tokens=\"{word}\"}} {tokens}"));
        }
        let dollars = used.usd.nanos() as f64 / 1e9;
        put(text, format_args!("rota_kind_spend_dollars_today{{kind=\"{kind}\"}} {dollars}"));
    }
}

fn print_panel(text: &mut String, panel: &Panel) {
    type Figure = fn(&GateView) -> usize;
    let figures: [(&str, &str, Figure); 4] = [
        ("rota_gate_slots", "Calls that may be under way at once.", |gate| gate.slots),
        ("rota_gate_slots_now", "The same, while nothing or something holds them back.", |gate| {
            gate.slots_now
        }),
        ("rota_gate_running", "Calls under way.", |gate| gate.running),
        ("rota_gate_queued", "Calls that wait for a slot.", |gate| gate.queued),
    ];
    for (name, about, figure) in figures {
        help(text, name, "gauge", about);
        for gate in &panel.upstreams {
            put(text, format_args!("{name}{{upstream=\"{}\"}} {}", label(&gate.upstream), figure(gate)));
        }
    }
    print_counters(text, panel);
    type Fill = fn(&WindowView) -> usize;
    let fills: [(&str, &str, Fill); 2] = [
        ("rota_gate_window_starts", "Calls that began in the last window.", |window| window.starts),
        ("rota_gate_window_size", "Calls that may begin in a window.", |window| window.max_starts),
    ];
    for (name, about, fill) in fills {
        help(text, name, "gauge", about);
        for gate in &panel.upstreams {
            for window in &gate.windows {
                let labels =
                    format!("upstream=\"{}\",group=\"{}\"", label(&gate.upstream), label(&window.group));
                put(text, format_args!("{name}{{{labels}}} {}", fill(window)));
            }
        }
    }
}

fn print_counters(text: &mut String, panel: &Panel) {
    type Count = fn(&GateView) -> f64;
    let counters: [(&str, &str, Count); 6] = [
        ("rota_gate_scheduled_total", "Calls let through.", |gate| gate.scheduled as f64),
        ("rota_gate_completed_total", "Calls that ended.", |gate| gate.completed as f64),
        ("rota_gate_rate_limited_total", "Calls that were pushed back.", |gate| {
            gate.rate_limited_calls as f64
        }),
        ("rota_gate_cancelled_total", "Calls given up while they waited.", |gate| gate.cancelled as f64),
        ("rota_gate_wait_seconds_total", "How long calls waited, together.", |gate| {
            gate.total_wait_ms as f64 / 1_000.0
        }),
        ("rota_gate_run_seconds_total", "How long calls ran, together.", |gate| {
            gate.total_run_ms as f64 / 1_000.0
        }),
    ];
    for (name, about, count) in counters {
        help(text, name, "counter", about);
        for gate in &panel.upstreams {
            put(text, format_args!("{name}{{upstream=\"{}\"}} {}", label(&gate.upstream), count(gate)));
        }
    }
    help(text, "rota_gate_held", "gauge", "Whether a cause holds calls of an upstream back.");
    for gate in &panel.upstreams {
        for cause in Cause::ALL {
            let (upstream, held) = (label(&gate.upstream), u8::from(gate.held_by.contains(&cause)));
            let labels = format!("upstream=\"{upstream}\",cause=\"{}\"", cause.word());
            put(text, format_args!("rota_gate_held{{{labels}}} {held}"));
        }
    }
    if let Some(budget) = &panel.budget {
        help(text, "rota_budget_dollars_per_day", "gauge", "What may be spent in a day (UTC).");
        let dollars = budget.usd_per_day.nanos() as f64 / 1e9;
        put(text, format_args!("rota_budget_dollars_per_day {dollars}"));
    }
}

impl Readings {
    fn note(&mut self, event: &EventPayload) {
        let Some(task) = &event.task else { return };
        if event.event == "granted" {
            self.claims += 1;
            if let Some(since) = self.ready.remove(task) {
                self.waits.note(seconds(since, event.at), &TASK_BOUNDS);
            }
            if let Some(lease) = &event.lease_id {
                self.running.insert(lease.clone(), event.at);
            }
        } else if let Some(outcome) = event.data.outcome {
            *self.outcomes.entry(outcome.to_string()).or_default() += 1;
            if let Some(since) = event.lease_id.as_ref().and_then(|lease| self.running.remove(lease)) {
                self.runs.note(seconds(since, event.at), &TASK_BOUNDS);
            }
        }
        match event.to.as_deref() {
            Some("open") if self.ready.len() < REMEMBERED => drop(self.ready.insert(task.clone(), event.at)),
            Some("open" | "active") | None => {}
            Some(_) => drop(self.ready.remove(task)),
        }
    }

    fn print(&self, text: &mut String) {
        help(text, "rota_claims_total", "counter", "Leases granted, seen in the journal.");
        put(text, format_args!("rota_claims_total {}", self.claims));
        help(text, "rota_settled_total", "counter", "Attempts that ended, by outcome.");
        for (outcome, count) in &self.outcomes {
            put(text, format_args!("rota_settled_total{{outcome=\"{outcome}\"}} {count}"));
        }
        help(text, "rota_lease_expiries_total", "counter", "Leases that ran out and were taken back.");
        let lost = self.outcomes.get("lost").copied().unwrap_or_default();
        put(text, format_args!("rota_lease_expiries_total {lost}"));
        help(text, "rota_refusals_total", "counter", "Calls of this server that were refused, by code.");
        for (code, count) in &self.refusals {
            put(text, format_args!("rota_refusals_total{{code=\"{code}\"}} {count}"));
        }
        help(text, "rota_wait_seconds", "histogram", "From open to granted.");
        self.waits.print(text, "rota_wait_seconds", "", &TASK_BOUNDS);
        help(text, "rota_run_seconds", "histogram", "From granted to settled.");
        self.runs.print(text, "rota_run_seconds", "", &TASK_BOUNDS);
        if self.ticks.count > 0 {
            help(
                text,
                "rota_tick_seconds",
                "histogram",
                "How long the daemon took to look after everything.",
            );
            self.ticks.print(text, "rota_tick_seconds", "", &CALL_BOUNDS);
        }
        help(text, "rota_call_seconds", "histogram", "How long the store took for a verb.");
        for (verb, histogram) in &self.calls {
            histogram.print(text, "rota_call_seconds", &format!("verb=\"{verb}\""), &CALL_BOUNDS);
        }
    }
}

fn seconds(from: UnixMillis, to: UnixMillis) -> f64 {
    to.get().saturating_sub(from.get()).max(0) as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use rota_store::intents::Call;
    use rota_store::intents::blocks::NoteLimit;
    use rota_store::intents::gateway::NoteUsage;
    use rota_store::{Store, UsageRow};
    use rota_verbs::claim::ClaimTask;
    use rota_verbs::create::CreateTask;
    use rota_verbs::loops::AddLoop;
    use rota_verbs::settle::FinishTask;
    use rota_verbs::{Verb, input};

    use rota_testbed::block_on;

    use super::*;

    fn value(text: &str, line: &str) -> Option<f64> {
        text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
    }

    fn done<V: Verb>(cx: &Context, json: &str) {
        let input: V = input::read(json).unwrap_or_else(|error| panic!("{error}"));
        block_on(input.run(cx)).unwrap_or_else(|error| panic!("{error}"));
    }

    /// A short lease is taken back by who comes an hour later.
    fn lose_a_lease(cx: &Context) {
        done::<ClaimTask>(cx, r#"{"lease": 1}"#);
        let later = rota_store::clock::system_now().plus_ms(3_600_000);
        let later = Context { now: Some(later), allow_future: true, ..cx.clone() };
        done::<ClaimTask>(&later, r#"{"lease": 1}"#);
    }

    /// An upstream is blocked, and a loop and somebody without a task used it.
    fn push_back_and_use(cx: &Context) {
        done::<AddLoop>(cx, r#"{"kind": "ralph", "id": "r"}"#);
        let call = Call::in_scope(&cx.scope);
        let limit = NoteLimit {
            call: call.clone(),
            upstream: "anthropic".into(),
            began_at: None,
            retry_after_ms: None,
        };
        block_on(cx.store.perform(&limit)).unwrap_or_else(|error| panic!("{error}"));
        let used = |task: &str, requests, input_tokens, output_tokens, spend_nanos| UsageRow {
            scope: cx.scope.clone(),
            task: task.into(),
            upstream: "anthropic".into(),
            model: "opus".into(),
            requests,
            input_tokens,
            output_tokens,
            spend_nanos,
            ..UsageRow::default()
        };
        let rows = vec![used("r", 1, 1_000, 20, 500_000_000), used("", 2, 10, 30, 250_000_000)];
        block_on(cx.store.perform(&NoteUsage { call, rows })).unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn what_happened_is_what_is_printed() {
        let cx = Context::new(
            block_on(rota_store::AnyStore::open(&rota_store::Location::Memory))
                .unwrap_or_else(|error| panic!("{error}")),
        );
        let meter = Meter::default();
        block_on(meter.look(&cx, true));
        for id in ["a", "b"] {
            done::<CreateTask>(&cx, &format!(r#"{{"id": "{id}", "title": "T"}}"#));
        }
        done::<ClaimTask>(&cx, "{}");
        done::<FinishTask>(&cx, r#"{"id": "a"}"#);
        lose_a_lease(&cx);
        push_back_and_use(&cx);
        meter.note_tick(Duration::from_millis(2));
        let panel = r#"{"upstreams": [{"upstream": "anthropic", "running": 2, "slots": 10, "slotsNow": 5, "queued": 3,
            "rateLimited": false, "hits": 0, "ramping": true, "heldBy": ["ramp"], "calls": [], "scheduled": 9,
            "completed": 8, "rateLimitedCalls": 4, "cancelled": 1, "totalWaitMs": 1500, "totalRunMs": 2000, "peakQueued": 0, "peakRunning": 0, "idleConnections": 0,
            "windows": [{"group": "*", "starts": 7, "maxStarts": 50}]}],
            "budget": {"usdPerDay": "12.50", "usdToday": "0.75", "isSpent": false, "until": "2026-01-02T00:00:00Z"}}"#;
        meter.readings().panel = serde_json::from_str(panel).ok();
        meter.note_call("task claim", Duration::from_millis(3), Some("nothing_eligible"));
        block_on(meter.look(&cx, true));
        let text = meter.text();
        for (line, wanted) in [
            ("rota_tasks{queue=\"tasks\",state=\"active\"}", 1.0),
            ("rota_tasks{queue=\"tasks\",state=\"done\"}", 1.0),
            ("rota_claims_total", 3.0),
            ("rota_settled_total{outcome=\"done\"}", 1.0),
            ("rota_settled_total{outcome=\"lost\"}", 1.0),
            ("rota_lease_expiries_total", 1.0),
            ("rota_gate_blocked{upstream=\"anthropic\"}", 1.0),
            ("rota_gate_limits_in_row{upstream=\"anthropic\"}", 1.0),
            ("rota_tokens_today{upstream=\"anthropic\",model=\"opus\",kind=\"output\"}", 50.0),
            ("rota_requests_today{upstream=\"anthropic\",model=\"opus\"}", 3.0),
            ("rota_spend_dollars_today{upstream=\"anthropic\",model=\"opus\"}", 0.75),
            ("rota_kind_tokens_today{kind=\"ralph\",tokens=\"input\"}", 1_000.0),
            ("rota_kind_tokens_today{kind=\"\",tokens=\"output\"}", 30.0),
            ("rota_kind_spend_dollars_today{kind=\"ralph\"}", 0.5),
            ("rota_refusals_total{code=\"nothing_eligible\"}", 1.0),
            ("rota_wait_seconds_count", 3.0),
            ("rota_run_seconds_count", 2.0),
            ("rota_run_seconds_bucket{le=\"+Inf\"}", 2.0),
            ("rota_gate_slots{upstream=\"anthropic\"}", 10.0),
            ("rota_gate_slots_now{upstream=\"anthropic\"}", 5.0),
            ("rota_gate_running{upstream=\"anthropic\"}", 2.0),
            ("rota_gate_queued{upstream=\"anthropic\"}", 3.0),
            ("rota_gate_window_starts{upstream=\"anthropic\",group=\"*\"}", 7.0),
            ("rota_gate_window_size{upstream=\"anthropic\",group=\"*\"}", 50.0),
            ("rota_gate_scheduled_total{upstream=\"anthropic\"}", 9.0),
            ("rota_gate_completed_total{upstream=\"anthropic\"}", 8.0),
            ("rota_gate_rate_limited_total{upstream=\"anthropic\"}", 4.0),
            ("rota_gate_cancelled_total{upstream=\"anthropic\"}", 1.0),
            ("rota_gate_wait_seconds_total{upstream=\"anthropic\"}", 1.5),
            ("rota_gate_run_seconds_total{upstream=\"anthropic\"}", 2.0),
            ("rota_gate_held{upstream=\"anthropic\",cause=\"ramp\"}", 1.0),
            ("rota_gate_held{upstream=\"anthropic\",cause=\"block\"}", 0.0),
            ("rota_budget_dollars_per_day", 12.5),
            ("rota_tick_seconds_count", 1.0),
            ("rota_call_seconds_bucket{verb=\"task claim\",le=\"0.0025\"}", 0.0),
            ("rota_call_seconds_bucket{verb=\"task claim\",le=\"0.005\"}", 1.0),
        ] {
            assert_eq!(value(&text, line), Some(wanted), "{line}\n{text}");
        }
        let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let once: std::collections::BTreeSet<&&str> = names.iter().collect();
        assert_eq!(names.len(), once.len(), "each metric is described once");
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
