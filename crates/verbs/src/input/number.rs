//! Numbers that verbs take.

use std::fmt;
use std::str::FromStr;

use rota_core::policy::GateLevel;
use rota_core::text::escaped;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

use super::{BadInput, digits, refuse};
use crate::context::bad_value;

/// Declares whole numbers from 0: the integer behind each, its message, and what the command line takes beside digits.
macro_rules! whole_numbers {
    ($($(#[$doc:meta])* $name:ident($integer:ident) or |$text:ident| $problem:expr, from $parse:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[serde(transparent)]
        pub struct $name($integer);

        impl $name {
            /// The number.
            pub fn get(self) -> $integer {
                self.0
            }
        }

        impl From<$integer> for $name {
            fn from(number: $integer) -> Self {
                Self(number)
            }
        }

        impl FromStr for $name {
            type Err = BadInput;

            fn from_str($text: &str) -> Result<Self, BadInput> {
                let parse: fn(&str) -> Option<$integer> = $parse;
                parse($text).map(Self).ok_or_else(|| $problem)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let number = deserializer.deserialize_any(Whole)?;
                let whole = number.as_deref().ok().and_then(digits::<$integer>);
                let $text = &*number.unwrap_or_else(|text| text);
                whole.map(Self).ok_or_else(|| refuse($problem))
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "integer", "minimum": 0, "maximum": $integer::MAX})
            }
        }
    )*};
}

whole_numbers! {
    /// The length of a lease.
    Seconds(u64) or |text| not_an_integer("--lease", text), from digits;
    /// The priority of a task, lower first.
    Priority(u32) or |text| not_an_integer("-p (priority)", text), from digits;
    /// How many tasks or events are shown.
    Count(usize) or |text| not_an_integer("-n", text), from digits;
    /// The priority of an entry, lower first.
    EntryPriority(u32) or |text| not_a_number("priority", text), from digits;
    /// How many entries at most.
    EntryLimit(usize) or |text| not_a_number("limit", text), from digits;
    /// The priority of a loop, lower first; on the command line also the name of a level.
    LoopPriority(u32) or |text| not_a_level(text), from named;
}

fn not_an_integer(name: &str, text: &str) -> BadInput {
    BadInput::Malformed(super::not_an_integer(name, text))
}

fn not_a_number(flag: &str, text: &str) -> BadInput {
    BadInput::Malformed(super::not_a_number(flag, text))
}

fn not_a_level(text: &str) -> BadInput {
    let given = escaped(text);
    let levels = "critical, high, normal, low or a non-negative integer";
    bad_value(format!("--priority must be {levels}, got: {given}")).into()
}

/// A level by its name, or a number.
fn named(text: &str) -> Option<u32> {
    let level = GateLevel::ALL.iter().zip(0..).find(|(level, _)| level.word() == text);
    level.map(|(_, number)| number).or_else(|| digits(text))
}

/// Reads a JSON number as the text a person would write (`Ok`), or a string (`Err`), which is no number.
struct Whole;

impl Visitor<'_> for Whole {
    type Value = Result<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Ok(number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Ok(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        // A whole number may be written with a fraction of zero.
        Ok(Ok(number.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Err(text.to_owned()))
    }
}

impl Default for Count {
    fn default() -> Self {
        Self(5)
    }
}

impl Default for EntryLimit {
    fn default() -> Self {
        Self(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_of_loops_have_names() {
        for (text, number) in [("critical", 0), ("high", 1), ("normal", 2), ("low", 3), ("0", 0), ("17", 17)]
        {
            assert_eq!(text.parse::<LoopPriority>().ok(), Some(LoopPriority(number)), "{text}");
        }
        for text in ["", "urgent", "-1", "1.5", "+1", "99999999999"] {
            assert!(text.parse::<LoopPriority>().is_err(), "{text}");
        }
    }
}
