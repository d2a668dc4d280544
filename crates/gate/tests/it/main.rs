//! The gate from the outside. Each test names the property or the requirement it guards: P8 (the gate's
//! promise: slots, window, block, no leaks) and G1 to G5 (the cases to be shown).

mod callers;
mod edges;
mod fairness;
mod groups;
mod handle_schedules;
mod interleavings;
mod pure_schedules;
mod rate_limits;
mod reconfigure;
mod stored_block;
mod support;
mod vectors;
mod views;
