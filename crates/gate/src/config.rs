//! The configuration of a gate, and its validation.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::priority::Priority;

/// The name of the budget for models that no group matches.
pub const DEFAULT_GROUP: &str = "*";

/// The limits of one gate. Plain data; [`GateConfig::default`] is usable as it is.
///
/// ```
/// use rota_gate::{Gate, GateConfig};
///
/// let gate = Gate::new(GateConfig { max_concurrent: 4, ..GateConfig::default() })?;
/// assert_eq!(gate.state().slots, 4);
/// # Ok::<(), rota_gate::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateConfig {
    /// Slots: concurrent requests over all groups. Default 10.
    pub max_concurrent: usize,
    /// Starts in any period of `rate_window`. Default 50.
    pub max_requests_per_window: u32,
    /// The length of the sliding window. Default 60 s.
    pub rate_window: Duration,
    /// Starts that may follow each other immediately; after them starts are spread over the window. Values above
    /// `max_requests_per_window` are reduced to it. Default 10.
    pub burst: u32,
    /// Added to every window, because calls may overtake each other in transit. Default 0.
    pub window_margin: Duration,
    /// The priority of a request without one. Default normal.
    pub default_priority: Priority,
    /// How much later a waiter is ordered per level of priority. Default 60 s.
    pub priority_spread: Duration,
    /// The shortest block after a 429. Default 5 s.
    pub initial_backoff: Duration,
    /// The longest block that doubling reaches. Default 120 s.
    pub max_backoff: Duration,
    /// How long the ramp back to full speed takes after a block. Default 30 s.
    pub recovery_period: Duration,
    /// Input tokens per minute, if the provider limits them. Default none.
    pub input_tokens_per_minute: Option<u64>,
    /// Output tokens per minute, if the provider limits them. Default none.
    pub output_tokens_per_minute: Option<u64>,
    /// Model groups with their own budgets. Default none: every model uses `*`.
    pub groups: Vec<GroupConfig>,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            max_concurrent: 10,
            max_requests_per_window: 50,
            rate_window: Duration::from_secs(60),
            burst: 10,
            window_margin: Duration::ZERO,
            default_priority: Priority::Normal,
            priority_spread: Duration::from_secs(60),
            initial_backoff: Duration::from_secs(5),
            max_backoff: Duration::from_secs(120),
            recovery_period: Duration::from_secs(30),
            input_tokens_per_minute: None,
            output_tokens_per_minute: None,
            groups: Vec::new(),
        }
    }
}

/// A model group: its models and its own budget, which is not shared with another group. Omitted values are taken
/// from the gate's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupConfig {
    /// The group's name, for views.
    pub name: String,
    /// Patterns for model names; `*` stands for any characters, `?` for one. The first group that matches gets the
    /// request.
    pub models: Vec<String>,
    /// As in [`GateConfig`].
    pub max_requests_per_window: Option<u32>,
    /// As in [`GateConfig`].
    pub rate_window: Option<Duration>,
    /// As in [`GateConfig`].
    pub burst: Option<u32>,
    /// As in [`GateConfig`].
    pub input_tokens_per_minute: Option<u64>,
    /// As in [`GateConfig`].
    pub output_tokens_per_minute: Option<u64>,
}

/// Why a configuration was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit of zero would admit nothing, ever.
    #[error("{key} must be at least 1, got 0")]
    ZeroLimit {
        /// The configuration key, with its group if it has one.
        key: String,
    },
    /// A duration of zero would make the limit meaningless.
    #[error("{key} must be longer than 0 s")]
    ZeroDuration {
        /// The configuration key, with its group if it has one.
        key: String,
    },
    /// The longest backoff is shorter than the first.
    #[error("max_backoff ({max:?}) must not be shorter than initial_backoff ({initial:?})")]
    BackoffCap {
        /// `initial_backoff`.
        initial: Duration,
        /// `max_backoff`.
        max: Duration,
    },
    /// Two groups have the same name, or a group is named like the default one.
    #[error("group name {name:?} is used twice")]
    DuplicateGroup {
        /// The name.
        name: String,
    },
    /// A group without patterns, which no model could match.
    #[error("group {name:?} needs at least one model pattern")]
    NoModels {
        /// The group's name.
        name: String,
    },
}

impl GateConfig {
    /// Checks every value. [`Gate::new`](crate::Gate::new) does so too.
    ///
    /// # Errors
    /// The first value that is not allowed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.max_concurrent == 0 {
            return Err(ConfigError::ZeroLimit { key: "max_concurrent".to_owned() });
        }
        for (key, duration) in [("initial_backoff", self.initial_backoff), ("max_backoff", self.max_backoff)]
        {
            if duration.is_zero() {
                return Err(ConfigError::ZeroDuration { key: key.to_owned() });
            }
        }
        if self.max_backoff < self.initial_backoff {
            return Err(ConfigError::BackoffCap { initial: self.initial_backoff, max: self.max_backoff });
        }
        self.budget(None).validate("")?;
        let mut names = BTreeSet::from([DEFAULT_GROUP]);
        for group in &self.groups {
            if !names.insert(&group.name) {
                return Err(ConfigError::DuplicateGroup { name: group.name.clone() });
            }
            if group.models.is_empty() {
                return Err(ConfigError::NoModels { name: group.name.clone() });
            }
            self.budget(Some(group)).validate(&format!("groups.{}.", group.name))?;
        }
        Ok(())
    }

    /// The budget of a group, or of the default group.
    pub(crate) fn budget(&self, group: Option<&GroupConfig>) -> BudgetConfig {
        let limit =
            group.and_then(|group| group.max_requests_per_window).unwrap_or(self.max_requests_per_window);
        let input = group.map_or(self.input_tokens_per_minute, |group| {
            group.input_tokens_per_minute.or(self.input_tokens_per_minute)
        });
        let output = group.map_or(self.output_tokens_per_minute, |group| {
            group.output_tokens_per_minute.or(self.output_tokens_per_minute)
        });
        BudgetConfig {
            max_requests_per_window: limit,
            rate_window: group.and_then(|group| group.rate_window).unwrap_or(self.rate_window),
            burst: group.and_then(|group| group.burst).unwrap_or(self.burst).min(limit),
            input_tokens_per_minute: input,
            output_tokens_per_minute: output,
            window_margin: self.window_margin,
        }
    }
}

