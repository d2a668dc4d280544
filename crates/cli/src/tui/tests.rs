//! Every pane, small and large, empty, full and rate limited; and what the keys do.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use expect_test::{ExpectFile, expect_file};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use rota_core::UnixMillis;
use rota_gateway::panel::Panel;
use rota_verbs::overview::{BlockPayload, Overview, QueueOverview, UsagePayload};

use super::draw::draw;
use super::view::{Act, Data, Line, Mode, Order, Pane, View};

const NOW: i64 = 1_767_225_600_000;

fn overview(full: bool, limited: bool) -> Overview {
    let counts = [("active", 3), ("open", 40), ("blocked", 5), ("done", 120), ("failed", 1), ("parked", 2)];
    let counts = counts.into_iter().filter(|_| full).map(|(word, count)| (word.to_owned(), count)).collect();
    let queue = |name: &str| QueueOverview {
        queue: name.to_owned(),
        paused: false,
        counts: std::collections::BTreeMap::clone(&counts),
    };
    let block = BlockPayload {
        upstream: "anthropic".to_owned(),
        blocked: true,
        blocked_until: Some(UnixMillis::new(NOW + 42_000)),
        hits: 3,
        reason: Some("429: too many \u{1b}[2J requests".to_owned()),
        updated_at: UnixMillis::new(NOW),
    };
    let used = UsagePayload {
        upstream: "anthropic".to_owned(),
        model: "opus".to_owned(),
        requests: 1_234,
        input_tokens: 5_000_000,
        output_tokens: 250_000,
        usd: rota_core::Usd::from_nanos(12_340_000_000),
        ..UsagePayload::default()
    };
    Overview {
        now: UnixMillis::new(NOW),
        queues: vec![queue("loops"), queue("tasks")],
        blocks: if limited { vec![block] } else { Vec::new() },
        budgets: Vec::new(),
        usage: if full { vec![used] } else { Vec::new() },
        usage_by_kind: Vec::new(),
    }
}

fn lines(pane: Pane) -> Vec<Line> {
    let line = |id: &str, cells: &[&str]| Line {
        id: Some(id.to_owned()),
        cells: cells.iter().map(|cell| (*cell).to_owned()).collect(),
        alarm: cells.contains(&"expired"),
    };
    let many = |make: &dyn Fn(usize) -> Line| (0..60).map(make).collect::<Vec<Line>>();
    match pane {
        Pane::Fleet => many(&|at| {
            let id = format!("ralph-{at}");
            let lease = if at == 2 { "expired" } else { "98s" };
            line(&id, &[&id, "ralph", "3", "12m", lease, "running \u{1b}[31mtests\u{202e} $(rm -rf)"])
        }),
        Pane::Queue => many(&|at| {
            let (id, score) = (format!("phase-{at}"), (200 - at).to_string());
            let verdict = if at % 3 == 0 { "yes" } else { "no (parent incomplete)" };
            line(&id, &[&id, "phase", &score, "5m", "2", "1", verdict])
        }),
        Pane::Why => "fix-login (tasks, open) is not runnable\n\n  ok  status    open\n  no  blockers  blocked by setup-db"
            .lines()
            .map(|text| Line { cells: vec![text.to_owned()], ..Line::default() })
            .collect(),
        Pane::Gate => vec![Line {
            cells: ["anthropic", "blocked for 42s", "3", "429: too many \u{1b}[2J requests"].map(str::to_owned).into(),
            alarm: true,
            id: None,
        }],
        Pane::Tree => many(&|at| {
            let id = format!("loop-{at}");
            line(&id, &[&format!("{}{id} ralph [pending] Title {at}", "  ".repeat(at % 4))])
        }),
        Pane::Log => many(&|at| line("a", &[&format!("2026-01-01T00:00:{at:02}.000Z {at:>6}  created a")])),
    }
}

