//! The description of the API, judged by a program that makes requests of it.

use std::process::Command;

use serde_json::Value;

use crate::mcp::client::Http;
use crate::mcp::clients::{SCRIPTS, installed};
use crate::support::Lab;

/// schemathesis finds no server error and no answer that the description does not know.
#[test]
fn schemathesis_finds_nothing() {
    let lab = Lab::new();
    lab.line("task create a First --deps ''").ok();
    lab.line("task create b Second --deps a").ok();
    lab.line("loop add --kind plan --id root --prompt Plan").ok();
    lab.line("queue add --id r1 --app review").ok();
    let server = Http::serve(&lab, &[]);
    let mut command = Command::new(installed().join("schemathesis/bin/python"));
    command.arg(format!("{SCRIPTS}/schemathesis.py")).arg(installed().join("schemathesis/bin/schemathesis"));
    command.arg(format!("http://{}", server.address)).arg(&server.token);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("passed") || said.contains("No issues found"), "{said}");
    let found: Value = serde_json::from_str(&lab.line("doctor --json").ok()).unwrap();
    assert_eq!(found["total"], 0, "whatever was asked, the store is sound: {found}");
}
