//! The section `notify` of `rota.yml`: whom to notify, and about what.

use crate::shape::{Key, Shape, key};

/// What a hook can be notified about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// A task needs a person.
    Parked,
    /// A task failed for good.
    Failed,
    /// An API answered that its rate limit is reached.
    RateLimited,
    /// An API's quota is used up, or it is blocked for long.
    Quota,
    /// A budget is spent, and loops wait for it.
    BudgetSpent,
    /// Nothing runs any more, and nothing is left that could.
    Idle,
    /// A rule of governance was broken, or the pin was lost and set anew.
    GovernanceViolation,
    /// A cycle of the supervisor failed.
    CycleFailed,
}

impl Topic {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Parked,
        Self::Failed,
        Self::RateLimited,
        Self::Quota,
        Self::BudgetSpent,
        Self::Idle,
        Self::GovernanceViolation,
        Self::CycleFailed,
    ];

    /// The word in the configuration and in messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Failed => "failed",
            Self::RateLimited => "rate_limited",
            Self::Quota => "quota",
            Self::BudgetSpent => "budget_spent",
            Self::Idle => "idle",
            Self::GovernanceViolation => "governance_violation",
            Self::CycleFailed => "cycle_failed",
        }
    }
}

const WORDS: [&str; 8] = {
    let mut words = [""; 8];
    let mut index = 0;
    while index < words.len() {
        words[index] = Topic::ALL[index].word();
        index += 1;
    }
    words
};

/// The section as a whole.
pub const HOOKS: Shape = Shape::List(&Shape::Keys(HOOK), "hooks");

/// The keys of one hook.
pub const HOOK: &[Key] = &[
    key("on", Shape::List(&Shape::Word(&WORDS), "topics"), "The topics that the hook is notified about."),
    key("url", Shape::Text, "Send each message as a POST of JSON to this address."),
    key("secret_env", Shape::Text, "The variable that holds the key which the body is signed with."),
    key(
        "run",
        Shape::Texts("texts"),
        "Instead of url: a program that reads each message on its standard input.",
    ),
];
