//! The gates as people see them: the same picture as JSON and as a panel of text.

use std::borrow::Cow;
use std::fmt::Write;

use rota_core::{UnixMillis, Usd};
use rota_gate::{Details, GateState, GroupView, Priority};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keeper::DayBudget;

/// All gates.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Panel {
    /// By name.
    pub upstreams: Vec<GateView>,
    /// The budget of the day, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetView>,
}

/// How the budget of the day stands, for all upstreams together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetView {
    /// Dollars that may be spent in a day of UTC.
    pub usd_per_day: Usd,
    /// Dollars spent today.
    pub usd_today: Usd,
    /// Whether calls are refused for it.
    pub is_spent: bool,
    /// When it begins anew.
    pub until: UnixMillis,
}

impl BudgetView {
    pub(crate) fn of(day: DayBudget) -> Self {
        let DayBudget { limit, spent, until } = day;
        Self { usd_per_day: limit, usd_today: spent, is_spent: day.is_spent(), until }
    }
}

/// Something that holds calls back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// The provider pushed back.
    Block,
    /// The budget of the day is spent.
    Budget,
    /// The window of a group is full, of calls or of tokens.
    Window,
    /// The gate comes back to full speed after a block or an overload.
    Ramp,
    /// Starts are spread over the window.
    Pacing,
    /// All slots are taken.
    Slots,
}

impl Cause {
    /// All of them, the one that holds back the most first.
    pub const ALL: [Self; 6] =
        [Self::Block, Self::Budget, Self::Window, Self::Ramp, Self::Pacing, Self::Slots];

    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Budget => "budget",
            Self::Window => "window",
            Self::Ramp => "ramp",
            Self::Pacing => "pacing",
            Self::Slots => "slots",
        }
    }
}

/// One gate.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateView {
    /// Of which provider.
    pub upstream: String,
    /// Calls under way.
    pub running: usize,
    /// Calls that may be, when nothing holds them back.
    pub slots: usize,
    /// Calls that may be now.
    pub slots_now: usize,
    /// Calls that wait.
    pub queued: usize,
    /// Whether a block lasts or a window is full.
    pub rate_limited: bool,
    /// The block, while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<Block>,
    /// Everything that holds calls back now, the one that does so the most first.
    #[serde(default)]
    pub held_by: Vec<Cause>,
    /// Limits in a row.
    pub hits: u32,
    /// Whether it comes back to full speed.
    pub ramping: bool,
    /// Who runs, then who waits, in the order of the panel.
    pub calls: Vec<CallView>,
    /// Calls that were let through.
    #[serde(default)]
    pub scheduled: u64,
    /// Calls that ended.
    pub completed: u64,
    /// Calls that were pushed back.
    pub rate_limited_calls: u64,
    /// Calls that were given up while they waited.
    pub cancelled: u64,
    /// How long calls waited, together.
    pub total_wait_ms: u64,
    /// How long calls ran, together.
    pub total_run_ms: u64,
    /// The most that waited at once.
    pub peak_queued: usize,
    /// The most that ran at once.
    pub peak_running: usize,
    /// Connections to the provider that nobody uses now.
    pub idle_connections: usize,
    /// The window of each group of models; the last one is that of all others.
    #[serde(default)]
    pub windows: Vec<WindowView>,
}

/// How full a window is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowView {
    /// The group whose budget it is.
    pub group: String,
    /// Calls that began in the last window.
    pub starts: usize,
    /// Calls that may.
    pub max_starts: usize,
}

/// Why nothing goes to a provider.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Block {
    /// A quota is used up.
    pub quota: bool,
    /// For how long yet; none until somebody unblocks it.
    pub ends_in_ms: Option<u64>,
}

/// One call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallView {
    /// Its name.
    pub id: String,
    /// How urgent.
    pub priority: String,
    /// The group whose budget it draws on.
    pub group: String,
    /// Running, or waiting.
    pub is_running: bool,
    /// For how long.
    pub for_ms: u64,
    /// Its place in the line, 1 for the next; none for one that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// Position × average run time ÷ slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_wait_ms: Option<u64>,
}

impl GateView {
    /// Of a gate.
    pub fn of(upstream: &str, details: &Details, idle_connections: usize, is_spent: bool) -> Self {
        let state = &details.state;
        let millis = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let view = |id: &rota_gate::RequestId, priority: Priority, group: &str, is_running, time| CallView {
            id: id.to_string(),
            priority: priority.name().to_owned(),
            group: group.to_owned(),
            is_running,
            for_ms: millis(time),
            position: None,
            estimated_wait_ms: None,
        };
        let running =
            details.running.iter().map(|row| view(&row.id, row.priority, &row.group, true, row.running_for));
        let queued = details.queued.iter().map(|row| CallView {
            position: Some(row.position),
            estimated_wait_ms: Some(millis(row.estimated_wait)),
            ..view(&row.id, row.priority, &row.group, false, row.waiting_for)
        });
        Self {
            upstream: upstream.to_owned(),
            running: state.running,
            slots: state.slots,
            slots_now: state.slots_now,
            queued: state.queued,
            rate_limited: state.rate_limited,
            block: state
                .block
                .map(|block| Block { quota: block.quota, ends_in_ms: block.ends_in.map(millis) }),
            held_by: causes(state, is_spent),
            hits: state.hits,
            ramping: state.ramping,
            calls: running.chain(queued).collect(),
            scheduled: state.stats.scheduled,
            completed: state.stats.completed,
            rate_limited_calls: state.stats.rate_limited,
            cancelled: state.stats.cancelled,
            total_wait_ms: state.stats.total_wait_ms,
            total_run_ms: state.stats.total_run_ms,
            peak_queued: state.stats.peak_queue_depth,
            peak_running: state.stats.peak_concurrent,
            idle_connections,
            windows: details.groups.iter().map(WindowView::of).collect(),
        }
    }
}

