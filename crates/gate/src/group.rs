//! A model group: its waiters and their budget, under the gate's common slots.

use std::time::Duration;

use crate::config::{BudgetConfig, DEFAULT_GROUP, GateConfig};
use crate::moment::{Moment, micros};
use crate::outcome::Usage;
use crate::pace::Pace;
use crate::queue::Queue;
use crate::ramp::Ramp;
use crate::tokens::TokenWindow;
use crate::window::StartWindow;

const MINUTE_MICROS: u64 = 60_000_000;
/// The longest pause after a response that reports little remaining budget; a longer exhaustion causes a 429.
const LONGEST_HOLD_BACK: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Group {
    pub name: Box<str>,
    models: Vec<Box<str>>,
    pub queue: Queue,
    pub window: StartWindow,
    pace: Pace,
    /// When the bucket had a start available again, as of the last block. Lifting a block early does not make it
    /// earlier.
    refilled: Moment,
    /// No start before this time, because the provider reported little remaining budget.
    held_back_until: Moment,
    pub input: Option<TokenWindow>,
    pub output: Option<TokenWindow>,
}

impl Group {
    /// Every group of a configuration; the default one is last and takes the remaining models.
    pub fn all(config: &GateConfig) -> Vec<Group> {
        let named = config.groups.iter().map(|group| {
            let models = group.models.iter().map(|model| model.as_str().into()).collect();
            Group::new(&group.name, models, config.budget(Some(group)))
        });
        let rest = Group::new(DEFAULT_GROUP, vec![DEFAULT_GROUP.into()], config.budget(None));
        named.chain([rest]).collect()
    }

    /// Every group of another configuration. A group of the same name keeps its counts.
    pub fn renewed(before: &mut Vec<Group>, config: &GateConfig, now: Moment, ramp: &Ramp) -> Vec<Group> {
        let mut groups = Self::all(config);
        for (index, group) in groups.iter_mut().enumerate() {
            let Some(known) = before.iter().position(|known| known.name == group.name) else { continue };
            let budget = config.budget(config.groups.get(index));
            let known = before.swap_remove(known);
            let models = std::mem::take(&mut group.models);
            *group = known.with_limits(models, budget, now, ramp);
        }
        groups
    }

    /// The same group under other limits, without its waiters, which may belong to another group now.
    fn with_limits(mut self, models: Vec<Box<str>>, budget: BudgetConfig, now: Moment, ramp: &Ramp) -> Self {
        let margin = micros(budget.window_margin);
        let window = micros(budget.rate_window).saturating_add(margin);
        let renewed = |known: Option<TokenWindow>, limit: Option<u64>| {
            let limit = limit?;
            let mut tokens = known.unwrap_or_else(|| TokenWindow::new(limit, 0));
            tokens.set_limits(limit, MINUTE_MICROS + margin);
            Some(tokens)
        };
        self.models = models;
        self.queue = Queue::default();
        self.window.set_limits(budget.max_requests_per_window, window);
        self.pace.set_limits(ramp.paced(now), budget.max_requests_per_window, window, budget.burst);
        self.refilled = Moment::ZERO;
        self.input = renewed(self.input.take(), budget.input_tokens_per_minute);
        self.output = renewed(self.output.take(), budget.output_tokens_per_minute);
        self
    }

    fn new(name: &str, models: Vec<Box<str>>, budget: BudgetConfig) -> Self {
        let margin = micros(budget.window_margin);
        let window = micros(budget.rate_window).saturating_add(margin);
        let tokens = |limit: Option<u64>| limit.map(|limit| TokenWindow::new(limit, MINUTE_MICROS + margin));
        Self {
            name: name.into(),
            models,
            queue: Queue::default(),
            window: StartWindow::new(budget.max_requests_per_window, window),
            pace: Pace::new(budget.max_requests_per_window, window, budget.burst),
            refilled: Moment::ZERO,
            held_back_until: Moment::ZERO,
            input: tokens(budget.input_tokens_per_minute),
            output: tokens(budget.output_tokens_per_minute),
        }
    }

    /// The index of the group for a model.
    pub fn serving(groups: &[Group], model: Option<&str>) -> usize {
        // The last group takes the rest without a match.
        let rest = groups.len() - 1;
        match model {
            Some(model) => groups[..rest].iter().position(|group| group.serves(model)).unwrap_or(rest),
            None => rest,
        }
    }

    pub fn serves(&self, model: &str) -> bool {
        self.models.iter().any(|pattern| matches(pattern, model))
    }

    /// True if the budget allows a start now. Equivalent to `opens_at`, but faster.
    pub fn is_open(&self, now: Moment, ramp: &Ramp) -> bool {
        let has_tokens = |window: &Option<TokenWindow>| {
            window.as_ref().is_none_or(|window| window.used(now) < window.limit())
        };
        self.held_back_until <= now
            && self.window.is_open(now)
            && self.pace.is_open(ramp.paced(now))
            && has_tokens(&self.input)
            && has_tokens(&self.output)
    }