fn view(pane: Pane, full: bool, limited: bool) -> View {
    let mut view = View::new(false);
    view.pane = pane;
    for calls in [0, 3, 9, 4] {
        let mut overview = overview(full, limited);
        overview.usage.iter_mut().for_each(|used| used.requests += calls);
        let lines = if full { lines(pane) } else { Vec::new() };
        let subject = if pane == Pane::Queue { "queue loops".to_owned() } else { String::new() };
        let footnote =
            if full && pane == Pane::Tree { vec!["loop-0 is blocked by: nothing".into()] } else { vec![] };
        view.take(Data { overview: Some(overview), lines, subject, footnote, ..Data::default() });
    }
    view
}

fn screen(view: &View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y: u16| {
        let cells: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        format!("{}\n", cells.trim_end())
    };
    (0..height).map(row).collect()
}

/// No character of what was written by others steers the terminal.
fn is_harmless(screen: &str) -> bool {
    screen.chars().all(|character| character == '\n' || (!character.is_control() && character != '\u{202e}'))
}

fn check(name: &str, view: &View, width: u16, height: u16, expected: ExpectFile) {
    let screen = screen(view, width, height);
    assert!(is_harmless(&screen), "{name}");
    expected.assert_eq(&screen);
}

#[test]
fn every_pane_in_both_sizes() {
    for pane in Pane::ALL {
        for (state, full, limited) in
            [("empty", false, false), ("full", true, false), ("limited", true, true)]
        {
            for (width, height) in [(80, 24), (200, 60)] {
                let name = format!("{}-{state}-{width}x{height}", pane.name().to_lowercase());
                let file = format!("screens/{name}.txt");
                check(&name, &view(pane, full, limited), width, height, expect_file![file]);
            }
        }
    }
}

#[test]
fn help_search_and_questions() {
    let mut help = view(Pane::Fleet, true, false);
    press(&mut help, "?");
    check("help", &help, 80, 24, expect_file!["screens/help.txt"]);
    let mut search = view(Pane::Queue, true, false);
    press(&mut search, "/phase-1");
    check("search", &search, 80, 24, expect_file!["screens/search.txt"]);
    let mut sure = view(Pane::Fleet, true, false);
    press(&mut sure, "jp");
    check("sure", &sure, 80, 24, expect_file!["screens/sure.txt"]);
}

/// Any size is drawn, however small.
#[test]
fn sizes() {
    for (width, height) in [(1, 1), (10, 3), (20, 5), (79, 23), (300, 100)] {
        for pane in Pane::ALL {
            assert!(is_harmless(&screen(&view(pane, true, true), width, height)), "{width}x{height}");
        }
    }
}

#[test]
fn colours_only_where_wanted() {
    let painted = |has_color: bool| {
        let mut view = view(Pane::Gate, true, true);
        view.has_color = has_color;
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &view)).unwrap();
        let reset = ratatui::style::Color::Reset;
        terminal.backend().buffer().content().iter().any(|cell| cell.fg != reset || cell.bg != reset)
    };
    assert!(painted(true) && !painted(false));
}

fn press(view: &mut View, keys: &str) -> Order {
    let mut order = Order::Nothing;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            other => KeyCode::Char(other),
        };
        order = view.on_key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    order
}

