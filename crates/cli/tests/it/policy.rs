//! `rota policy`, `rota sched policy`: the document in the store, its mirror, what is refused, and failing closed.

use expect_test::expect;
use serde_json::{Value, json};

use crate::support::{Lab, check};

fn value(lab: &Lab, line: &str) -> Value {
    serde_json::from_str(&lab.line(line).ok()).unwrap()
}

fn write(lab: &Lab, name: &str, text: &str) {
    std::fs::write(lab.path().join(name), text).unwrap();
}

fn mirror(lab: &Lab) -> Value {
    serde_json::from_str(&std::fs::read_to_string(lab.path().join("rota.policy.json")).unwrap()).unwrap()
}

/// The flat rules of queue runs, shown and set; `file` once anything was published.
#[test]
fn the_flat_rules() {
    check(
        r#"
        sched policy
        sched policy set --maxConcurrent 4 --backoffFactor 1.5
        sched policy show
        "#,
        expect![[r#"
            $ sched policy
            {
              "schemaVersion": 1,
              "policy": {
                "maxConcurrent": 1,
                "maxAttempts": 3,
                "leaseTtlMs": 300000,
                "backoffBaseMs": 1000,
                "backoffFactor": 2,
                "backoffCapMs": 60000
              },
              "source": "default"
            }
            $ sched policy set --maxConcurrent 4 --backoffFactor 1.5
            {
              "schemaVersion": 1,
              "policy": {
                "maxConcurrent": 4,
                "maxAttempts": 3,
                "leaseTtlMs": 300000,
                "backoffBaseMs": 1000,
                "backoffFactor": 1.5,
                "backoffCapMs": 60000
              },
              "source": "file"
            }
            $ sched policy show
            {
              "schemaVersion": 1,
              "policy": {
                "maxConcurrent": 4,
                "maxAttempts": 3,
                "leaseTtlMs": 300000,
                "backoffBaseMs": 1000,
                "backoffFactor": 1.5,
                "backoffCapMs": 60000
              },
              "source": "file"
            }
        "#]],
    );
}

/// Apply tells the difference, publishes and mirrors; the same again is no new version; what was made from an older
/// version is refused.
#[test]
fn apply_diff_history_and_the_mirror() {
    let lab = Lab::new();
    write(
        &lab,
        "new.json",
        r#"{"queues":{"tasks":{"max_attempts":5,"lease-ttl-ms":1000},"mine":{"maxConcurrent":2}}}"#,
    );
    let default = value(&lab, "policy show");
    assert_eq!((&default["source"], &default["schemaVersion"]), (&json!("default"), &json!(1)));
    let diff = value(&lab, "policy diff new.json");
    let paths: Vec<&str> =
        diff["changes"].as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap()).collect();
    assert_eq!(
        paths,
        [
            "queues.mine.leaseTtlMs",
            "queues.mine.maxAttempts",
            "queues.mine.maxConcurrent",
            "queues.mine.reclaim",
            "queues.mine.requireLease",
            "queues.tasks.leaseTtlMs",
            "queues.tasks.maxAttempts",
        ]
    );
    assert_eq!(diff["changes"][5], json!({"path": "queues.tasks.leaseTtlMs", "from": 600_000, "to": 1000}));
    assert!(!lab.path().join("rota.policy.json").exists(), "a diff writes nothing");
    let applied = value(&lab, "@0 --agent ann policy apply new.json");
    assert_eq!(applied["changes"], diff["changes"]);
    let shown = value(&lab, "policy show");
    assert_eq!((&shown["version"], &shown["source"]), (&applied["version"], &json!("published")));
    let mirrored = mirror(&lab);
    assert_eq!(mirrored["basedOn"], applied["version"]);
    assert_eq!(mirrored["queues"]["tasks"]["maxAttempts"], 5, "one form is written");
    // The mirror can be edited and applied, again and again.
    assert_eq!(value(&lab, "@1 policy apply rota.policy.json")["changes"], json!([]));
    assert_eq!(value(&lab, "policy history")["total"], 1);
    lab.line("@2 sched policy set --maxAttempts 7").ok();
    std::fs::write(lab.path().join("old.json"), mirrored.to_string()).unwrap();
    let refused = lab.line("policy apply old.json");
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.starts_with("error: the policy was based on "), "{}", refused.stderr);
    let history = value(&lab, "policy history");
    assert_eq!((&history["total"], &history["versions"][0]["actor"]), (&json!(2), &json!("ann")));
    assert_eq!(history["versions"][0]["publishedAt"], "2026-01-01T00:00:00.000Z");
    assert_eq!(mirror(&lab)["queues"]["runs"]["maxAttempts"], 7);
}

