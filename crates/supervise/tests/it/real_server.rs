//! The same claims against a real Gitea or Forgejo, where there is one:
//!
//! `ROTA_TEST_GITEA_URL=http://127.0.0.1:3000 ROTA_TEST_GITEA_TOKEN=… cargo test -p rota-daemon --test it real_server --
//! --ignored`. The token may make repositories; the test makes one of its own, and leaves it.

use std::process::Command;

use rota_daemon::config::TrackerKind;
use rota_store::Secret;
use rota_supervise::sources::gitea::Gitea;
use rota_supervise::sources::{Connection, Patience, Source};
use serde_json::{Value, json};

use crate::many::{claim_all, each_once};
use crate::support::{LABEL, Place, Supervisor, config, tracker_config};

/// Enough for more than one page.
const ISSUES: usize = 120;

struct Real {
    base: String,
    token: String,
}

impl Real {
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "-X", method])
            .args([
                "-H",
                &format!("Authorization: token {}", self.token),
                "-H",
                "Content-Type: application/json",
            ])
            .args(["-d", &body.to_string(), &format!("{}{path}", self.base)])
            .output()
            .unwrap();
        assert!(output.status.success(), "{method} {path}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }
}

#[tokio::test]
#[ignore = "wants a Gitea: ROTA_TEST_GITEA_URL and ROTA_TEST_GITEA_TOKEN"]
async fn two_supervisors_on_a_real_server() {
    let url = std::env::var("ROTA_TEST_GITEA_URL").expect("ROTA_TEST_GITEA_URL");
    let token = std::env::var("ROTA_TEST_GITEA_TOKEN").expect("ROTA_TEST_GITEA_TOKEN");
    let real = Real { base: format!("{}/api/v1", url.trim_end_matches('/')), token };
    let owner = real.call("GET", "/user", &json!({}))["login"].as_str().unwrap().to_owned();
    let name = format!("rota-test-{}", std::process::id());
    real.call("POST", "/user/repos", &json!({"name": name, "auto_init": true}));
    let repository = format!("/repos/{owner}/{name}");
    real.call("POST", &format!("{repository}/labels"), &json!({"name": LABEL, "color": "#ededed"}));
    for number in 1..=ISSUES {
        real.call("POST", &format!("{repository}/issues"), &json!({"title": format!("issue {number}")}));
    }
    let place = Place::new();
    place.allow(1_000).await;
    let supervisor = |agent: &str| {
        let mut own = tracker_config(TrackerKind::Gitea, real.base.clone());
        (own.owner, own.repo) = (owner.clone(), name.clone());
        let token = Secret::from(real.token.as_str());
        let connection = Connection::new(&own, &token, Patience::default()).unwrap();
        Supervisor::new(&place, agent, Gitea::new(connection, own.clone(), LABEL.into()), config(own))
    };
    let (one, two) = (supervisor("one"), supervisor("two"));
    let key = one.shared.source.key();
    let claimed = tokio::join!(claim_all(one, &place, &key, ISSUES), claim_all(two, &place, &key, ISSUES));
    each_once([claimed.0, claimed.1], ISSUES);
    for number in 1..=ISSUES {
        let labels = real.call("GET", &format!("{repository}/issues/{number}/labels"), &json!({}));
        assert_eq!(labels.as_array().map(Vec::len), Some(1), "#{number}: {labels}");
    }
}
