//! Named places where a test can end the process, as a power cut would. Built only with the feature `crash-points`;
//! without it a point compiles to nothing.

/// Ends the process at once if `ROTA_CRASH_POINT` names this place.
#[cfg(feature = "crash-points")]
pub fn point(name: &str) {
    if std::env::var_os("ROTA_CRASH_POINT").is_some_and(|wanted| wanted == name) {
        std::process::abort();
    }
}

/// Nothing: this program was built without crash points.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn point(_name: &str) {}
