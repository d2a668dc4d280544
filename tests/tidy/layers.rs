//! Who may do what: core is pure, only `store` knows SQL, arrows between crates point one way.

use rota_tests::source::{Without, code, has_word};
use rota_tests::tree::{SourceFile, files};

use crate::none;

fn rust_below(folder: &str) -> impl Iterator<Item = SourceFile> {
    files().into_iter().filter(move |file| file.path.starts_with(folder) && file.has_extension("rs"))
}

#[test]
fn core_is_pure() {
    const NEVER: [(&str, &str); 12] = [
        ("SystemTime", "now comes in as an argument"),
        ("Instant", "now comes in as an argument"),
        ("std::fs", "core does no I/O"),
        ("std::net", "core does no I/O"),
        ("std::process", "core does no I/O"),
        ("std::env", "core does not read its surroundings"),
        ("async fn", "core never waits"),
        ("f32", "floats round differently: thousandths, milliseconds"),
        ("f64", "floats round differently: thousandths, milliseconds"),
        ("HashMap", "its order changes per run: BTreeMap"),
        ("HashSet", "its order changes per run: BTreeSet"),
        ("rand", "core has no randomness"),
    ];
    let mut findings = Vec::new();
    for file in rust_below("crates/core/src/").chain(rust_below("crates/supervise/src/cycle/")) {
        let code = code(&file.text, Without::CommentsAndTexts);
        for (word, why) in NEVER {
            if has_word(&code, word) {
                findings.push(format!("{}: {word} ({why})", file.path));
            }
        }
        if code.contains(".await") {
            findings.push(format!("{}: .await (core never waits)", file.path));
        }
    }
    none("core and the supervisor's cycle are functions of their arguments", findings);
}

/// One for the product, and one for the gate, which stands alone.
#[test]
fn wall_clocks_are_known() {
    let reads = |file: &SourceFile| has_word(&code(&file.text, Without::CommentsAndTexts), "SystemTime::now");
    let readers = rust_below("crates/").filter(|file| !file.is_test()).filter(reads);
    let readers: Vec<String> = readers.map(|file| file.path).collect();
    assert_eq!(readers, ["crates/gate/src/stored_block.rs", "crates/store/src/clock.rs"]);
}

/// Tests may look into a database from outside, and damage one.
fn may_know_sql(file: &SourceFile) -> bool {
    file.path.starts_with("crates/store/") || file.path.starts_with("benches/") || file.is_test()
}

#[test]
fn only_the_store_knows_sql() {
    // In two parts, so that this file does not find itself.
    let keywords = [
        concat!("SELECT", " "),
        concat!("INSERT", " INTO "),
        concat!("UPDATE", " tasks"),
        concat!("DELETE", " FROM "),
        concat!("CREATE", " TABLE"),
        concat!("CREATE", " INDEX"),
    ];
    let mut findings = Vec::new();
    for file in files().into_iter().filter(|file| file.has_extension("rs") && !may_know_sql(file)) {
        let visible = code(&file.text, Without::Comments);
        for keyword in keywords.iter().filter(|keyword| visible.contains(**keyword)) {
            findings.push(format!("{}: {keyword}", file.path));
        }
        for library in [concat!("rus", "qlite"), concat!("tokio_", "postgres")] {
            if has_word(&visible, library) {
                findings.push(format!("{}: {library}", file.path));
            }
        }
    }
    none("SQL and its libraries are the store's business", findings);
}

/// A crate, and those of ours that it may use. Tests may use more.
const ARROWS: [(&str, &[&str]); 12] = [
    ("core", &[]),
    ("gate", &[]),
    ("store", &["rota-core"]),
    ("conformance", &["rota-core", "rota-store"]),
    ("verbs", &["rota-core", "rota-store"]),
    ("net", &[]),
    ("auth", &["rota-store"]),
    ("gateway", &["rota-core", "rota-net", "rota-store", "rota-auth", "rota-gate"]),
    ("daemon", &["rota-core", "rota-store", "rota-verbs", "rota-gateway", "rota-gate", "rota-auth"]),
    ("supervise", &["rota-core", "rota-net", "rota-store", "rota-daemon"]),
    ("serve", &["rota-core", "rota-net", "rota-store", "rota-verbs", "rota-auth", "rota-gateway"]),
    (
        "cli",
        &[
            "rota-core",
            "rota-store",
            "rota-verbs",
            "rota-gateway",
            "rota-auth",
            "rota-daemon",
            "rota-supervise",
            "rota-serve",
        ],
    ),
];

#[test]
fn arrows_point_one_way() {
    let mut findings = Vec::new();
    for (name, allowed) in ARROWS {
        let path = format!("crates/{name}/Cargo.toml");
        let manifest = files().into_iter().find(|file| file.path == path);
        let Some(manifest) = manifest else {
            findings.push(format!("{path} is missing"));
            continue;
        };
        let mut section = "";
        for line in manifest.text.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let ours = section == "[dependencies]" && dependency.starts_with("rota-");
            if ours && !allowed.contains(&dependency) {
                findings.push(format!("{path}: {dependency}"));
            }
        }
    }
    none("core <- store <- verbs <- {daemon <- supervise, serve} <- cli", findings);
}

/// The gate stands alone and brings its own, which are stricter.
#[test]
fn every_crate_has_lints_that_refuse_unsafe_code() {
    let manifests = files().into_iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let has_lints = |text: &str| {
        text.contains("[lints]\nworkspace = true") || text.contains("[lints.rust]\nunsafe_code = \"forbid\"")
    };
    let without = manifests.filter(|file| !has_lints(&file.text));
    none("[lints] workspace = true", without.map(|file| file.path).collect());
}
