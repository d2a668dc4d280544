//! Schemas of earlier releases on PostgreSQL open for ever. Each is a dump under `tests/fixtures`.
//!
//! A new one is made with `ROTA_WRITE_FIXTURE=1 cargo test -p rota-store --test it postgres_fixture::` before the schema
//! changes again; a file that was released is never made anew.

use std::path::{Path, PathBuf};
use std::process::Command;

use rota_store::conformance::{Lab, Subject};
use rota_store::postgres::{PostgresStore, SCHEMA};
use rota_testbed::{Server, program};

use crate::fixture::{fill, holds_and_goes_on};
use crate::subjects::Postgres;

/// The schema's name inside a dump.
const NAME: &str = "rota_fixture";

fn fixture(schema: i64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/schema-{schema}.sql"))
}

/// A program of the server's, on our server.
fn client(name: &str) -> Command {
    let server = Server::shared();
    let mut command = Command::new(program(name).unwrap());
    command.args(["-U", "rota", "-d", "postgres", "-p", &server.port().to_string(), "-h"]);
    command.arg(server.socket_folder());
    command
}

/// Where a fixture is asked for, makes that of the current schema.
#[test]
fn write_where_asked() {
    if std::env::var_os("ROTA_WRITE_FIXTURE").is_none() {
        return;
    }
    let lab = Lab::new(&Postgres);
    fill(&lab);
    let schema = lab.store.schema();
    let dump = client("pg_dump").args(["--no-owner", "--no-privileges", "-n", schema]).output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let text = String::from_utf8(dump.stdout).unwrap().replace(schema, NAME);
    std::fs::write(fixture(SCHEMA), text).unwrap();
}

/// S8: a dump of every schema so far is restored, opens, holds what was put into it, agrees with its journal, and goes
/// on.
#[test]
fn every_schema_opens_and_goes_on() {
    for schema in 2..SCHEMA {
        let name = format!("fixture_{schema}");
        let text = std::fs::read_to_string(fixture(schema)).unwrap().replace(NAME, &name);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dump.sql");
        std::fs::write(&file, text).unwrap();
        let restored =
            client("psql").args(["-Xq", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&file).output().unwrap();
        assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
        let url = Server::shared().url(&name);
        assert_eq!(Postgres.block_on(PostgresStore::schema_at(&url)).unwrap(), schema);
        let store = Postgres.block_on(PostgresStore::open(&url)).unwrap();
        assert_eq!(Postgres.block_on(PostgresStore::schema_at(&url)).unwrap(), SCHEMA);
        holds_and_goes_on(&Lab { subject: &Postgres, store });
    }
}