fn causes(state: &GateState, is_spent: bool) -> Vec<Cause> {
    let holds = |cause: &Cause| match cause {
        Cause::Block => state.block.is_some(),
        Cause::Budget => is_spent,
        Cause::Window => state.window_full,
        Cause::Ramp => state.ramping,
        Cause::Pacing => state.pacing,
        Cause::Slots => state.running >= state.slots,
    };
    Cause::ALL.into_iter().filter(holds).collect()
}

impl WindowView {
    fn of(group: &GroupView) -> Self {
        Self { group: group.name.to_string(), starts: group.starts, max_starts: group.max_starts }
    }
}

/// The width of what is inside the frame.
const WIDTH: usize = 54;

impl Panel {
    /// One frame per gate.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for view in &self.upstreams {
            frame(&mut text, view);
        }
        text
    }
}

fn frame(text: &mut String, view: &GateView) {
    let title = format!("─ {} ", cut(&rota_core::text::escaped(&view.upstream), WIDTH - 4));
    let _ = writeln!(text, "┌{title:─<WIDTH$}┐");
    let limited = view.limit();
    // Never cut: a quota says here how it ends.
    let header =
        format!("Running: {}/{}  Queued: {}  Rate Limited: {limited}", view.running, view.slots, view.queued);
    let _ = writeln!(text, "│ {header:<0$}│", WIDTH - 1);
    let _ = writeln!(text, "├{:─<WIDTH$}┤", "");
    let label = |call: &CallView| {
        let priority: Priority = call.priority.parse().unwrap_or_default();
        format!("{:<6}", format!("[{}]", priority.label()))
    };
    let seconds = |millis: u64| format!("{}.{}s", millis / 1_000, millis % 1_000 / 100);
    let row = |call: &CallView, state: String| {
        let id = rota_core::text::escaped(&call.id);
        let room = WIDTH - 1 - label(call).len() - 1 - state.chars().count();
        format!("{} {}{state}", label(call), cut(&id, room))
    };
    for call in view.calls.iter().filter(|call| call.is_running) {
        line(text, &row(call, format!("  Running   {}", seconds(call.for_ms))));
    }
    if view.queued > 0 {
        let _ = writeln!(text, "│ {:─<1$}│", "", WIDTH - 1);
    }
    for call in view.calls.iter().filter(|call| !call.is_running) {
        line(text, &row(call, format!("  Queued    waiting {}", seconds(call.for_ms))));
    }
    if !view.calls.is_empty() {
        let _ = writeln!(text, "├{:─<WIDTH$}┤", "");
    }
    let average = view.total_run_ms.checked_div(view.completed).unwrap_or(0);
    line(
        text,
        &format!(
            "Stats: {} completed | {} rate limited | avg {}",
            grouped(view.completed),
            grouped(view.rate_limited_calls),
            seconds(average)
        ),
    );
    let _ = writeln!(text, "└{:─<WIDTH$}┘", "");
}

fn line(text: &mut String, content: &str) {
    let _ = writeln!(text, "│ {:<1$}│", cut(content, WIDTH - 1), WIDTH - 1);
}

/// At most so many characters; what is longer ends in an ellipsis.
fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.chars().count() <= most {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    Cow::Owned(format!("{kept}…"))
}

impl GateView {
    /// What holds calls back, in a word or two; `No` where nothing does.
    pub fn limit(&self) -> String {
        let held = |cause| self.held_by.contains(&cause);
        match &self.block {
            Some(Block { ends_in_ms: Some(millis), quota }) => {
                let word = if *quota { "Quota" } else { "Yes" };
                format!("{word} ({}s)", millis.div_ceil(1_000))
            }
            Some(Block { ends_in_ms: None, .. }) => "Quota (until rota gate unblock)".to_owned(),
            None if held(Cause::Budget) => "Budget".to_owned(),
            None if self.rate_limited => "Window full".to_owned(),
            None if self.ramping => format!("Ramping {}/{}", self.slots_now, self.slots),
            None if held(Cause::Pacing) => "Pacing".to_owned(),
            None => "No".to_owned(),
        }
    }
}

