//! What an idle cycle of the supervisor costs on 10,000 open issues: how many requests it makes, and how long it takes
//! by itself, with a tracker that answers at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use rota_core::TaskId;
use rota_daemon::config::{
    FilterConfig, GovernanceConfig, SourceConfig, SupervisorConfig, TokenPlace, TrackerConfig, TrackerKind,
};
use rota_store::intents::Call;
use rota_store::sqlite::SqliteStore;
use rota_store::{AnyStore, Secret};
use rota_supervise::cycle::State;
use rota_supervise::sources::gitea::Gitea;
use rota_supervise::sources::github::GitHub;
use rota_supervise::sources::{
    Comment, Connection, Issue, Label, Listed, OpenIssues, Patience, Repository, Source, Trouble,
};
use rota_supervise::state_file::StateFile;
use rota_supervise::{Shared, one_cycle};
use rota_testbed::tracker::{Dialect, TOKEN, Tracker};

use crate::Result;
use crate::options::{Options, print_machine};
use crate::stats::{median, micros, verdict};

const ISSUES: u64 = 10_000;
const LABEL: &str = "in-progress";

pub fn run(options: &Options) -> Result<()> {
    let scratch = options.scratch()?;
    print_machine(scratch.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for dialect in [Dialect::Gitea, Dialect::GitHub] {
        let folder = repository(scratch.path(), &format!("{dialect:?}"))?;
        let requests = runtime.block_on(requests(&folder, dialect))?;
        println!(
            "{dialect:?}: requests of an idle cycle, {ISSUES} open issues: {requests} (target ≤ 4: {})",
            verdict(requests <= 4)
        );
    }
    let folder = repository(scratch.path(), "own")?;
    let rounds = options.pick(10, 300);
    let times = runtime.block_on(own_cost(&folder, rounds))?;
    let spawn: Vec<f64> = (0..rounds).map(|_| bare_git(&folder)).collect::<Result<_>>()?;
    let (own, spawn) = (median(&times) / 1e3, median(&spawn) / 1e3);
    println!(
        "an idle cycle by itself, state file written: {own:.2} ms (target ≤ 5 ms: {}), of which one bare git: {spawn:.2} ms",
        verdict(own <= 5.0)
    );
    Ok(())
}

fn repository(scratch: &Path, name: &str) -> Result<std::path::PathBuf> {
    let folder = scratch.join(name);
    std::fs::create_dir_all(folder.join("docs"))?;
    std::fs::create_dir_all(folder.join("agents/state"))?;
    std::fs::write(folder.join("docs/governance.md"), "One task at a time.\n")?;
    std::fs::write(folder.join("agents/state/environment.json"), "{}\n")?;
    for arguments in [
        &["init", "-q"][..],
        &["add", "-A"],
        &["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "first"],
    ] {
        let status = Command::new("git").arg("-C").arg(&folder).args(arguments).status()?;
        if !status.success() {
            return Err(format!("git {arguments:?} failed").into());
        }
    }
    Ok(folder)
}

/// What one call of git costs, as every cycle makes one.
fn bare_git(folder: &Path) -> Result<f64> {
    let start = Instant::now();
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["rev-parse", "--is-inside-work-tree", "HEAD^{commit}"]).output()?;
    Ok(micros(start.elapsed()))
}

fn tracker_config(kind: TrackerKind, api_base: String) -> TrackerConfig {
    let token = TokenPlace::Variable("UNUSED".to_owned());
    let (owner, repo) = ("acme".into(), "shop".into());
    TrackerConfig { kind, api_base, owner, repo, token, allows_shared_token_file: false }
}

fn shared<S: Source>(folder: &Path, source: S) -> Result<Arc<Shared<S>>> {
    let store = AnyStore::from(SqliteStore::open_lazily(&folder.join("rota.db"))?);
    let config = SupervisorConfig {
        source: SourceConfig::Local,
        cycle_interval_secs: 60,
        cycle_max_runtime_secs: 90,
        state_file: "agents/state/scheduler_state.json".into(),
        governance: GovernanceConfig::default(),
        claim_label: LABEL.into(),
        check_remote: false,
        filters: FilterConfig::default(),
        gate_attempts: 3,
        in_up: false,
        dispatch: None,
    };
    let call = Call { actor: Some("bench".into()), ..Call::in_scope("default") };
    let shared = Shared::new(store, call, "bench".into(), source, config, folder.to_owned())?;
    Ok(Arc::new(shared))
}

async fn requests(folder: &Path, dialect: Dialect) -> Result<usize> {
    let tracker = Tracker::start(dialect);
    tracker.with(|world| {
        for number in 1..=ISSUES {
            world.add(&format!("issue {number}"));
        }
    });
    let kind = if dialect == Dialect::Gitea { TrackerKind::Gitea } else { TrackerKind::GitHub };
    let config = tracker_config(kind, tracker.api_base());
    let connection = Connection::new(&config, &Secret::from(TOKEN), Patience::default())?;
    match dialect {
        Dialect::Gitea => {
            idle_requests(shared(folder, Gitea::new(connection, config, LABEL.into()))?, &tracker).await
        }
        Dialect::GitHub => {
            idle_requests(shared(folder, GitHub::new(connection, config, LABEL.into()))?, &tracker).await
        }
    }
}

/// The first cycle lists everything and claims, the second sees the claim, the third is idle.
async fn idle_requests<S: Source>(shared: Arc<Shared<S>>, tracker: &Tracker) -> Result<usize> {
    let mut state = State::fresh(60);
    let mut requests = 0;
    for _ in 0..3 {
        tracker.requests();
        state = one_cycle(&shared, state, &mut |_| true).await.state;
        requests = tracker.requests().len();
    }
    Ok(requests)
}

async fn own_cost(folder: &Path, rounds: usize) -> Result<Vec<f64>> {
    let shared = shared(folder, Still::new())?;
    let file = StateFile::take(&folder.join("agents/state/scheduler_state.json"))?;
    let mut state = file.read_or_make(60)?;
    let mut times = Vec::new();
    for _ in 0..=rounds {
        let start = Instant::now();
        let ended = one_cycle(&shared, state, &mut |_| true).await;
        file.write(&ended.state)?;
        times.push(micros(start.elapsed()));
        state = ended.state;
    }
    // The first one pinned the governance files.
    Ok(times.split_off(1))
}

/// A tracker that answers at once, and in which people work on everything.
struct Still {
    open: OpenIssues,
}

impl Still {
    fn new() -> Self {
        let listed = |number| {
            let (title, labels) = (format!("issue {number}"), vec![LABEL.to_owned()]);
            (number, Listed { title, labels, author: None, milestone: None, version: String::new() })
        };
        Self { open: Arc::new((1..=ISSUES).map(listed).collect::<BTreeMap<_, _>>()) }
    }
}

impl Source for Still {
    fn key(&self) -> String {
        "still".into()
    }

    fn task(&self, number: u64) -> TaskId {
        TaskId::from_stored(format!("still#{number}").into())
    }

    fn kind(&self) -> Option<TrackerKind> {
        None
    }

    async fn check(&self) -> std::result::Result<Repository, Trouble> {
        Ok(Repository { is_public: false })
    }

    async fn has_claim_label(&self) -> std::result::Result<bool, Trouble> {
        Ok(true)
    }

    async fn open_issues(&self) -> std::result::Result<OpenIssues, Trouble> {
        Ok(Arc::clone(&self.open))
    }

    async fn issue(&self, number: u64) -> std::result::Result<Option<Issue>, Trouble> {
        let labels = vec![Label { id: 9, name: LABEL.into() }];
        Ok(Some(Issue {
            number,
            title: String::new(),
            body: String::new(),
            labels,
            author: None,
            milestone: None,
            is_open: true,
            is_pull_request: false,
            version: String::new(),
        }))
    }

    async fn add_claim_label(&self, _number: u64) -> std::result::Result<(), Trouble> {
        Ok(())
    }

    async fn remove_label(&self, _issue: &Issue, _name: &str) -> std::result::Result<(), Trouble> {
        Ok(())
    }

    async fn forget(&self, _number: u64) {}

    async fn comments(&self, _number: u64) -> std::result::Result<Vec<Comment>, Trouble> {
        Ok(Vec::new())
    }

    async fn delete_comment(&self, _id: u64) -> std::result::Result<(), Trouble> {
        Ok(())
    }

    async fn comment(&self, _number: u64, _text: &str) -> std::result::Result<(), Trouble> {
        Ok(())
    }

    async fn close(&self, _number: u64) -> std::result::Result<(), Trouble> {
        Ok(())
    }
}
