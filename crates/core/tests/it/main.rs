//! The pure core, seen from outside: the state machine against its table and against a reference model, plans,
//! policies, explanations, and arithmetic at the edges. Tests name the properties (P) and the required tests (C) of
//! the reliability page that they guard.
//!
//! `ROTA_PROPTEST_CASES=100000 cargo test -p rota-core` runs the long form of every property test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::disallowed_methods, reason = "tests are steered by variables; core is not")]

mod edges;
mod explain;
mod model;
mod plan_sync;
mod policy;
mod policy_schema;
mod state_machine_page;
mod support;
mod transition;
