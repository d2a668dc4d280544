//! The suite, once per store.

/// On the reference.
mod memory {
    use crate::subjects::Memory;
    rota_store::conformance_suite!(Memory);
}

/// On SQLite.
mod sqlite {
    use crate::subjects::Sqlite;
    rota_store::conformance_suite!(Sqlite::default());
}

/// On PostgreSQL.
mod postgres {
    use crate::subjects::Postgres;
    rota_store::conformance_suite!(Postgres);
}

/// Every case that is written is run: the suite's list names each public function that takes a subject alone.
#[test]
fn the_suite_names_every_case() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
    let list = std::fs::read_to_string(folder.join("mod.rs")).unwrap();
    let mut cases = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| line.ends_with("<S: Subject>(subject: &S) {")) {
            let name = line.trim_start_matches("pub fn ").split('<').next().unwrap();
            assert!(list.lines().any(|listed| listed.trim() == name), "{name} is not in the suite's list");
            cases += 1;
        }
    }
    assert!(cases > 60, "{cases} cases were found");
}