/// One budget with every value set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BudgetConfig {
    pub max_requests_per_window: u32,
    pub rate_window: Duration,
    pub burst: u32,
    pub input_tokens_per_minute: Option<u64>,
    pub output_tokens_per_minute: Option<u64>,
    pub window_margin: Duration,
}

impl BudgetConfig {
    fn validate(&self, prefix: &str) -> Result<(), ConfigError> {
        let limits = [
            ("max_requests_per_window", Some(u64::from(self.max_requests_per_window))),
            ("burst", Some(u64::from(self.burst))),
            ("input_tokens_per_minute", self.input_tokens_per_minute),
            ("output_tokens_per_minute", self.output_tokens_per_minute),
        ];
        for (key, limit) in limits {
            if limit == Some(0) {
                return Err(ConfigError::ZeroLimit { key: format!("{prefix}{key}") });
            }
        }
        if self.rate_window.is_zero() {
            return Err(ConfigError::ZeroDuration { key: format!("{prefix}rate_window") });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> GroupConfig {
        GroupConfig { name: name.to_owned(), models: vec!["*".to_owned()], ..GroupConfig::default() }
    }

    /// The defaults are a contract, because policy files omit them.
    #[test]
    fn defaults_are_those_of_the_policy() {
        let config = GateConfig::default();
        assert_eq!((config.max_concurrent, config.max_requests_per_window, config.burst), (10, 50, 10));
        assert_eq!(config.default_priority, Priority::Normal);
        let seconds = [
            (config.rate_window, 60),
            (config.window_margin, 0),
            (config.priority_spread, 60),
            (config.initial_backoff, 5),
            (config.max_backoff, 120),
            (config.recovery_period, 30),
        ];
        for (duration, expected) in seconds {
            assert_eq!(duration, Duration::from_secs(expected));
        }
        assert_eq!((config.input_tokens_per_minute, config.output_tokens_per_minute), (None, None));
    }

    #[test]
    fn zero_limits_and_nonsense_are_refused_by_name() {
        let base = GateConfig::default;
        let cases = [
            (GateConfig { max_concurrent: 0, ..base() }, "max_concurrent must be at least 1, got 0"),
            (
                GateConfig { max_requests_per_window: 0, ..base() },
                "max_requests_per_window must be at least 1, got 0",
            ),
            (GateConfig { burst: 0, ..base() }, "burst must be at least 1, got 0"),
            (GateConfig { rate_window: Duration::ZERO, ..base() }, "rate_window must be longer than 0 s"),
            (
                GateConfig { initial_backoff: Duration::ZERO, ..base() },
                "initial_backoff must be longer than 0 s",
            ),
            (GateConfig { max_backoff: Duration::ZERO, ..base() }, "max_backoff must be longer than 0 s"),
            (
                GateConfig { max_backoff: Duration::from_secs(4), ..base() },
                "max_backoff (4s) must not be shorter than initial_backoff (5s)",
            ),
            (
                GateConfig { input_tokens_per_minute: Some(0), ..base() },
                "input_tokens_per_minute must be at least 1, got 0",
            ),
            (
                GateConfig { groups: vec![GroupConfig { burst: Some(0), ..group("big") }], ..base() },
                "groups.big.burst must be at least 1, got 0",
            ),
            (GateConfig { groups: vec![group("a"), group("a")], ..base() }, "group name \"a\" is used twice"),
            (GateConfig { groups: vec![group("*")], ..base() }, "group name \"*\" is used twice"),
            (
                GateConfig { groups: vec![GroupConfig { models: vec![], ..group("a") }], ..base() },
                "group \"a\" needs at least one model pattern",
            ),
        ];
        assert_eq!(base().validate(), Ok(()));
        for (config, message) in cases {
            assert_eq!(config.validate().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_group_takes_from_the_gate_what_it_leaves_out() {
        let config = GateConfig { input_tokens_per_minute: Some(7), ..GateConfig::default() };
        let small = GroupConfig { max_requests_per_window: Some(3), ..group("small") };
        let budget = config.budget(Some(&small));
        assert_eq!((budget.max_requests_per_window, budget.burst), (3, 3), "burst never exceeds the limit");
        assert_eq!(budget.input_tokens_per_minute, Some(7));
        assert_eq!(budget.rate_window, Duration::from_secs(60));
    }
}
