//! The four levels of urgency and their names.

use std::fmt;
use std::str::FromStr;

/// How urgent a request is. Sorts most urgent first.
///
/// ```
/// use rota_gate::Priority;
///
/// assert!(Priority::Critical < Priority::Low, "sorts first");
/// assert_eq!("high".parse(), Ok(Priority::High));
/// assert_eq!(Priority::Normal.label(), "NORM");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// Level 0: before everything else.
    Critical,
    /// Level 1: a person waits for the answer.
    High,
    /// Level 2: most requests.
    #[default]
    Normal,
    /// Level 3: may wait, but never more than three spreads behind later arrivals.
    Low,
}

impl Priority {
    /// All levels, most urgent first.
    pub const ALL: [Priority; 4] = [Priority::Critical, Priority::High, Priority::Normal, Priority::Low];

    /// The level as a number: 0 critical, 1 high, 2 normal, 3 low.
    pub const fn level(self) -> u8 {
        match self {
            Priority::Critical => 0,
            Priority::High => 1,
            Priority::Normal => 2,
            Priority::Low => 3,
        }
    }

    /// The level's name, as configuration files spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Priority::Critical => "critical",
            Priority::High => "high",
            Priority::Normal => "normal",
            Priority::Low => "low",
        }
    }

    /// The short label in status panels.
    pub const fn label(self) -> &'static str {
        match self {
            Priority::Critical => "CRIT",
            Priority::High => "HIGH",
            Priority::Normal => "NORM",
            Priority::Low => "LOW",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A word that is not a priority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown priority {given:?}: expected critical, high, normal or low")]
pub struct UnknownPriority {
    /// The given word.
    pub given: String,
}

impl FromStr for Priority {
    type Err = UnknownPriority;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Priority::ALL
            .into_iter()
            .find(|priority| priority.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownPriority { given: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_levels_and_labels_agree() {
        let cases = [
            (Priority::Critical, 0, "critical", "CRIT"),
            (Priority::High, 1, "high", "HIGH"),
            (Priority::Normal, 2, "normal", "NORM"),
            (Priority::Low, 3, "low", "LOW"),
        ];
        for (priority, level, name, label) in cases {
            assert_eq!(priority.level(), level);
            assert_eq!(priority.to_string(), name);
            assert_eq!(priority.label(), label);
            assert_eq!(name.to_uppercase().parse(), Ok(priority));
        }
        assert_eq!(Priority::default(), Priority::Normal);
    }

    #[test]
    fn an_unknown_word_is_refused_with_what_is_wanted() {
        let error = "urgent".parse::<Priority>().unwrap_err();
        assert_eq!(error.to_string(), "unknown priority \"urgent\": expected critical, high, normal or low");
    }
}
