//! A repository, a store, and supervisors of a tracker on this machine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rota_core::transition::Command;
use rota_core::{Caller, Policy, Status, TaskId};
use rota_daemon::config::{
    DispatchConfig, FilterConfig, GovernanceConfig, SourceConfig, SupervisorConfig, TokenPlace,
    TrackerConfig, TrackerKind,
};
use rota_store::intents::Call;
use rota_store::intents::claim::Claim;
use rota_store::intents::issues::{Board, BoardIssue};
use rota_store::intents::policy::PublishPolicy;
use rota_store::intents::read::Show;
use rota_store::intents::settle::Settle;
use rota_store::sqlite::SqliteStore;
use rota_store::{AnyStore, Secret, Store};
use rota_supervise::cycle::{Ended, FailureCode, State};
use rota_supervise::sources::gitea::Gitea;
use rota_supervise::sources::github::GitHub;
use rota_supervise::sources::{Connection, Patience, Source};
use rota_supervise::{Shared, Told, one_cycle};
use rota_testbed::tracker::{Dialect, TOKEN, Tracker};
use tempfile::TempDir;

pub const LABEL: &str = "in-progress";

/// A repository and a store in it.
pub struct Place {
    pub folder: TempDir,
    pub store: AnyStore,
}

impl Place {
    /// With its store beside it.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".rota")).unwrap();
        std::fs::write(folder.path().join(".rota/.gitignore"), "*\n").unwrap();
        let store = SqliteStore::open_lazily(&folder.path().join(".rota/rota.db")).unwrap();
        Self::on(folder, store.into())
    }

    /// With its store on a server.
    pub async fn on_postgresql() -> Self {
        let url = rota_testbed::Server::shared().fresh_url();
        let store = rota_store::postgres::PostgresStore::open(&url).await.unwrap();
        Self::on(tempfile::tempdir().unwrap(), AnyStore::Postgres(store))
    }

    fn on(folder: TempDir, store: AnyStore) -> Self {
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("docs/governance.md", "One task at a time.\n");
        write("agents/state/environment.json", "{}\n");
        git(folder.path(), &["init", "-q"]);
        git(folder.path(), &["add", "-A"]);
        git(
            folder.path(),
            &["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "first"],
        );
        Self { folder, store }
    }

    pub fn call() -> Call {
        Call::in_scope("default")
    }

    /// Ends the one loop that can be granted.
    pub async fn settle_loop(&self, id: &str, command: impl FnOnce(Caller) -> Command) {
        let claim = Claim {
            call: Self::call(),
            queue: "loops".into(),
            limit: 1,
            agent: None,
            ttl_ms: None,
            wanted: Default::default(),
            host: None,
        };
        let granted = self.store.perform(&claim).await.unwrap().remove(0).task;
        assert_eq!(granted.id.as_str(), id);
        let command = command(Caller::lease(granted.lease().unwrap()));
        let settle = Settle::one(Self::call(), granted.id, command);
        self.store.perform(&settle).await.unwrap().steps.remove(0).unwrap();
    }

    /// What a loop is told to do.
    pub async fn prompt(&self, id: &str) -> String {
        let show = Show { call: Self::call(), id: TaskId::from_stored(id.to_owned().into()) };
        let (view, _) = self.store.perform(&show).await.unwrap();
        view.task.description.unwrap().to_string()
    }

    /// Commits a file with this text.
    pub fn commit(&self, path: &str, text: &str) {
        let full = self.folder.path().join(path);
        std::fs::create_dir_all(full.parent().unwrap()).unwrap();
        std::fs::write(full, text).unwrap();
        git(self.folder.path(), &["add", "--", path]);
        git(
            self.folder.path(),
            &["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", &format!("add {path}")],
        );
    }

    /// So many leases at once.
    pub async fn allow(&self, ceiling: u32) {
        let text =
            format!("{{\"schemaVersion\":1,\"queues\":{{\"issues\":{{\"maxConcurrent\":{ceiling}}}}}}}");
        let policy = Policy::parse(&text).unwrap();
        let publish = PublishPolicy { call: Self::call(), policy, based_on: None };
        self.store.perform(&publish).await.unwrap();
    }

    pub async fn board(&self, source: &str) -> Vec<BoardIssue> {
        let board = Board { call: Self::call(), source: source.to_owned() };
        self.store.perform(&board).await.unwrap().issues
    }

    /// `number status` of what the store knows, but for what is done.
    pub async fn statuses(&self, source: &str) -> Vec<(u64, Status)> {
        self.board(source).await.into_iter().map(|issue| (issue.note.number, issue.task.status)).collect()
    }
}

