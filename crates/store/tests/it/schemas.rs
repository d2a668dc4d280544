//! Databases of earlier builds are refused with a way out, and nothing in them is changed.

use rota_store::Fault;
use rota_store::postgres::{self, PostgresStore};
use rota_store::sqlite::{self, SqliteStore};
use rota_testbed::Server;

use crate::pg::{look, run};

fn is_refused(fault: &Fault, number: i64, needed: i64) {
    assert!(
        matches!(fault, Fault::TooOld { found, known, .. } if (*found, *known) == (number, needed)),
        "{fault}"
    );
    assert_eq!((fault.code(), fault.exit_code()), ("store_too_old", 1));
    assert!(fault.to_string().contains("export with the old binary, import with this one"), "{fault}");
}

#[test]
fn sqlite_refuses_earlier_builds() {
    for number in 1..sqlite::SCHEMA {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rota.db");
        let old = rusqlite::Connection::open(&path).unwrap();
        old.execute_batch("CREATE TABLE queues (key INTEGER PRIMARY KEY)").unwrap();
        old.pragma_update(None, "application_id", 0x524f_5441).unwrap();
        old.pragma_update(None, "user_version", number).unwrap();
        drop(old);
        is_refused(&SqliteStore::open(&path).err().unwrap(), number, sqlite::SCHEMA);
        let old = rusqlite::Connection::open(&path).unwrap();
        let count = |text: &str| old.query_row(text, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!((count("PRAGMA user_version"), count("SELECT count(*) FROM sqlite_schema")), (number, 1));
    }
}

#[test]
fn postgres_refuses_earlier_builds() {
    run(async {
        for number in 1..postgres::SCHEMA {
            let name = &format!("earlier_{number}");
            let url = Server::shared().url(name);
            let client = look(&url).await;
            let make = format!(
                "CREATE SCHEMA IF NOT EXISTS {0}; CREATE TABLE {0}.migrations (number BIGINT PRIMARY KEY); \
                 INSERT INTO {0}.migrations SELECT generate_series(1, {number})",
                name
            );
            client.batch_execute(&make).await.unwrap();
            is_refused(&PostgresStore::open(&url).await.err().unwrap(), number, postgres::SCHEMA);
            let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = $1";
            assert_eq!(client.query_one(tables, &[name]).await.unwrap().get::<_, i64>(0), 1);
        }
    });
}