/// 1,234.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_panel_is_that_of_the_specification() {
        let call = |id: &str, priority: &str, is_running, for_ms| CallView {
            id: id.into(),
            priority: priority.into(),
            group: "*".into(),
            is_running,
            for_ms,
            position: None,
            estimated_wait_ms: None,
        };
        let view = GateView {
            upstream: "anthropic".into(),
            running: 2,
            slots: 10,
            slots_now: 10,
            queued: 2,
            rate_limited: false,
            block: None,
            held_by: Vec::new(),
            hits: 0,
            ramping: false,
            calls: vec![
                call("exec-001", "high", true, 2_345),
                call("exec-002", "normal", true, 3_100),
                call("exec-011", "normal", false, 5_200),
                call("exec-014", "low", false, 2_000),
            ],
            scheduled: 1_236,
            completed: 1_234,
            rate_limited_calls: 12,
            cancelled: 0,
            total_wait_ms: 0,
            total_run_ms: 1_234 * 2_300,
            peak_queued: 2,
            peak_running: 2,
            idle_connections: 0,
            windows: Vec::new(),
        };
        let blocked = GateView {
            upstream: "openai".into(),
            calls: Vec::new(),
            queued: 0,
            running: 0,
            block: Some(Block { quota: false, ends_in_ms: Some(4_200) }),
            completed: 0,
            ..view.clone()
        };
        let expected = "\
┌─ anthropic ──────────────────────────────────────────┐
│ Running: 2/10  Queued: 2  Rate Limited: No           │
├──────────────────────────────────────────────────────┤
│ [HIGH] exec-001  Running   2.3s                      │
│ [NORM] exec-002  Running   3.1s                      │
│ ─────────────────────────────────────────────────────│
│ [NORM] exec-011  Queued    waiting 5.2s              │
│ [LOW]  exec-014  Queued    waiting 2.0s              │
├──────────────────────────────────────────────────────┤
│ Stats: 1,234 completed | 12 rate limited | avg 2.3s  │
└──────────────────────────────────────────────────────┘
┌─ openai ─────────────────────────────────────────────┐
│ Running: 0/10  Queued: 0  Rate Limited: Yes (5s)     │
├──────────────────────────────────────────────────────┤
│ Stats: 0 completed | 12 rate limited | avg 0.0s      │
└──────────────────────────────────────────────────────┘
";
        assert_eq!(Panel { upstreams: vec![view, blocked], budget: None }.text(), expected);
        assert_eq!(
            (grouped(0), grouped(999), grouped(1_000_000)),
            ("0".into(), "999".into(), "1,000,000".into())
        );
    }
    fn idle() -> GateView {
        let gate = rota_gate::Gate::new(rota_gate::GateConfig::default());
        let gate = gate.unwrap_or_else(|error| panic!("{error}"));
        GateView::of("anthropic", &gate.details(), 0, false)
    }

    #[test]
    fn every_cause_has_its_word() {
        let block = |quota, ends_in_ms| Some(Block { quota, ends_in_ms });
        let held = |causes: &[Cause]| GateView { held_by: causes.to_vec(), ..idle() };
        let full = GateView { rate_limited: true, ..held(&[Cause::Window, Cause::Ramp]) };
        let ramping = GateView { ramping: true, slots_now: 3, ..held(&[Cause::Ramp, Cause::Pacing]) };
        for (view, word) in [
            (idle(), "No"),
            (GateView { block: block(false, Some(11_001)), ..held(&[Cause::Block]) }, "Yes (12s)"),
            (GateView { block: block(true, Some(400_000)), ..held(&[Cause::Block]) }, "Quota (400s)"),
            (
                GateView { block: block(true, None), ..held(&[Cause::Block]) },
                "Quota (until rota gate unblock)",
            ),
            (held(&[Cause::Budget, Cause::Pacing]), "Budget"),
            (full, "Window full"),
            (ramping, "Ramping 3/10"),
            (held(&[Cause::Pacing]), "Pacing"),
            (held(&[Cause::Slots]), "No"),
        ] {
            let text = Panel { upstreams: vec![view], budget: None }.text();
            let line = text.lines().nth(1).unwrap_or_default();
            let shown = line.split("Rate Limited: ").nth(1).unwrap_or_default();
            assert_eq!(shown.trim_end_matches('│').trim_end(), word, "{line}");
        }
    }

    #[test]
    fn the_frame_keeps_its_width() {
        let long = |id: &str, is_running| CallView {
            id: id.to_owned(),
            priority: "high".into(),
            group: "*".into(),
            is_running,
            for_ms: 123_456_789,
            position: None,
            estimated_wait_ms: None,
        };
        let id = "ein-sehr-langer-name-für-eine-aufgabe".repeat(9);
        let view = GateView {
            upstream: id.clone(),
            running: 1,
            slots: 10,
            queued: 1,
            calls: vec![long(&id, true), long(&id, false)],
            completed: u64::MAX,
            ..idle()
        };
        let text = Panel { upstreams: vec![view], budget: None }.text();
        for line in text.lines() {
            assert_eq!(line.chars().count(), WIDTH + 2, "{line}");
        }
        assert!(text.contains("…  Running   123456.7s"), "{text}");
    }
}