    /// When the budget allows the next start. `None` if that is beyond the range of time.
    pub fn opens_at(&self, now: Moment, ramp: &Ramp) -> Option<Moment> {
        let paced = ramp.when_paced(self.pace.opens_at()?)?;
        Some(self.windows_open_at(now)?.max(paced))
    }

    /// True while only pacing, and no window, delays the next start.
    pub fn is_pacing(&self, now: Moment, ramp: &Ramp) -> bool {
        !self.pace.is_open(ramp.paced(now)) && self.windows_open_at(now).is_some_and(|opens| opens <= now)
    }

    /// When the windows alone, without pacing, allow the next start.
    pub fn windows_open_at(&self, now: Moment) -> Option<Moment> {
        let mut opens = self.window.opens_at()?.max(self.held_back_until);
        for tokens in [&self.input, &self.output].into_iter().flatten() {
            opens = opens.max(tokens.opens_at(now)?);
        }
        Some(opens)
    }

    pub fn record_start(&mut self, now: Moment, ramp: &Ramp) {
        self.window.record(now);
        self.pace.record(ramp.paced(now));
    }

    pub fn count(&mut self, now: Moment, usage: Usage) {
        if let Some(input) = &mut self.input {
            input.count(now, usage.input_tokens);
        }
        if let Some(output) = &mut self.output {
            output.count(now, usage.output_tokens);
        }
    }

    /// Prevents starts for a while, at most a minute; a shorter time than before changes nothing.
    pub fn hold_back(&mut self, now: Moment, wait: Duration) {
        self.held_back_until = self.held_back_until.max(now.plus(wait.min(LONGEST_HOLD_BACK)));
    }

    /// Leaves a single start in the bucket, for a ramp that will begin at `at`. An empty bucket refills in ordinary
    /// time until then; `ramp` is the current one.
    pub fn leave_one(&mut self, now: Moment, at: Moment, ramp: &Ramp) {
        let opens = self.pace.opens_at().and_then(|paced| ramp.when_paced(paced));
        self.refilled = self.refilled.max(opens.unwrap_or(Moment::MAX));
        self.pace.leave_one(ramp.paced(now), self.refilled.micros_since(at));
    }
}

/// True if `text` matches `pattern`, where `*` stands for any characters and `?` for one.
fn matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // The pattern after the last star, and the text that the star has not consumed.
    let mut star = None;
    loop {
        let (mut wanted, mut left) = (pattern.clone(), text.clone());
        let Some(symbol) = left.next() else { return pattern.all(|symbol| symbol == '*') };
        match wanted.next() {
            Some('*') => {
                pattern = wanted.clone();
                star = Some((wanted, text.clone()));
            }
            Some(one) if one == '?' || one == symbol => (pattern, text) = (wanted, left),
            _ => match &mut star {
                Some((behind, unswallowed)) => {
                    unswallowed.next();
                    (pattern, text) = (behind.clone(), unswallowed.clone());
                }
                None => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GroupConfig;

    #[test]
    fn patterns_match_as_people_expect() {
        let cases = [
            ("*", "", true),
            ("*", "anything", true),
            ("opus-*", "opus-4-1", true),
            ("opus-*", "sonnet-4", false),
            ("*-mini", "gpt-5-mini", true),
            ("*-mini", "gpt-5-mini-high", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("gpt-?", "gpt-5", true),
            ("gpt-?", "gpt-", false),
            ("gpt-?", "gpt-55", false),
            ("", "", true),
            ("", "x", false),
            ("ü*", "üx", true),
            ("**", "x", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern, text), expected, "{pattern:?} on {text:?}");
        }
    }

    #[test]
    fn a_hostile_pattern_ends_soon() {
        let pattern = "*a".repeat(200);
        assert!(!matches(&pattern, &"a".repeat(199)));
    }

    #[test]
    fn the_first_group_that_matches_takes_the_model_and_the_default_one_the_rest() {
        let named = |name: &str, model: &str| GroupConfig {
            name: name.to_owned(),
            models: vec![model.to_owned()],
            ..GroupConfig::default()
        };
        let config = GateConfig {
            groups: vec![named("big", "opus-*"), named("all", "opus*")],
            ..GateConfig::default()
        };
        let groups = Group::all(&config);
        let serving = |model: &str| groups.iter().find(|group| group.serves(model)).map(|group| &*group.name);
        assert_eq!(serving("opus-4"), Some("big"));
        assert_eq!(serving("opus"), Some("all"));
        assert_eq!(serving("haiku"), Some("*"));
    }
}
