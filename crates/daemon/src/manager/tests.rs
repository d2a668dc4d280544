//! Ticks that start no program: what they cost the store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rota_core::TaskId;
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewTask};
use rota_store::memory::MemoryStore;
use rota_store::{AnyStore, Store};
use tokio::sync::{mpsc, watch};

use super::{Request, Setup, Until, run};
use crate::companion::{Companion, Held};
use crate::config::Config;
use crate::folders::Folders;
use crate::runner::environment::Environment;
use crate::runner::terminate::Urgency;
use crate::shim::attend::Shims;

struct Ticks(mpsc::UnboundedSender<()>);

impl Companion for Ticks {
    fn begun(&self, _held: &Held) -> Vec<(String, String)> {
        Vec::new()
    }

    fn ended(&self, _held: &Held) {}

    fn ticked(&self, _took: Duration) {
        self.0.send(()).unwrap();
    }
}

fn setup(store: &MemoryStore, folder: &Path, config: Config, ticks: Ticks) -> Setup {
    let rota = folder.join(".rota");
    std::fs::create_dir_all(rota.join("run/agents")).unwrap();
    Setup {
        store: AnyStore::Memory(store.clone()),
        call: Call { actor: Some("daemon".into()), ..Call::in_scope("default") },
        host: "here".into(),
        config,
        config_file: folder.join("rota.yml"),
        folders: Folders::new(folder, &rota),
        environment: Environment::new(),
        until: Until::Stopped,
        publish: false,
        verbose: false,
        policy_copy: folder.join("policy.json"),
        shims: Shims::started_by("/bin/true".into(), &rota).unwrap(),
        companions: vec![Arc::new(ticks)],
        has_gateway: false,
        latest: watch::channel(None).0,
    }
}

/// Counts the transactions of ticks over a backlog that holds nothing to begin.
async fn transactions_per_tick(config: &str) -> Vec<u64> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rota.yml");
    std::fs::write(&file, config).unwrap();
    let mut config = Config::read_if_there(&file).unwrap().unwrap();
    config.poll_interval = Duration::from_secs(3_600);
    let store = MemoryStore::new();
    let task = |name: &str| NewTask {
        kind: Some("odd".into()),
        ..NewTask::new(TaskId::new(name).unwrap(), "loops", "T")
    };
    let awaits = NewTask {
        triggered_by: Some("a.md".into()),
        parent: Some(TaskId::new("top").unwrap()),
        ..task("awaits")
    };
    let tasks = vec![task("top"), awaits];
    store.perform(&Add { call: Call::in_scope("default"), tasks }).await.unwrap();
    let (tick, mut ticks) = mpsc::unbounded_channel();
    let setup = setup(&store, folder.path(), config, Ticks(tick));
    let (ask, requests) = mpsc::channel(1);
    let drive = async {
        ticks.recv().await.unwrap();
        let mut counted = Vec::new();
        for _ in 0..3 {
            let before = store.transactions();
            ask.send(Request::Look).await.unwrap();
            ticks.recv().await.unwrap();
            counted.push(store.transactions() - before);
        }
        ask.send(Request::Down(Urgency::Ask)).await.unwrap();
        counted
    };
    let mut observe = |_: &super::Happening, _: &dyn Fn() -> Vec<super::RunningLoop>| {};
    let (ending, counted) = tokio::join!(run(setup, requests, &mut observe), drive);
    assert!(ending.unwrap().stopped);
    counted
}

#[tokio::test]
async fn a_tick_with_nothing_due_is_one_transaction() {
    for config in ["loops:\n  ralph:\n    run: [\"true\"]\n", "loops: {}\n"] {
        assert_eq!(transactions_per_tick(config).await, [1, 1, 1], "{config}");
    }
}
