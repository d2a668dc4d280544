//! One cycle of the supervisor as a function of what its steps reported: which step comes next, the lines that are
//! printed, the state that is kept, the failure code and the sleep. Whoever carries the steps out decides nothing.

pub mod instruction;
pub mod lines;
pub mod state;

use rota_core::UnixMillis;
pub use rota_core::supervisor::{FailureCode, Rule};
pub use state::{BadState, State};

/// The longest wait after failures.
const BACKOFF_CAP_SECS: u64 = 600;
/// What each failure in a row adds to the wait.
const BACKOFF_STEP_SECS: u64 = 60;

/// What a cycle goes by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The sleep after a cycle that did not fail.
    pub interval_secs: u64,
    /// The label that says an issue is taken.
    pub claim_label: String,
}

/// Rules were violated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violated {
    /// The first.
    pub rule: Rule,
    /// How many.
    pub count: u32,
}

/// The issue that was selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selected {
    /// Its number.
    pub number: u64,
    /// Its title, as the tracker has it.
    pub title: String,
}

/// What has to be done next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    /// Load the governance files and compare them with the pin.
    Governance,
    /// Look whether the surroundings are in order.
    Environment,
    /// Keep what is held, repair what differs from it.
    Start,
    /// Find the lowest issue that nobody works on, and take its lease.
    Selection,
    /// Look whether the instruction may be given.
    Gate,
    /// Set the label and read it back.
    Claim,
    /// Hand over to whoever does the work.
    Dispatch,
    /// Nothing is left but to tell.
    Report,
}

/// What a step came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reported {
    /// Of [`Step::Governance`].
    Governance(Result<(), Violated>),
    /// Of [`Step::Environment`]: the codes of what is not in order.
    Environment(Vec<String>),
    /// Of [`Step::Start`].
    Started,
    /// Of [`Step::Selection`]; none if there is nothing to select.
    Selection(Option<Selected>),
    /// Of [`Step::Gate`]; a refusal may also come while the claim is made.
    Gate(Result<(), Violated>),
    /// Of [`Step::Claim`]: whether the label was there when it was read back.
    Claim {
        /// The verdict.
        verified: bool,
    },
    /// Of [`Step::Dispatch`].
    Dispatched,
}

/// How the steps ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// By themselves.
    Complete,
    /// The time was up.
    RuntimeExceeded,
    /// Something broke.
    Exception,
}

/// A cycle under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cycle {
    settings: Settings,
    before: State,
    started_at: UnixMillis,
    governance: Option<Result<(), Violated>>,
    environment: Option<Vec<String>>,
    is_started: bool,
    selection: Option<Option<Selected>>,
    gate: Option<Result<(), Violated>>,
    claim: Option<bool>,
    is_dispatched: bool,
    lines_told: usize,
}

/// What a cycle came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The lines that were not told yet, `SLEEP` included.
    pub lines: Vec<String>,
    /// What is kept.
    pub state: State,
    /// Why nothing was claimed.
    pub code: Option<FailureCode>,
    /// How long to sleep.
    pub sleep_secs: u64,
    /// The same for programs.
    pub summary: lines::Summary,
}

impl Cycle {
    /// Begins the next cycle after a state.
    pub fn begin(before: State, settings: Settings, now: UnixMillis) -> Self {
        Self {
            settings,
            before,
            started_at: now,
            governance: None,
            environment: None,
            is_started: false,
            selection: None,
            gate: None,
            claim: None,
            is_dispatched: false,
            lines_told: 0,
        }
    }

    /// The one step that may be taken now.
    pub fn next(&self) -> Step {
        match (&self.governance, &self.environment) {
            (None, _) => return Step::Governance,
            (Some(Err(_)), _) => return Step::Report,
            (_, None) => return Step::Environment,
            (_, Some(failures)) if !failures.is_empty() => return Step::Report,
            _ if !self.is_started => return Step::Start,
            _ => {}
        }
        match (&self.selection, &self.gate, self.claim) {
            (None, ..) => Step::Selection,
            (Some(None), ..) | (_, Some(Err(_)), _) | (.., Some(false)) => Step::Report,
            (_, None, _) => Step::Gate,
            (.., None) => Step::Claim,
            _ if !self.is_dispatched => Step::Dispatch,
            _ => Step::Report,
        }
    }

