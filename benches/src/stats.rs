//! Medians and ratios.

use std::time::Duration;

/// The middle value; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The middle of each round's own ratio: what the rest of the machine did in a round, it did to both sides.
pub fn median_ratio(ours: &[f64], bare: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours.iter().zip(bare).map(|(ours, bare)| ours / bare).collect();
    median(&ratios)
}

/// As a number of microseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Whether a target holds, in a word.
pub fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "MISSED" }
}
