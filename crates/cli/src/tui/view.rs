//! What is on the screen: panes, rows, what is selected, searched and sorted, and what a key does. Pure: a key or fresh
//! data come in, a new state and perhaps an order come out.

use std::collections::VecDeque;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rota_gateway::panel::Panel;
use rota_verbs::overview::Overview;

/// One way to look at the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pane {
    Fleet,
    Queue,
    Why,
    Gate,
    Tree,
    Log,
}

impl Pane {
    pub const ALL: [Self; 6] = [Self::Fleet, Self::Queue, Self::Why, Self::Gate, Self::Tree, Self::Log];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Fleet => "Fleet",
            Self::Queue => "Queue",
            Self::Why => "Why",
            Self::Gate => "Gate",
            Self::Tree => "Tree",
            Self::Log => "Log",
        }
    }

    /// The columns, with their widths; the last one takes the rest.
    pub const fn columns(self) -> &'static [(&'static str, u16)] {
        match self {
            Self::Fleet => {
                &[("ID", 20), ("KIND", 7), ("ITER", 4), ("AGE", 6), ("LEASE", 7), ("LAST OUTPUT", 0)]
            }
            Self::Queue => &[
                ("ID", 20),
                ("KIND", 7),
                ("SCORE", 6),
                ("AGE", 6),
                ("DEPTH", 5),
                ("ITER", 4),
                ("RUNNABLE", 0),
            ],
            Self::Gate => &[("UPSTREAM", 14), ("STATE", 30), ("IN A ROW", 8), ("REASON", 0)],
            Self::Tree => &[("LOOP", 0)],
            Self::Why | Self::Log => &[("", 0)],
        }
    }
}

/// One line of a pane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The task it is about.
    pub id: Option<String>,
    pub cells: Vec<String>,
    /// Whether it should catch the eye.
    pub alarm: bool,
}

/// What was loaded.
#[derive(Clone, Debug, Default)]
pub struct Data {
    pub overview: Option<Overview>,
    /// The lines of the pane that was asked for.
    pub lines: Vec<Line>,
    /// What the lines are about: a queue, a task.
    pub subject: String,
    /// The gates as they are now, where a gateway runs.
    pub panel: Option<Panel>,
    /// Beneath the lines: what the selected one waits for.
    pub footnote: Vec<String>,
    /// What went wrong while loading.
    pub trouble: Option<String>,
}

/// What may be done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Pause,
    Resume,
    Cancel,
    Reset,
    Reiterate,
    Raise,
}

impl Act {
    pub const ALL: [(char, Self); 6] = [
        ('p', Self::Pause),
        ('r', Self::Resume),
        ('c', Self::Cancel),
        ('z', Self::Reset),
        ('i', Self::Reiterate),
        ('+', Self::Raise),
    ];

    pub const fn words(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
            Self::Reset => "reset",
            Self::Reiterate => "reiterate",
            Self::Raise => "raise the priority of",
        }
    }
}

/// What follows from a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Nothing,
    /// Other data is wanted.
    Load,
    Quit,
    Act(Act, String),
}

/// What keys mean at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    Browse,
    Search(String),
    Confirm(Act, String),
    Help,
}

/// How many samples the chart of the gate has.
const SAMPLES: usize = 240;

/// One sample: calls let through since the last one, how many began in the fullest window and may, and whether an
/// upstream was blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub requests: u64,
    pub window: Option<(u64, u64)>,
    pub blocked: bool,
}

/// The whole state.
pub struct View {
    pub pane: Pane,
    pub mode: Mode,
    pub data: Data,
    /// The queue that the Queue pane shows.
    pub queue: String,
    /// The task that Why explains and Tree tells the blockers of.
    pub task: Option<String>,
    pub selected: usize,
    pub search: String,
    /// By which column; none for the order they come in.
    pub sort: Option<usize>,
    /// What was done last, or why not.
    pub message: Option<String>,
    pub has_color: bool,
    pub chart: VecDeque<Sample>,
    requests: Option<u64>,
}

impl View {
    pub fn new(has_color: bool) -> Self {
        Self {
            pane: Pane::Fleet,
            mode: Mode::Browse,
            data: Data::default(),
            queue: "loops".to_owned(),
            task: None,
            selected: 0,
            search: String::new(),
            sort: None,
            message: None,
            has_color,
            chart: VecDeque::new(),
            requests: None,
        }
    }

    /// Takes what was loaded; the selection stays on its task.
    pub fn take(&mut self, data: Data) {
        let selected = self.selected_id();
        if let Some(overview) = &data.overview {
            let requests = overview.usage.iter().map(|used| used.requests).sum::<u64>();
            let since = self.requests.map_or(0, |before| requests.saturating_sub(before));
            self.requests = Some(requests);
            let blocked = overview.blocks.iter().any(|block| block.blocked);
            let window = data.panel.as_ref().and_then(fullest_window);
            self.chart.push_back(Sample { requests: since, window, blocked });
            while self.chart.len() > SAMPLES {
                self.chart.pop_front();
            }
        }
        let overview = data.overview.clone().or(self.data.overview.take());
        self.data = Data { overview, ..data };
        let lines = self.lines();
        let found = selected.and_then(|id| lines.iter().position(|line| line.id.as_ref() == Some(&id)));
        let last = lines.len().saturating_sub(1);
        self.selected = found.unwrap_or(self.selected).min(last);
    }

