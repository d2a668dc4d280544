//! The house rules, kept by tests instead of by review. Each rule is a list of findings that must be empty; a finding
//! says where, what, and what to do.

mod layers;
mod links;
mod pages;
mod sizes;
mod words;

/// Fails with every finding on a line of its own.
fn none(rule: &str, findings: Vec<String>) {
    assert!(findings.is_empty(), "\n{rule}:\n  {}\n", findings.join("\n  "));
}
