//! Through PgBouncer in transaction mode, where each transaction may meet another connection to the server.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rota_conformance::Subject;
use rota_store::Store;
use rota_store::postgres::PostgresStore;
use rota_testbed::{Bouncer, Server};

use crate::pg::{add, claim, done, look, open, run};

/// Several workers of two stores, as two hosts would have them, over few connections.
async fn share(bouncer: &Bouncer, schema: &str, more: &str) {
    let url = format!("{}{more}", bouncer.url(schema));
    let (one, two) = (open(&url).await, open(&url).await);
    add(&one, (0..120).map(|number| format!("t{number}"))).await.unwrap();
    let workers: Vec<_> = (0..8)
        .map(|number| {
            let store = if number % 2 == 0 { one.clone() } else { two.clone() };
            tokio::spawn(async move {
                let mut settled = Vec::new();
                loop {
                    let grants = store.perform(&claim(&format!("w{number}"), 60_000)).await.unwrap();
                    let Some(grant) = grants.first() else { return settled };
                    let done = store.perform(&done(grant, "fine")).await.unwrap();
                    settled.push(done.steps[0].as_ref().unwrap().id.to_string());
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.await.unwrap());
    }
    assert_eq!(all.len(), 120);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 120);
    let client = look(&Server::shared().url(schema)).await;
    let text = "SELECT count(*) FROM tasks WHERE status <> 'done'";
    assert_eq!(client.query_one(text, &[]).await.unwrap().get::<_, i64>(0), 0);
}

/// Without its bookkeeping, and with it where this PgBouncer has it: since 1.21.
#[test]
fn workers_of_two_hosts_share_few_connections() {
    let mut ways = vec![("plain", 0, ""), ("off", 0, "&prepare=off")];
    if Bouncer::can_keep_track().unwrap() {
        ways.extend([("tracked", 200, ""), ("on", 200, "&prepare=on")]);
    }
    run(async {
        for (name, statements, more) in ways {
            let bouncer = Bouncer::before(Server::shared(), 3, statements).unwrap();
            share(&bouncer, &format!("bouncer_{name}"), more).await;
        }
    });
}

/// The suite's subject: every store goes through the pooler.
struct Pooled;

impl Pooled {
    fn pooler() -> &'static Bouncer {
        static POOLER: OnceLock<Bouncer> = OnceLock::new();
        POOLER.get_or_init(|| Bouncer::before(Server::shared(), 16, 0).unwrap())
    }
}

impl Subject for Pooled {
    type Store = PostgresStore;

    fn fresh(&self) -> PostgresStore {
        static SCHEMAS: AtomicUsize = AtomicUsize::new(0);
        let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        let url = Self::pooler().url(&format!("pooled{number}"));
        self.block_on(open(&url))
    }

    fn another(&self, store: &PostgresStore) -> PostgresStore {
        self.block_on(open(&Self::pooler().url(store.schema())))
    }

    fn is_serial(&self) -> bool {
        false
    }

    fn rounds(&self) -> usize {
        5
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
        let make = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        RUNTIME.get_or_init(|| make().unwrap()).block_on(future)
    }
}

/// The whole suite, through the pooler.
mod suite {
    use super::Pooled;
    rota_conformance::conformance_suite!(Pooled);
}
