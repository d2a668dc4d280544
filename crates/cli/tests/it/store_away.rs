//! A PostgreSQL server that is away, or silent, under programs that people want to look at and to end.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rota_testbed::{Durability, Link, Server};

use crate::daemon::{Daemon, configure, read, signal, states, until, wait_for};
use crate::mcp::client::Http;
use crate::support::{Lab, ROTA};

/// Whoever asks a program to end waits at most so long.
const PARTING: Duration = Duration::from_secs(30);
/// Whoever asks what runs.
const LOOK: Duration = Duration::from_secs(8);

/// A server, and a way to it that can be cut or silenced.
fn linked() -> (Server, Link, Lab) {
    let server = Server::start(Durability::None).unwrap();
    let link = Link::to(&server).unwrap();
    let lab = Lab::on(link.url("s"));
    (server, link, lab)
}

fn lose(link: &Link, how: &str) {
    match how {
        "cut" => link.cut(),
        _ => link.silence(),
    }
}

#[test]
fn a_daemon_ends_in_time() {
    for how in ["cut", "silence"] {
        let (_server, link, lab) = linked();
        configure(&lab, "  ralph: {run: 'sleep 600'}\n");
        lab.line("loop add --kind ralph --id a").ok();
        let mut daemon = Daemon::start(&lab);
        until("it runs", || states(&lab) == ["a running"]);
        lose(&link, how);
        // It has noticed, or is in the middle of asking.
        if how == "cut" {
            until("it noticed", || read(lab.path().join("up.log")).contains("is away"));
        }
        let since = Instant::now();
        signal("TERM", daemon.0.id());
        wait_for(&mut daemon.0);
        assert!(since.elapsed() < PARTING, "{how}: {:?}", since.elapsed());
        link.cut();
    }
}

#[test]
fn status_and_down_do_not_wait_for_the_server() {
    let (_server, link, lab) = linked();
    configure(&lab, "  ralph: {run: 'sleep 600'}\n");
    let mut daemon = Daemon::start(&lab);
    link.cut();
    until("it noticed", || read(lab.path().join("up.log")).contains("is away"));
    for _ in 0..3 {
        let since = Instant::now();
        let status = lab.line("status");
        assert_eq!(status.code, 0, "{}", status.stderr);
        assert!(status.stdout.contains("is running"), "{}", status.stdout);
        assert!(since.elapsed() < LOOK, "{:?}", since.elapsed());
    }
    let since = Instant::now();
    let down = lab.line("down");
    assert_eq!((down.code, down.stdout.as_str()), (0, "stopped\n"), "{}", down.stderr);
    assert!(since.elapsed() < LOOK, "{:?}", since.elapsed());
    wait_for(&mut daemon.0);
    nothing_runs(&lab);
}

/// Where nothing runs, the workspace says so without the server.
fn nothing_runs(lab: &Lab) {
    for line in ["status", "status --json", "down"] {
        let since = Instant::now();
        let ran = lab.line(line);
        assert_eq!(ran.code, 2, "{line}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.starts_with("error: no rota up runs here"), "{line}: {}", ran.stderr);
        assert!(since.elapsed() < LOOK, "{line}: {:?}", since.elapsed());
    }
}

/// The same with a server that takes connections and says nothing.
#[test]
fn status_and_down_do_not_wait_for_a_silent_server() {
    let (_server, link, lab) = linked();
    configure(&lab, "  ralph: {run: 'sleep 600'}\n");
    let mut daemon = Daemon::start(&lab);
    link.silence();
    let since = Instant::now();
    let status = lab.line("status");
    assert_eq!(status.code, 0, "{}", status.stderr);
    assert!(status.stdout.contains("is running"), "{}", status.stdout);
    assert!(since.elapsed() < LOOK, "{:?}", since.elapsed());
    let since = Instant::now();
    assert_eq!(lab.line("down").stdout, "stopped\n");
    assert!(since.elapsed() < PARTING, "{:?}", since.elapsed());
    wait_for(&mut daemon.0);
    nothing_runs(&lab);
    link.cut();
}

#[test]
fn a_gateway_ends_in_time() {
    for how in ["cut", "silence"] {
        let (_server, link, lab) = linked();
        let text = "gateway: {listen: '127.0.0.1:0', upstreams: {anthropic: {url: 'http://127.0.0.1:1'}}}\n";
        std::fs::write(lab.path().join("rota.yml"), text).unwrap();
        let log = lab.path().join("log");
        let mut command = lab.command_on_store();
        command.args(["gateway", "--publish"]).env("ANTHROPIC_API_KEY", "k");
        let mut gateway = command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
        until("it listens", || read(&log).contains("gateway on http"));
        lose(&link, how);
        let since = Instant::now();
        signal("TERM", gateway.id());
        wait_for(&mut gateway);
        assert!(since.elapsed() < PARTING, "{how}: {:?}", since.elapsed());
        link.cut();
    }
}

#[test]
fn work_and_serve_end_in_time() {
    for how in ["cut", "silence"] {
        let (_server, link, lab) = linked();
        lab.line("task create a A").ok();
        lab.line("task create b B").ok();
        let mut command = lab.command();
        command.args(["work", "--agent", "w", "--", "sh", "-c", "touch began; sleep 600", ROTA]);
        let mut work = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("it began", || lab.path().join("began").exists());
        let server = Http::serve(&lab, &[]);
        lose(&link, how);
        let call = std::thread::scope(|scope| {
            // A call that waits for the store when the server is told to stop.
            let call = scope.spawn(|| {
                let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
                let request = format!(
                    "GET /api/v1/tasks HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
                    server.address, server.token
                );
                std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
                let mut said = Vec::new();
                drop(std::io::Read::read_to_end(&mut stream, &mut said));
            });
            let since = Instant::now();
            signal("TERM", work.id());
            signal("TERM", server.child.id());
            wait_for(&mut work);
            let ended = since.elapsed();
            until("the server has ended", || {
                let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.child.id()));
                stat.is_ok_and(|stat| stat.contains(") Z "))
            });
            drop(call.join());
            (ended, since.elapsed())
        });
        assert!(call.0 < PARTING && call.1 < PARTING, "{how}: {call:?}");
        link.cut();
    }
}

/// `rota doctor` says plainly what a promoted standby can take back, and which setting avoids it.
#[test]
fn doctor_says_what_a_promoted_standby_lacks() {
    let lab = Lab::on(Server::shared().fresh_url());
    lab.line("task create a A").ok();
    let found = lab.line("doctor").ok();
    let note = found.lines().find(|line| line.starts_with("note: synchronous_standby_names")).unwrap();
    for words in [
        "if a standby is promoted, results that were acknowledged can be gone and fences can be issued a second time",
        "name a standby in synchronous_standby_names and set synchronous_commit to on or remote_apply",
    ] {
        assert!(note.contains(words), "{note}");
    }
}
