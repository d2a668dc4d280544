//! Drawing. A title, the panes, one of them, and the keys; nothing is kept between two frames.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as TextLine, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use rota_core::text::escaped;
use rota_verbs::overview::Overview;

use super::view::{Act, Line, Mode, Pane, Sample, View};

const KEYS: &str = "1-6 pane  j/k move  / search  s sort  w why  p pause  r resume  ? help  q quit";

/// Colours where they are wanted; where not, only what a terminal without them has.
struct Look {
    has_color: bool,
}

impl Look {
    fn of(&self, color: Color) -> Style {
        if self.has_color { Style::new().fg(color) } else { Style::new() }
    }

    fn bold(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn faint(&self) -> Style {
        self.of(Color::DarkGray)
    }

    fn alarm(&self) -> Style {
        if self.has_color { Style::new().fg(Color::Red) } else { self.bold() }
    }

    fn chosen(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let look = Look { has_color: view.has_color };
    let [title, panes, body, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(title_line(view, &look)), title);
    frame.render_widget(Paragraph::new(pane_line(view, &look)), panes);
    match view.pane {
        Pane::Gate => gate(frame, body, view, &look),
        _ => lines(frame, body, view, &look),
    }
    frame.render_widget(Paragraph::new(bottom_line(view, &look)), bottom);
    match &view.mode {
        Mode::Help => popup(frame, "keys", &help()),
        Mode::Confirm(act, id) => {
            let question = format!("{} {}?", act.words(), escaped(id));
            popup(frame, "sure?", &[question, String::new(), "y yes   any other key no".to_owned()]);
        }
        Mode::Browse | Mode::Search(_) => {}
    }
}

fn title_line(view: &View, look: &Look) -> TextLine<'static> {
    let mut spans = vec![Span::styled("rota top", look.bold())];
    if let Some(overview) = &view.data.overview {
        spans.push(Span::raw(format!("  {} ", overview.now.to_seconds_text())));
        if overview.blocks.iter().any(|block| block.blocked) {
            spans.push(Span::styled(" RATE LIMITED", look.alarm().add_modifier(Modifier::BOLD)));
        }
        if !overview.budgets.is_empty() {
            spans.push(Span::styled(" BUDGET SPENT", look.alarm().add_modifier(Modifier::BOLD)));
        }
        for (word, count) in totals(overview) {
            let style = match word {
                "failed" | "parked" => look.alarm(),
                "active" => look.of(Color::Green),
                _ => Style::new(),
            };
            spans.push(Span::styled(format!(" {count} {word}"), style));
        }
    }
    TextLine::from(spans)
}

/// How many tasks of all queues stand where.
fn totals(overview: &Overview) -> Vec<(&'static str, u64)> {
    let of = |word: &str| overview.queues.iter().filter_map(|queue| queue.counts.get(word)).sum::<u64>();
    let words = ["active", "open", "blocked", "done", "failed", "parked", "paused"];
    words
        .into_iter()
        .map(|word| (word, of(word)))
        .filter(|(word, count)| *count > 0 || *word == "active")
        .collect()
}

fn pane_line(view: &View, look: &Look) -> TextLine<'static> {
    let mut spans = Vec::new();
    for (number, pane) in Pane::ALL.into_iter().enumerate() {
        let style = if pane == view.pane { look.chosen() } else { Style::new() };
        spans.push(Span::styled(format!(" {} {} ", number + 1, pane.name()), style));
    }
    spans.push(Span::styled(format!("  {}", escaped(&view.data.subject)), look.faint()));
    TextLine::from(spans)
}

fn bottom_line(view: &View, look: &Look) -> TextLine<'static> {
    if let Some(trouble) = &view.data.trouble {
        return TextLine::styled(format!("! {}", escaped(trouble)), look.alarm());
    }
    if let Some(message) = &view.message {
        return TextLine::styled(escaped(message).into_owned(), look.bold());
    }
    match &view.mode {
        Mode::Search(text) => TextLine::raw(format!("/{}_  enter keep, esc clear", escaped(text))),
        _ if !view.search.is_empty() => {
            TextLine::raw(format!("search: {}  (esc clears)  {KEYS}", escaped(&view.search)))
        }
        _ => TextLine::styled(KEYS, look.faint()),
    }
}

fn help() -> Vec<String> {
    let mut lines: Vec<String> = [
        "1 … 6, tab     go to a pane",
        "j k ↑ ↓ g G    move",
        "enter, w       why the selected task does not run",
        "[ ]            another queue",
        "/              search; esc clears",
        "s              sort by the next column",
    ]
    .map(str::to_owned)
    .into();
    lines.extend(
        Act::ALL.iter().map(|(key, act)| format!("{key}              {} the selected task", act.words())),
    );
    lines.push("q              quit".to_owned());
    lines
}

fn popup(frame: &mut Frame<'_>, title: &str, lines: &[String]) {
    let area = frame.area();
    let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = u16::try_from(widest + 4).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let text: Vec<TextLine<'_>> = lines.iter().map(|line| TextLine::raw(line.as_str())).collect();
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(format!(" {title} "));
    frame.render_widget(Paragraph::new(text).block(block).wrap(Wrap { trim: false }), place);
}