/// A flat file of old is about queue runs.
#[test]
fn a_flat_file_is_about_runs() {
    let lab = Lab::new();
    write(
        &lab,
        "scheduling-policy.json",
        r#"{"schemaVersion":1,"maxConcurrent":2,"maxAttempts":4,"leaseTtlMs":9000,
        "backoffBaseMs":500,"backoffFactor":3,"backoffCapMs":7000}"#,
    );
    lab.line("policy apply scheduling-policy.json").ok();
    let rules = value(&lab, "policy show")["policy"]["queues"]["runs"].clone();
    assert_eq!(
        (&rules["maxConcurrent"], &rules["backoff"]),
        (&json!(2), &json!({"baseMs": 500, "factor": 3, "capMs": 7000}))
    );
}

/// `--policy` and `ROTA_POLICY` say where the mirror goes; one that cannot be written is a warning: the store decides.
#[test]
fn where_the_mirror_goes() {
    let lab = Lab::new();
    lab.line("--policy here.json sched policy set --maxConcurrent 2").ok();
    lab.line("ROTA_POLICY=there.json sched policy set --maxConcurrent 3").ok();
    for (file, ceiling) in [("here.json", 2), ("there.json", 3)] {
        let text = std::fs::read_to_string(lab.path().join(file)).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["queues"]["runs"]["maxConcurrent"], ceiling);
        assert!(text.contains("\n  \"queues\": {\n"), "plain and diffable");
    }
    let ran = lab.line("--policy no/such/folder.json sched policy set --maxConcurrent 4");
    assert_eq!(ran.code, 0);
    assert!(
        ran.stderr.starts_with("warning: published, but not mirrored: no/such/folder.json: "),
        "{}",
        ran.stderr
    );
    assert_eq!(value(&lab, "sched policy")["policy"]["maxConcurrent"], 4);
}