    /// Takes down what the next step came to. Another step's report is a bug of the caller.
    pub fn report(&mut self, reported: Reported) {
        let next = self.next();
        match (next, reported) {
            (Step::Governance, Reported::Governance(verdict)) => self.governance = Some(verdict),
            (Step::Environment, Reported::Environment(failures)) => self.environment = Some(failures),
            (Step::Start, Reported::Started) => self.is_started = true,
            (Step::Selection, Reported::Selection(selected)) => self.selection = Some(selected),
            (Step::Gate, Reported::Gate(verdict)) => self.gate = Some(verdict),
            (Step::Claim, Reported::Gate(Err(violated))) => self.gate = Some(Err(violated)),
            (Step::Claim, Reported::Claim { verified }) => self.claim = Some(verified),
            (Step::Dispatch, Reported::Dispatched) => self.is_dispatched = true,
            (next, other) => panic!("{other:?} was reported, but {next:?} comes next"),
        }
    }

    /// Cycles that had ended before this one began.
    pub const fn ended_before(&self) -> u64 {
        self.before.cycle_count
    }

    /// The issue that was selected, if any.
    pub fn selected(&self) -> Option<&Selected> {
        self.selection.as_ref().and_then(Option::as_ref)
    }

    /// The lines that are certain by now and were not told yet.
    pub fn take_lines(&mut self) -> Vec<String> {
        let certain = lines::certain(self);
        let fresh = certain.get(self.lines_told..).unwrap_or_default().to_vec();
        self.lines_told = certain.len();
        fresh
    }

    /// Ends it: what was not reached is told as such.
    pub fn end(mut self, ending: Ending) -> Ended {
        let code = self.code(ending);
        let failed = code.is_some_and(FailureCode::is_failure);
        let (failures, sleep_secs) = match code {
            Some(_) if failed => {
                let failures = self.before.consecutive_failures.saturating_add(1);
                (failures, (BACKOFF_STEP_SECS * u64::from(failures)).min(BACKOFF_CAP_SECS))
            }
            Some(_) => (self.before.consecutive_failures, self.settings.interval_secs),
            None => (0, self.settings.interval_secs),
        };
        let selected = self.selected().map(|issue| issue.number);
        let state = State {
            cycle_count: self.before.cycle_count.saturating_add(1),
            last_cycle_utc: Some(self.started_at),
            last_selected_issue: selected,
            last_claimed_issue: if code.is_none() { selected } else { self.before.last_claimed_issue },
            consecutive_failures: failures,
            last_failure_code: code,
            backoff_seconds: sleep_secs,
        };
        let all = lines::all(&self, code, sleep_secs);
        let lines = all.get(self.lines_told..).unwrap_or_default().to_vec();
        self.lines_told = all.len();
        Ended { lines, state, code, sleep_secs, summary: lines::summary(&self, code, sleep_secs) }
    }

    fn code(&self, ending: Ending) -> Option<FailureCode> {
        match ending {
            Ending::RuntimeExceeded => return Some(FailureCode::RuntimeExceeded),
            Ending::Exception => return Some(FailureCode::Exception),
            Ending::Complete => {}
        }
        if self.violated().is_some() {
            return Some(FailureCode::GovernanceFailed);
        }
        if self.environment.as_ref().is_some_and(|failures| !failures.is_empty()) {
            return Some(FailureCode::EnvironmentFailed);
        }
        match (&self.selection, self.claim) {
            (Some(None), _) => Some(FailureCode::NoTasks),
            (_, Some(false)) => Some(FailureCode::ClaimFailed),
            (Some(Some(_)), Some(true)) => None,
            // Steps are missing that nobody reported.
            _ => Some(FailureCode::Exception),
        }
    }

    fn violated(&self) -> Option<Violated> {
        [self.governance, self.gate].into_iter().flatten().find_map(Result::err)
    }
}

#[cfg(test)]
mod tests;