#[test]
fn keys() {
    let fresh = || view(Pane::Fleet, true, false);
    let mut one = fresh();
    assert_eq!(press(&mut one, "q"), Order::Quit);
    assert_eq!(press(&mut one, "jjk2"), Order::Load);
    assert_eq!((one.pane, one.task.as_deref(), one.selected), (Pane::Queue, Some("ralph-1"), 0));
    let mut one = fresh();
    assert_eq!(press(&mut one, "j\n"), Order::Load);
    assert_eq!((one.pane, one.task.as_deref()), (Pane::Why, Some("ralph-1")));
    // What changes something is asked about first.
    for (key, act) in Act::ALL {
        let mut one = fresh();
        assert_eq!(press(&mut one, &format!("j{key}")), Order::Nothing);
        assert_eq!(one.mode, Mode::Confirm(act, "ralph-1".into()));
        assert_eq!(press(&mut one, "n"), Order::Nothing);
        assert_eq!((one.mode.clone(), one.message.as_deref()), (Mode::Browse, Some("nothing was done")));
        assert_eq!(press(&mut one, &format!("{key}y")), Order::Act(act, "ralph-1".into()));
    }
    let mut none = view(Pane::Fleet, false, false);
    press(&mut none, "p");
    assert_eq!((none.mode.clone(), none.message.as_deref()), (Mode::Browse, Some("nothing is selected")));
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(none.on_key(control), Order::Quit);
}

#[test]
fn searching_and_sorting() {
    let mut one = view(Pane::Queue, true, false);
    press(&mut one, "/PHASE-5");
    assert_eq!(one.lines().len(), 11, "5 and 50 to 59");
    press(&mut one, "\n");
    assert_eq!((one.mode.clone(), one.lines().len()), (Mode::Browse, 11));
    press(&mut one, "\u{1b}");
    assert_eq!(one.lines().len(), 60);
    press(&mut one, "sss");
    assert_eq!(one.lines()[0].cells[2], "141", "numbers by size");
    press(&mut one, "ssss");
    assert_eq!(one.sort, Some(6));
    press(&mut one, "s");
    assert_eq!(one.sort, None);
}

/// The cursor stays on its task when lines come and go.
#[test]
fn the_selection_stays_on_its_task() {
    let mut one = view(Pane::Fleet, true, false);
    press(&mut one, "jjj");
    assert_eq!(one.selected_id().as_deref(), Some("ralph-3"));
    let fewer = lines(Pane::Fleet).into_iter().skip(2).collect();
    one.take(Data { lines: fewer, ..Data::default() });
    assert_eq!((one.selected, one.selected_id().as_deref()), (1, Some("ralph-3")));
    one.take(Data { lines: Vec::new(), ..Data::default() });
    assert_eq!((one.selected, one.selected_id()), (0, None));
    assert!(one.data.overview.is_some(), "what was not loaded again stays");
}

/// The panel of a gateway that runs, and how its window fills.
#[test]
fn the_gate_live() {
    let panel = |starts: usize, limited: bool| -> Panel {
        let call = |id: &str, priority: &str, is_running: bool, for_ms: u64| serde_json::json!({"id": id, "priority": priority, "group": "*", "isRunning": is_running, "forMs": for_ms});
        let calls = [
            call("exec-001", "high", true, 2_345),
            call("exec-\u{1b}[2J", "normal", true, 3_100),
            call("exec-011", "low", false, 5_200),
        ];
        serde_json::from_value(serde_json::json!({"upstreams": [{
            "upstream": "anthropic", "running": 2, "slots": 10, "slotsNow": 10, "queued": 1, "rateLimited": limited,
            "hits": 0, "ramping": false, "calls": calls, "completed": 1_234, "rateLimitedCalls": 12, "cancelled": 0,
            "totalWaitMs": 0, "totalRunMs": 2_838_200, "peakQueued": 2, "peakRunning": 2, "idleConnections": 0,
            "windows": [{"group": "opus", "starts": 1, "maxStarts": 50}, {"group": "*", "starts": starts, "maxStarts": 40}],
        }]}))
        .unwrap()
    };
    let mut view = View::new(false);
    view.pane = Pane::Gate;
    for starts in [0, 4, 10, 30, 40] {
        let (overview, panel) = (Some(overview(true, false)), Some(panel(starts, starts == 40)));
        view.take(Data { overview, panel, ..Data::default() });
    }
    let screen = screen(&view, 80, 24);
    assert!(is_harmless(&screen), "{screen}");
    expect_file!["screens/gate-live.txt"].assert_eq(&screen);
}