fn git(folder: &Path, arguments: &[&str]) {
    let output = std::process::Command::new("git").arg("-C").arg(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn tracker_config(kind: TrackerKind, api_base: String) -> TrackerConfig {
    let token = TokenPlace::Variable("UNUSED".to_owned());
    let (owner, repo) = ("acme".into(), "shop".into());
    TrackerConfig { kind, api_base, owner, repo, token, allows_shared_token_file: false }
}

/// Impatient, because the other side is on this machine.
pub fn patience() -> Patience {
    Patience { call: Duration::from_secs(5), pause: Duration::from_millis(1), ..Patience::default() }
}

pub fn config(source: TrackerConfig) -> SupervisorConfig {
    SupervisorConfig {
        source: SourceConfig::Tracker(source),
        cycle_interval_secs: 60,
        cycle_max_runtime_secs: 90,
        state_file: "unused".into(),
        governance: GovernanceConfig::default(),
        claim_label: LABEL.into(),
        check_remote: false,
        filters: FilterConfig::default(),
        gate_attempts: 3,
        in_up: false,
        dispatch: None,
    }
}

/// Hands issues to loops of kind `ralph`, which may change anything.
pub fn dispatch() -> DispatchConfig {
    DispatchConfig { kind: "ralph".into(), allowed_files: Vec::new(), commit_message: None }
}

/// A supervisor, and where its cycles stand.
pub struct Supervisor<S> {
    pub shared: Arc<Shared<S>>,
    pub state: State,
    pub warnings: Vec<String>,
    pub notices: Vec<String>,
}

impl<S: Source> Supervisor<S> {
    pub fn new(place: &Place, agent: &str, source: S, config: SupervisorConfig) -> Self {
        let call = Call { actor: Some(agent.to_owned()), ..Place::call() };
        let folder = place.folder.path().to_owned();
        let shared =
            Shared::new(place.store.clone(), call, agent.to_owned(), source, config, folder).unwrap();
        Self { shared: Arc::new(shared), state: State::fresh(60), warnings: Vec::new(), notices: Vec::new() }
    }

    /// With another configuration; nothing has used it yet.
    pub fn with(mut self, change: impl FnOnce(&mut SupervisorConfig)) -> Self {
        change(&mut Arc::get_mut(&mut self.shared).unwrap().config);
        self
    }

    /// One cycle; its lines are those that were told, and the rest.
    pub async fn cycle(&mut self) -> (Vec<String>, Ended) {
        let mut lines = Vec::new();
        let (mut warnings, mut notices) = (Vec::new(), Vec::new());
        let mut tell = |told: Told| {
            match told {
                Told::Lines(more) => lines.extend(more),
                Told::Warning(text) => warnings.push(text),
                Told::Notice(text) => notices.push(text),
                Told::Cycle(_) => {}
            }
            true
        };
        let ended = one_cycle(&self.shared, self.state.clone(), &mut tell).await;
        lines.extend(ended.lines.clone());
        (self.warnings, self.notices) = (warnings, notices);
        self.state = ended.state.clone();
        (lines, ended)
    }

    /// What the cycle claimed, or why nothing.
    pub async fn claim(&mut self) -> Result<u64, FailureCode> {
        let (_, ended) = self.cycle().await;
        match ended.code {
            None => Ok(ended.state.last_claimed_issue.unwrap()),
            Some(code) => Err(code),
        }
    }
}

pub fn gitea(place: &Place, tracker: &Tracker, agent: &str) -> Supervisor<Gitea> {
    gitea_with(place, tracker, agent, patience())
}

pub fn gitea_with(place: &Place, tracker: &Tracker, agent: &str, patience: Patience) -> Supervisor<Gitea> {
    let own = tracker_config(TrackerKind::Gitea, tracker.api_base());
    let connection = Connection::new(&own, &Secret::from(TOKEN), patience).unwrap();
    Supervisor::new(place, agent, Gitea::new(connection, own.clone(), LABEL.into()), config(own))
}

pub fn github(place: &Place, tracker: &Tracker, agent: &str) -> Supervisor<GitHub> {
    github_with(place, tracker, agent, patience())
}

pub fn github_with(place: &Place, tracker: &Tracker, agent: &str, patience: Patience) -> Supervisor<GitHub> {
    let own = tracker_config(TrackerKind::GitHub, tracker.api_base());
    let connection = Connection::new(&own, &Secret::from(TOKEN), patience).unwrap();
    Supervisor::new(place, agent, GitHub::new(connection, own.clone(), LABEL.into()), config(own))
}

pub fn tracker(dialect: Dialect, issues: usize) -> Tracker {
    let tracker = Tracker::start(dialect);
    tracker.with(|world| {
        for number in 1..=issues {
            world.add(&format!("issue {number}"));
        }
    });
    tracker
}