/// Every document that cannot be meant: the key's path, what is allowed, and what may have been meant. The same words
/// from check, diff and apply, and nothing is published.
#[test]
fn what_is_refused() {
    let lab = Lab::new();
    let queue = |rules: &str| format!(r#"{{"queues":{{"tasks":{rules}}}}}"#);
    for (document, message) in [
        ("".into(), "policy: not JSON: EOF while parsing a value at line 1 column 0"),
        (
            queue(r#"{"maxConcurent":2}"#),
            "queues.tasks.maxConcurent: unknown key, did you mean 'maxConcurrent'?",
        ),
        (
            queue(r#"{"maxConcurrent":0}"#),
            "queues.tasks.maxConcurrent: expected a whole number from 1 to 1000000, got 0",
        ),
        (
            queue(r#"{"maxConcurrent":2.5}"#),
            "queues.tasks.maxConcurrent: expected a whole number from 1 to 1000000, got 2.5",
        ),
        (
            queue(r#"{"leaseTtlMs":-1}"#),
            "queues.tasks.leaseTtlMs: expected a whole number from 1 to 31536000000, got -1",
        ),
        (queue(r#"{"maxAttempts":1,"maxAttempts":2}"#), "queues.tasks.maxAttempts: given twice"),
        (queue(r#"{"max_attempts":1,"max-attempts":2}"#), "queues.tasks.maxAttempts: given twice"),
        (
            queue(r#"{"counts":{"failed":false,"lost":false},"maxAttempts":2}"#),
            "queues.tasks.maxAttempts: has no effect, because counts.failed and counts.lost are both false",
        ),
        (
            queue(r#"{"reclaim":"sometimes"}"#),
            "queues.tasks.reclaim: expected one of auto, explicit, got \"sometimes\"",
        ),
        (r#"{"gates":{}}"#.into(), "gates: unknown key, did you mean 'gate'?"),
        (r#"{"gate":{"burst":0}}"#.into(), "gate.burst: expected a whole number from 1 to 1000000, got 0"),
        (
            queue("{\"a\u{1b}[2J\":1}"),
            r"policy: not JSON: control character (\u0000-\u001F) found while parsing",
        ),
        (queue(r#"{"a\u001b[2J":1}"#), r"queues.tasks.a\u{1b}[2J: unknown key"),
    ] {
        write(&lab, "p.json", &document);
        for verb in ["check", "diff", "apply"] {
            let ran = lab.line(&format!("policy {verb} p.json"));
            assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{verb} {document}");
            assert!(
                ran.stderr.starts_with(&format!("error: {message}")),
                "{verb} {document}: {}",
                ran.stderr
            );
            assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        }
    }
    assert_eq!(value(&lab, "policy history")["total"], 0);
    for line in ["policy check", "policy check nothing.json", "policy", "policy frob", "policy apply a b"] {
        let ran = lab.line(line);
        assert!(ran.code == 1 && ran.stderr.starts_with("error: "), "{line}: {}", ran.stderr);
    }
}

/// The schema alone for an editor's file; inside of a payload with `--json`. It needs no store.
#[test]
fn the_schema() {
    let lab = Lab::new();
    let schema = value(&lab, "--store sqlite:/no/such/folder/x.db policy schema");
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    let queue = &schema["anyOf"][0]["properties"]["queues"]["patternProperties"][""];
    assert_eq!(queue["properties"]["leaseTtlMs"]["maximum"], 31_536_000_000_u64);
    let payload = value(&lab, "policy schema --json");
    assert_eq!((&payload["schemaVersion"], &payload["schema"]), (&json!(1), &schema));
    // A document that names its schema is a document.
    write(&lab, "p.json", r#"{"$schema":"rota.policy.schema.json","queues":{}}"#);
    assert_eq!(value(&lab, "policy check p.json")["valid"], true);
}

/// A published policy that cannot be read stops every verb that would decide by it, changes nothing, and can be
/// replaced.
#[test]
fn an_unreadable_policy_stops_whatever_would_decide() {
    let lab = Lab::new();
    lab.line("@0 queue add --id a --repo /r").ok();
    lab.line("@0 task create t T").ok();
    lab.line("@0 task create u U").ok();
    lab.line("@0 sched lease").ok();
    lab.line("@0 task claim t --agent x").ok();
    lab.line("@0 sched policy set --maxAttempts 5").ok();
    let connection = rusqlite::Connection::open(lab.database()).unwrap();
    let spoil =
        r#"UPDATE policies SET document = '{"queues":{"runs":{"maxConcurrent":0}}}', version = 'spoilt'"#;
    assert_eq!(connection.execute(spoil, []).unwrap(), 1);
    let before = lab.line("export").ok();
    let message = "error: the published policy of scope 'default' cannot be read";
    for line in [
        "@1 sched plan",
        "@1 sched lease",
        "@1 sched renew lease-a-1",
        "@1 sched complete lease-a-1",
        "@1 sched release lease-a-1",
        "@1 sched release lease-a-1 --failed",
        "@1 sched reclaim",
        "@1 sched reset a",
        "sched policy show",
        "sched policy set --maxConcurrent 2",
        "policy show",
        "@1 queue add --repo /r",
        "@1 queue drain",
        "@1 queue pause runs",
        "@1 task claim",
        "@1 task claim u",
        "@1 task renew t --agent x",
        "@1 task done t --agent x",
        "@1 task fail t --agent x",
        "@1 task release t --agent x",
        "@1 task peek",
        "@1 task create v V",
        "@1 task reset t",
        "@1 why u",
    ] {
        let ran = lab.line(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{line}");
        assert!(ran.stderr.starts_with(message), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("queues.runs.maxConcurrent"), "{line}: {}", ran.stderr);
    }
    let ran = lab.feed("@1 task plan-sync", b"{\"id\":\"p\",\"t\":\"P\"}\n");
    assert!(ran.code == 1 && ran.stderr.starts_with(message), "{}", ran.stderr);
    assert_eq!(lab.line("export").ok(), before, "nothing changed, and an export still works");
    assert_eq!(value(&lab, "policy history")["versions"][0]["version"], "spoilt");
    write(&lab, "good.json", r#"{"queues":{"runs":{"maxAttempts":5}}}"#);
    let applied = value(&lab, "@1 policy apply good.json");
    assert!(applied["changes"].as_array().unwrap().len() > 20, "everything is new");
    lab.line("@1 sched complete lease-a-1").ok();
    assert_eq!(mirror(&lab)["queues"]["runs"]["maxAttempts"], 5);
}