    /// The lines that match the search, in the order that is wanted.
    pub fn lines(&self) -> Vec<&Line> {
        let needle = self.search.to_lowercase();
        let matches = |line: &&Line| {
            needle.is_empty() || line.cells.iter().any(|cell| cell.to_lowercase().contains(&needle))
        };
        let mut lines: Vec<&Line> = self.data.lines.iter().filter(matches).collect();
        if let Some(column) = self.sort {
            let key = |line: &&Line| line.cells.get(column).map(|cell| natural(cell));
            lines.sort_by_cached_key(key);
        }
        lines
    }

    /// The task under the cursor.
    pub fn selected_id(&self) -> Option<String> {
        self.lines().get(self.selected).and_then(|line| line.id.clone())
    }

    pub fn on_key(&mut self, key: KeyEvent) -> Order {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Order::Quit;
        }
        self.message = None;
        match std::mem::replace(&mut self.mode, Mode::Browse) {
            Mode::Browse => self.browse(key.code),
            Mode::Help => Order::Nothing,
            Mode::Confirm(act, id) => match key.code {
                KeyCode::Char('y' | 'Y') => Order::Act(act, id),
                _ => {
                    self.message = Some("nothing was done".to_owned());
                    Order::Nothing
                }
            },
            Mode::Search(text) => self.search(text, key.code),
        }
    }

    fn search(&mut self, mut text: String, code: KeyCode) -> Order {
        match code {
            KeyCode::Esc => self.search.clear(),
            KeyCode::Enter => {}
            KeyCode::Backspace => {
                text.pop();
                self.search.clone_from(&text);
                self.mode = Mode::Search(text);
            }
            KeyCode::Char(character) => {
                text.push(character);
                self.search.clone_from(&text);
                self.mode = Mode::Search(text);
            }
            _ => self.mode = Mode::Search(text),
        }
        self.selected = 0;
        Order::Nothing
    }

    fn browse(&mut self, code: KeyCode) -> Order {
        let last = self.lines().len().saturating_sub(1);
        match code {
            KeyCode::Char('q') => return Order::Quit,
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Search(String::new()),
            KeyCode::Esc => self.search.clear(),
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected = (self.selected + 10).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::Home | KeyCode::Char('g') => self.selected = 0,
            KeyCode::End | KeyCode::Char('G') => self.selected = last,
            KeyCode::Char('s') => {
                let columns = self.pane.columns().len();
                self.sort =
                    self.sort.map_or(Some(0), |column| Some(column + 1)).filter(|column| *column < columns);
            }
            KeyCode::Char(digit @ '1'..='6') => {
                return self.go_to(Pane::ALL[usize::from(digit as u8 - b'1')]);
            }
            KeyCode::Tab | KeyCode::Right => return self.go_to(self.neighbour(1)),
            KeyCode::BackTab | KeyCode::Left => return self.go_to(self.neighbour(Pane::ALL.len() - 1)),
            KeyCode::Enter | KeyCode::Char('w') if self.selected_id().is_some() => {
                return self.go_to(Pane::Why);
            }
            KeyCode::Char(bracket @ ('[' | ']')) if self.pane == Pane::Queue => {
                self.next_queue(bracket == ']');
                return Order::Load;
            }
            KeyCode::Char(character) => {
                let act = Act::ALL.iter().find(|(key, _)| *key == character).map(|(_, act)| *act);
                let id = if self.pane == Pane::Why { self.task.clone() } else { self.selected_id() };
                match (act, id) {
                    (Some(act), Some(id)) => self.mode = Mode::Confirm(act, id),
                    (Some(_), None) => self.message = Some("nothing is selected".to_owned()),
                    (None, _) => {}
                }
            }
            _ => {}
        }
        if self.pane == Pane::Tree { self.follow_selection() } else { Order::Nothing }
    }

    /// The tree tells the blockers of the line under the cursor.
    fn follow_selection(&mut self) -> Order {
        let selected = self.selected_id();
        let is_new = selected.is_some() && selected != self.task;
        if is_new {
            self.task = selected;
            return Order::Load;
        }
        Order::Nothing
    }

    fn neighbour(&self, steps: usize) -> Pane {
        let at = Pane::ALL.iter().position(|pane| *pane == self.pane).unwrap_or(0);
        Pane::ALL[(at + steps) % Pane::ALL.len()]
    }

    fn go_to(&mut self, pane: Pane) -> Order {
        if let Some(id) = self.selected_id() {
            self.task = Some(id);
        }
        if pane != self.pane {
            (self.pane, self.selected, self.sort) = (pane, 0, None);
            self.search.clear();
            self.data.lines.clear();
            self.data.footnote.clear();
        }
        Order::Load
    }

    fn next_queue(&mut self, forward: bool) {
        let Some(overview) = &self.data.overview else { return };
        let names: Vec<&String> = overview.queues.iter().map(|queue| &queue.queue).collect();
        let count = names.len();
        if count == 0 {
            return;
        }
        let at = names.iter().position(|name| **name == self.queue).unwrap_or(0);
        let next = if forward { at + 1 } else { at + count - 1 } % count;
        self.queue = names[next].clone();
        self.selected = 0;
    }
}

/// Calls that began in the window that has the least left, and how many may.
fn fullest_window(panel: &Panel) -> Option<(u64, u64)> {
    let windows = panel.upstreams.iter().flat_map(|gate| &gate.windows);
    let fills = windows.map(|window| (window.starts as u64, window.max_starts as u64));
    fills.max_by_key(|(starts, most)| (starts * 1_000).checked_div(*most))
}

/// Numbers by size and before words, so that a column of them is sorted as a person would.
fn natural(cell: &str) -> (bool, i64, String) {
    let digits: String =
        cell.chars().take_while(|character| *character == '-' || character.is_ascii_digit()).collect();
    match digits.parse() {
        Ok(number) => (false, number, cell.to_owned()),
        Err(_) => (true, 0, cell.to_lowercase()),
    }
}
