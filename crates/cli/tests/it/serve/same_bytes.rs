//! Every verb twice: on a store, and by way of a `rota serve` in front of one. Standard output, standard error and exit
//! code must be the same bytes, as text and as JSON.

use rota_testbed::Server;

use crate::support::Lab;

/// Every verb in the words of the command line; `JSON` is `--json` in one run and nothing in the other.
const SCRIPT: &str = r#"
@0 task create a "First \e[2J\n thing" -p 1 -c docs -d "long\ntext" -s '["one","two"]' -r specs/a.md --ref R1 JSON
@0 task create b "Second" --deps a --after 2026-01-01T00:00:05Z JSON
@0 task create a "Again" JSON
@0 task create c "Third" --deps nobody JSON
@0 task create -x "Bad" JSON
@0 task create d "D" -p minus JSON
@0 task create e/f?g#h%20 "Odd id" JSON
@0 task create ä "Another" --queue mine JSON
@1 task peek JSON
@1 task peek -n 1 --specs 'specs/*' JSON
@1 task peek --queue nowhere JSON
@1 task claim b JSON
@1 task claim --agent a1 --lease 900 --category docs JSON
@1 task claim --category none JSON
@1 task claim --agent "bad\nname" JSON
@2 task renew a --agent a1 --lease 60 JSON
@2 task renew a --agent stranger JSON
@2 task renew a --lease-id lease-a-9 JSON
@2 task renew nobody JSON
@2 ROTA_LEASE=lease-a-1 task done a --result '{"commit":"c1","n":1.0e400,"big":12345678901234567890123}' JSON
@2 task done a --result '{"sha":1}' JSON
@2 task done a JSON
@9 task show b --with-deps JSON
@9 task show e/f?g#h%20 JSON
@9 task show nobody JSON
@9 task claim --agent a2 JSON
@9 task show a JSON
@9 task list JSON
@9 task list --all --markdown JSON
@9 task list --status open,active --assignee a2 JSON
@9 task list --status wrong JSON
@9 task list --status open --all JSON
@9 task fail b --agent a2 --reason "no \"way\"" JSON
@9 task attempts b JSON
@9 task deps b JSON
@9 task deps a JSON
@9 task release a JSON
@9 task park b --reason "ask \e somebody" JSON
@9 task park b JSON
@9 task reset b JSON
@9 task pause b JSON
@9 task resume b JSON
@9 task resume b JSON
@9 task block b --by e/f?g#h%20 JSON
@9 task block e/f?g#h%20 --by b JSON
@9 task unblock b --by e/f?g#h%20 JSON
@9 task unblock b --by e/f?g#h%20 JSON
@9 task update b --title "New title" --priority 0 --steps '["x"]' JSON
@9 task update b JSON
@9 task update b --status sideways JSON
@9 task update a --title T JSON
@9 task create n1 "Next \e one" --queue line -c docs -d "more\ntext" -r specs/n.md JSON
@9 task create n2 "Next two" --queue line --deps n1 JSON
@9 task create n3 "Next three" --queue line JSON
@9 task claim n3 --agent a3 JSON
@9 task done n3 --agent a3 --lease 60 JSON
@9 task done n3 --agent a3 --queue line JSON
@9 task done n3 --agent a3 --next --queue nowhere JSON
@9 task done n3 --agent stranger --next --queue line JSON
@9 task done nobody --agent a3 --next JSON
@9 task done n3 --agent a3 --next --queue line --category docs --specs 'specs/*' --lease 60 JSON
@9 task done n1 --agent a3 --result '{"commit":"n","n":1.0e400}' --next --queue line JSON
@9 task done n2 --agent a3 --next --queue line JSON
@9 task plan-sync JSON
| {"id":"p1","t":"Planned","spec":"specs/p.md","odd":1}
| {"id":"p2","t":"Later","deps":["p1"]}
@9 task plan-sync --dry-run JSON
| {"id":"p1","t":"Planned anew","spec":"specs/p.md"}
@9 task plan-sync JSON
| {"id":"p1"
@9 task plan-status JSON
@9 task plan-status --specs 'specs/*' JSON
@9 task delete p1 JSON
@9 task undelete p1 JSON
@9 task delete --status open --spec specs/p.md JSON
@9 task delete --all JSON
@9 task agent list JSON
@9 task agent deregister 0000 JSON
@9 why a JSON
@9 why b JSON
@9 why e/f?g#h%20 JSON
@9 why nobody JSON
@20 queue add --id r1 --app review --note "a note" --priority 10 --repo here
@20 queue add --id r2 --workflow w --runId 7 --repo elsewhere
@20 queue add --id r2 --repo here
@20 queue add --priority high
@21 queue list JSON
@21 queue list --status lost
@21 queue show r1
@21 queue show nobody
@21 queue drain --limit 1 --repo elsewhere
@21 queue import ../queue.json --dry-run
@21 queue import nothing.json
@21 queue export
@21 queue pause runs
@21 queue resume runs
@22 sched plan
@22 sched lease --limit 5
@22 sched lease --limit none
@22 sched renew lease-r1-1
@22 sched release lease-r1-1 --failed --reason "no"
@22 sched complete lease-r1-1
@30 sched reclaim
@30 sched reset r1
@30 sched policy
@30 sched policy set --maxConcurrent 4 --backoffFactor 1.5
@30 sched policy set --maxConcurrent abc
@30 sched policy set --maxConcurrent 0
@30 sched policy set
@31 policy show
@31 policy diff rota.policy.json
@31 policy apply rota.policy.json
@31 policy apply nothing.json
@31 policy history
@31 policy schema JSON
@39 issue add --title "Fix \e it" --body "It says 500." --label bug JSON
@39 issue add --title " " JSON
@39 issue list JSON
@39 issue show 1 JSON
@39 issue show #7 JSON
@39 issue close x JSON
@39 issue close 1 JSON
@39 issue list --all JSON
@39 issue reopen 1 JSON
@39 issue label 1 --add x --remove bug JSON
@39 issue label 1 --add x --remove x JSON
@39 issue label 1 JSON
@39 issue comment 1 --body "Two\nlines" JSON
@39 issue comment 7 --body x JSON
@39 issue edit 1 --title "Fix them" --body "" JSON
@39 issue edit 1 JSON
@39 issue close 1 JSON
@40 loop add --kind plan --id root --prompt "Do it" JSON
@40 loop add --kind spec --id child --parent root --triggered-by artifacts/x.md --priority high JSON
@40 loop add --kind spec --id child JSON
@40 loop add --kind spec --id stray --parent nobody JSON
@40 loop add --kind ralph --priority urgent JSON
@40 loop list JSON
@40 loop list --status pending --kind spec JSON
@40 loop list --status open JSON
@40 loop tree JSON
@40 loop tree child JSON
@40 loop tree nobody JSON
@40 loop show root JSON
@40 loop pause child JSON
@40 loop resume child JSON
@40 loop move root --host other JSON
@40 loop config root JSON
@40 loop cancel root JSON
@40 loop reiterate root --reason again JSON
@40 loop logs root
@40 debug scheduler JSON
@45 issue add --title "An issue" --body "Two\nlines" --label bug JSON
@45 issue add --title "" JSON
@45 issue list JSON
@45 issue show 1 JSON
@45 issue show 7 JSON
@45 issue close 1 JSON
@45 issue list --all JSON
@50 log JSON
@50 log -n 3 JSON
@50 log --task b -n 2 JSON
@50 log --task nobody -n 2 JSON
@50 log -n x
@50 doctor JSON
@50 prune --older-than 1s --dry-run JSON
@9000 prune --older-than 1s JSON
@9000 --scope other task list --all JSON
@9000 --scope "bad\nscope" task list JSON
--now tomorrow task list JSON
"#;

const QUEUE: &str = r#"{"schemaVersion":1,"entries":[
  {"id":"i1","appId":"x","repo":"r","priority":5,"enqueuedAt":"2025-01-01T00:00:00Z","status":"leased","leaseId":"lease-i1-3"}]}"#;

