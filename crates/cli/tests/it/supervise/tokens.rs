//! A token that others could read is refused: in a file with wide rights, or over plain http to another host.

use std::os::unix::fs::PermissionsExt;

use rota_testbed::tracker::{Dialect, TOKEN, Tracker};

use super::{line, repository, write};

#[test]
fn a_token_file_is_for_its_owner() {
    let tracker = Tracker::start(Dialect::Gitea);
    tracker.with(|world| world.add("one"));
    let section = format!(
        "source: gitea, api_base: '{}', owner: acme, repo: shop, token_file: token",
        tracker.api_base()
    );
    let lab = repository(&section);
    write(&lab, "token", TOKEN);
    let path = lab.path().join("token");
    let set = |mode: u32| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o644, 0o640, 0o604, 0o660] {
        set(mode);
        let ran = lab.line("supervise --once");
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{mode:o}");
        assert!(ran.stderr.contains(&format!("other users can read it (mode {mode:03o})")), "{}", ran.stderr);
        assert!(!lab.path().join("agents/state/scheduler_state.json").exists(), "nothing was begun");
    }
    assert_eq!(tracker.requests(), Vec::<String>::new(), "the token was sent nowhere");
    set(0o600);
    assert_eq!(line(&lab.line("supervise --once"), "CLAIMED"), "CLAIMED #1 label=in-progress verified=true");
    set(0o644);
    write(&lab, "rota.yml", &format!("supervisor: {{{section}, allow_insecure: [token_file]}}\n"));
    assert_eq!(line(&lab.line("supervise --once"), "CLAIMED"), "CLAIMED none");
}

#[test]
fn plain_http_is_for_this_machine() {
    let section =
        "source: gitea, api_base: 'http://git.example.com/api/v1', owner: o, repo: r, token_env: ROTA_T";
    let lab = repository(section);
    let ran = lab.line("ROTA_T=x supervise --once");
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains("supervisor.api_base: plain http would send the token unencrypted"),
        "{}",
        ran.stderr
    );
    // Allowed, it is tried; nobody answers there.
    let section = "source: gitea, api_base: 'http://0.0.0.0:9/api/v1', owner: o, repo: r, token_env: ROTA_T, \
                   allow_insecure: [http]";
    write(&lab, "rota.yml", &format!("supervisor: {{{section}}}\n"));
    let ran = lab.line("ROTA_T=x supervise --once");
    assert_eq!(line(&ran, "ENV_VALID"), "ENV_VALID=false failure=environment.gitea.unreachable");
}
