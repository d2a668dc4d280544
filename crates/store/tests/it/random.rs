//! C2, C3 on stores: random verbs, policies and clocks; all stores answer alike, step by step, and end alike.

use proptest::prelude::*;
use rota_conformance::Lab;
use rota_conformance::program::{Dice, Tally, compare, told};
use sha2::Digest;

use crate::subjects::{Memory, Postgres, Sqlite};

/// How many programs; the long command asks for more.
fn cases(usual: u32) -> u32 {
    let asked = std::env::var("ROTA_PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(usual)
}

fn on_sqlite(program: &[u64]) -> Tally {
    let sqlite = Sqlite::default();
    compare(&Lab::new(&Memory), &Lab::new(&sqlite), program)
}

fn on_postgres(program: &[u64]) -> Tally {
    compare(&Lab::new(&Memory), &Lab::new(&Postgres), program)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(96), max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    /// P2, P3, P4, P5, P7: the same answers, the same refusals, core's choices, and tables that fold from the journal.
    #[test]
    fn memory_and_sqlite_answer_alike(program in prop::collection::vec(any::<u64>(), 1..60)) {
        on_sqlite(&program);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(24), max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// The same for all three: each step is judged by the reference, which answers a program the same every time.
    #[test]
    fn memory_sqlite_and_postgres_answer_alike(program in prop::collection::vec(any::<u64>(), 1..60)) {
        on_sqlite(&program);
        on_postgres(&program);
    }
}

/// One long program reaches enough of everything to mean something.
#[test]
fn a_long_program_is_accepted_refused_and_granted() {
    let mut dice = Dice::new(7);
    let program: Vec<u64> = (0..600).map(|_| dice.below(u64::MAX)).collect();
    for tally in [on_sqlite(&program), on_postgres(&program)] {
        assert!(tally.accepted > 100 && tally.refused > 60 && tally.granted > 15, "{tally:?}");
    }
}

/// C8: what random programs decide does not depend on the run, and its hash says so to other builds and machines:
/// `.ci/same-decisions` compares it between debug and release.
#[test]
fn decisions_do_not_depend_on_the_run() {
    let decide = |store: &dyn Fn(&[u64]) -> String| {
        let mut dice = Dice::new(2026);
        let mut hash = sha2::Sha256::new();
        for _ in 0..cases(64) {
            let program: Vec<u64> = (0..60).map(|_| dice.below(u64::MAX)).collect();
            hash.update(store(&program));
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let in_memory = decide(&|program| told(&Lab::new(&Memory), program));
    let on_disk = decide(&|program| told(&Lab::new(&Sqlite::default()), program));
    println!("decisions {in_memory}");
    assert_eq!(in_memory, on_disk);
}
