//! Who may change the schema of a server, and who may only use it.

use rota_core::UnixMillis;
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::follow::Follow;
use rota_store::postgres::{PostgresStore, SCHEMA};
use rota_store::{Cursor, Fault, Store};

/// Says something to the server as its owner.
async fn tell(url: &str, text: &str) {
    let url = url.rsplit_once("&schema=").unwrap().0;
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(text).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
}

/// A role that may not make the schema is told the command; after somebody else ran it, it can work.
#[test]
fn a_role_that_may_not_migrate() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let owner = rota_testbed::Server::shared().fresh_url();
        let role = format!("worker_{}", owner.rsplit_once('=').unwrap().1);
        tell(&owner, &format!("CREATE ROLE {role} LOGIN")).await;
        let worker = owner.replace("//rota@", &format!("//{role}@"));
        assert_eq!(PostgresStore::schema_at(&worker).await.unwrap(), 0);
        let Err(fault) = PostgresStore::open(&worker).await else { panic!("it may not") };
        assert!(matches!(fault, Fault::MayNotMigrate { found: 0, known: SCHEMA, .. }), "{fault}");
        assert!(fault.to_string().contains("rota migrate --store"), "{fault}");
        assert_eq!(fault.exit_code(), 1);
        let store = PostgresStore::open(&owner).await.unwrap();
        store.grant_to(&role).await.unwrap();
        assert_eq!(PostgresStore::schema_at(&worker).await.unwrap(), SCHEMA);
        let store = PostgresStore::open(&worker).await.unwrap();
        let call = Call::in_scope("default").at(UnixMillis::new(1));
        let task = NewTask::new(rota_core::TaskId::new("a").unwrap(), "tasks", "A");
        store.perform(&Add { call: call.clone(), tasks: vec![task] }).await.unwrap();
        let follow = Follow { call, after: Cursor::START, limit: 10 };
        while store.perform(&follow).await.unwrap().0.is_empty() {
            tokio::task::yield_now().await;
        }
    });
}

/// A schema of a newer program is refused, also when one only looks.
#[test]
fn a_newer_schema_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = rota_testbed::Server::shared().fresh_url();
        drop(PostgresStore::open(&url).await.unwrap());
        let schema = url.rsplit_once('=').unwrap().1;
        tell(&url, &format!("INSERT INTO {schema}.migrations (number) VALUES (99)")).await;
        let Err(fault) = PostgresStore::open(&url).await else { panic!("it is newer") };
        assert!(matches!(fault, Fault::TooNew { found: 99, known: SCHEMA, .. }), "{fault}");
        assert!(PostgresStore::schema_at(&url).await.is_err());
    });
}