fn lines(frame: &mut Frame<'_>, area: Rect, view: &View, look: &Look) {
    let shown = view.lines();
    let footnote = u16::try_from(view.data.footnote.len()).unwrap_or(0).min(area.height / 3);
    let [area, below] = Layout::vertical([Constraint::Min(1), Constraint::Length(footnote)]).areas(area);
    if shown.is_empty() {
        let text = if view.search.is_empty() { empty(view.pane) } else { "nothing matches" };
        frame.render_widget(Paragraph::new(text).alignment(Alignment::Center).style(look.faint()), area);
    } else {
        table(frame, area, &shown, view, look);
    }
    let notes: Vec<TextLine<'_>> =
        view.data.footnote.iter().map(|note| TextLine::styled(escaped(note), look.faint())).collect();
    frame.render_widget(Paragraph::new(notes), below);
}

const fn empty(pane: Pane) -> &'static str {
    match pane {
        Pane::Fleet => "nothing runs",
        Pane::Queue => "nothing waits",
        Pane::Why => "no task is selected: choose one in another pane",
        Pane::Gate => "no upstream ever pushed back",
        Pane::Tree => "there are no loops",
        Pane::Log => "nothing has happened",
    }
}

fn table(frame: &mut Frame<'_>, area: Rect, shown: &[&Line], view: &View, look: &Look) {
    let columns = view.pane.columns();
    let widths = columns.iter().map(|(_, width)| match width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(*width),
    });
    let row = |line: &&Line| {
        let cells = line.cells.iter().map(|cell| Cell::from(escaped(cell).into_owned()));
        let style = if line.alarm { look.alarm() } else { Style::new() };
        Row::new(cells.collect::<Vec<_>>()).style(style)
    };
    // Only what fits is made: ten thousand lines cost no more than a screen of them.
    let height = usize::from(area.height.max(1));
    let first = view.selected.saturating_sub(height.saturating_sub(2) / 2);
    let first = first.min(shown.len().saturating_sub(height.saturating_sub(1)));
    let rows: Vec<Row<'_>> = shown.iter().skip(first).take(height).map(row).collect();
    let mut table = Table::new(rows, widths).column_spacing(1).row_highlight_style(look.chosen());
    if columns[0].0.is_empty() {
        // Lines of text have no head.
    } else {
        let head = columns.iter().enumerate().map(|(at, (name, _))| {
            let mark = if view.sort == Some(at) { "▾" } else { "" };
            Cell::from(format!("{name}{mark}"))
        });
        table = table.header(Row::new(head.collect::<Vec<_>>()).style(look.bold()));
    }
    let mut state = TableState::default().with_selected(Some(view.selected - first));
    frame.render_stateful_widget(table, area, &mut state);
}

/// The panel of the gate: what is held back, a chart of what went through, what was used.
fn gate(frame: &mut Frame<'_>, area: Rect, view: &View, look: &Look) {
    let used: Vec<String> = view.data.overview.as_ref().map(usage).unwrap_or_default();
    let used_height = u16::try_from(used.len()).unwrap_or(0).min(area.height / 3);
    let [head, table, chart, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(5),
        Constraint::Length(used_height),
    ])
    .areas(area);
    let limited = view
        .data
        .overview
        .as_ref()
        .is_some_and(|seen| seen.blocks.iter().any(|block| block.blocked))
        || view.data.panel.as_ref().is_some_and(|panel| panel.upstreams.iter().any(|gate| gate.rate_limited));
    let word = if limited { "Yes" } else { "No" };
    let style = if limited { look.alarm() } else { look.of(Color::Green) };
    let line = TextLine::from(vec![Span::raw("Rate Limited: "), Span::styled(word, style)]);
    frame.render_widget(Paragraph::new(line), head);
    match &view.data.panel {
        Some(panel) => {
            let text = panel.text();
            let frames: Vec<TextLine<'_>> = text.lines().map(TextLine::raw).collect();
            frame.render_widget(Paragraph::new(frames), table);
        }
        None => lines(frame, table, view, look),
    }
    gate_chart(frame, chart, view, if limited { look.alarm() } else { look.of(Color::Cyan) });
    let used: Vec<TextLine<'_>> = used.into_iter().map(TextLine::raw).collect();
    frame.render_widget(Paragraph::new(used), bottom);
}

/// How full the window is, look by look, where a gateway runs; else how many calls there were.
fn gate_chart(frame: &mut Frame<'_>, area: Rect, view: &View, style: Style) {
    let width = usize::from(area.width.saturating_sub(2));
    let shown: Vec<&Sample> = view.chart.iter().rev().take(width).rev().collect();
    let blocked = shown.iter().filter(|sample| sample.blocked).count();
    let blocked = format!("blocked in {blocked} of the last {}", shown.len());
    let mut chart = Sparkline::default().style(style);
    let title = match shown.last().and_then(|sample| sample.window) {
        Some((starts, most)) => {
            chart = chart
                .max(most.max(1))
                .data(shown.iter().map(|sample| sample.window.map_or(0, |(starts, _)| starts)));
            format!(" window {starts} of {most}, {blocked} ")
        }
        None => {
            chart = chart.data(shown.iter().map(|sample| sample.requests));
            format!(" calls per look, {blocked} ")
        }
    };
    frame.render_widget(chart.block(Block::bordered().title(title)), area);
}

fn usage(overview: &Overview) -> Vec<String> {
    let line = |used: &rota_verbs::overview::UsagePayload| {
        let cents = used.usd.nanos() / 10_000_000;
        format!(
            "{} {}: {} calls, {} in, {} out, ${}.{:02} today",
            escaped(&used.upstream),
            escaped(&used.model),
            used.requests,
            used.input_tokens,
            used.output_tokens,
            cents / 100,
            cents % 100
        )
    };
    overview.usage.iter().map(line).collect()
}
