//! `rota init` and `rota.yml` as every command reads it.

use expect_test::expect;

use crate::support::Lab;

#[test]
fn writes_a_file_that_changes_nothing_and_never_writes_over_one() {
    let lab = Lab::new();
    let before = lab.line("policy show").ok();
    lab.check(
        "init
        init
        init --config other.yml --json
        init --config missing/rota.yml
        init extra",
        expect![[r#"
            $ init
            wrote <folder>/rota.yml
            wrote <folder>/rota.schema.json
            $ init
            ! error: <folder>/rota.yml: File exists (os error 17), and is left alone
            [1]
            $ init --config other.yml --json
            {
              "schemaVersion": 1,
              "file": "other.yml",
              "schema": "rota.schema.json"
            }
            $ init --config missing/rota.yml
            ! error: missing/rota.yml: No such file or directory (os error 2)
            [1]
            $ init extra
            ! error: unexpected argument 'extra'
            ! Usage: rota init [OPTIONS]
            [1]
        "#]],
    );
    assert_eq!(lab.line("policy show").ok(), before);
    let written = std::fs::read_to_string(lab.path().join("rota.yml")).unwrap();
    assert_eq!(std::fs::read_to_string(lab.path().join("other.yml")).unwrap(), written);
    assert!(written.contains("\n#scheduler:\n"), "{written}");
    assert!(written.starts_with("# yaml-language-server: $schema=rota.schema.json\n"), "{written}");
    let schema = std::fs::read_to_string(lab.path().join("rota.schema.json")).unwrap();
    assert_eq!(lab.line("config schema").ok(), schema);
    assert!(schema.contains("https://json-schema.org/draft/2020-12/schema"), "{schema}");
}

#[test]
fn a_file_that_cannot_be_meant_stops_every_command() {
    let lab = Lab::new();
    for text in [
        "lops: {}\n",
        "scope: a\nscope: b\n",
        "concurrency: {max-loops: many}\n",
        "concurrency: {max_api_calls: 3}\nrate_limit: {max_concurrent_api_calls: 4}\n",
        "loops: {ralph: {run: [agent, 1]}}\n",
    ] {
        std::fs::write(lab.path().join("rota.yml"), text).unwrap();
        let ran = lab.line("task list");
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{text}");
    }
    lab.check(
        "task list",
        expect![[r#"
        $ task list
        ! error: <folder>/rota.yml: loops.ralph.run[1]: expected a text (in quotes), got 1
        [1]
    "#]],
    );
    assert!(!lab.database().exists());
    std::fs::write(lab.path().join("rota.yml"), "scope: mine\nconcurrency: {max-loops: 7}\n").unwrap();
    assert!(lab.line("task create a A --json").ok().contains("\"scope\": \"mine\""));
}