/// The folders are below one that holds the file, so that both name it alike.
fn transcript(lab: &Lab, json: bool) -> String {
    std::fs::write(lab.path().join("queue.json"), QUEUE).unwrap();
    let script = SCRIPT.replace(" JSON", if json { " --json" } else { "" });
    lab.transcript(&script.replace("../queue.json", "queue.json"))
}

fn compare(lab: impl Fn() -> Lab) {
    for json in [false, true] {
        let (direct, served) = (lab(), lab().served());
        let (wanted, seen) = (transcript(&direct, json), transcript(&served, json));
        let lines = wanted.lines().zip(seen.lines());
        for (wanted, seen) in lines {
            assert_eq!(seen, wanted);
        }
        assert_eq!(seen, wanted);
        assert!(
            wanted.matches("\n[").count() > 30 && wanted.len() > 10_000,
            "a script of refusals shows little"
        );
        let mirror = |lab: &Lab| std::fs::read_to_string(lab.path().join("rota.policy.json")).unwrap();
        assert_eq!(mirror(&served), mirror(&direct));
    }
}

#[test]
fn every_verb_on_sqlite() {
    compare(Lab::new);
}

#[test]
fn every_verb_on_postgresql() {
    compare(|| Lab::on(Server::shared().fresh_url()));
}

/// What cannot be asked of a server says so and does nothing.
#[test]
fn what_wants_the_store_itself() {
    let lab = Lab::new().served();
    for line in [
        "work --until-empty -- true",
        "mcp",
        "serve --listen 127.0.0.1:0",
        "export",
        "backup x.db",
        "migrate",
    ] {
        let ran = lab.line(line);
        let wanted = format!(
            "error: this command wants the store itself, not http://{}: run it where the store is\n",
            lab.server().address
        );
        assert_eq!((ran.code, ran.stderr, ran.stdout), (1, wanted, String::new()), "{line}");
    }
}

#[test]
fn a_server_that_is_not_there_or_wants_another_token() {
    let lab = Lab::new().served();
    let ask = |store: &str, token: &str| {
        let mut command = lab.command_on_store();
        command.args(["task", "list"]).env("ROTA_STORE", store).env("ROTA_TOKEN", token);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let address = format!("http://{}", lab.server().address);
    let (code, said) = ask(&address, &"0".repeat(64));
    assert_eq!(code, Some(1));
    assert_eq!(
        said,
        "error: the server does not take this token: set ROTA_TOKEN to the text of its .rota/token\n"
    );
    // Nobody listens on the port of a listener that is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, said) = ask(&format!("http://{gone}"), "t");
    assert_eq!(code, Some(75), "{said}");
    assert!(said.starts_with(&format!("error: http://{gone}: ")), "{said}");
    let (code, said) = ask("http://user:hidden@", "t");
    assert_eq!(code, Some(1));
    assert!(said.contains("is no address of a rota serve") && !said.contains("hidden"), "{said}");
    // The token of the workspace counts where no variable names one.
    let mut command = lab.command_on_store();
    let output = command.args(["task", "list"]).env("ROTA_STORE", &address).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}
