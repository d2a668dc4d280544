//! The schema, made under a lock, so that any number of processes may open a fresh database at once.

use tokio_postgres::error::SqlState;

use super::readback::first_row;
use super::{Object, Shared};
use crate::fault::Fault;

const SQL: &str = include_str!("../../migrations/postgres/schema.sql");

/// The schema's number. Earlier builds had 1 to 7; none of them was released.
pub const SCHEMA: i64 = 8;

/// Makes the schema where there is none; refuses an older and a newer one.
pub(super) async fn ensure(shared: &Shared, client: &Object) -> Result<(), Fault> {
    let before = found(shared, client).await?;
    match before {
        SCHEMA => return Ok(()),
        0 => {}
        found => {
            let place = format!("schema '{}' at {}", shared.schema, shared.place);
            return Err(Fault::TooOld { place, found, known: SCHEMA });
        }
    }
    let schema = &shared.schema;
    let begin = format!(
        "BEGIN; SET LOCAL lock_timeout = '30s'; \
         SELECT pg_advisory_xact_lock(hashtextextended('rota migrate {schema}', 0)); \
         CREATE SCHEMA IF NOT EXISTS {schema}; SET LOCAL search_path = {schema}; \
         CREATE TABLE IF NOT EXISTS migrations (number BIGINT PRIMARY KEY, \
             applied_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp());"
    );
    let run = async {
        client.batch_execute(&begin).await?;
        // Nothing by name: a pooler may be between us.
        let newest = client.simple_query("SELECT coalesce(max(number), 0) FROM migrations").await?;
        if first_row(&newest).0.as_deref() == Some("0") {
            client.batch_execute(SQL).await?;
            client.batch_execute(&format!("INSERT INTO migrations (number) VALUES ({SCHEMA})")).await?;
        }
        client.batch_execute("COMMIT").await
    };
    let migrated: Result<(), tokio_postgres::Error> = run.await;
    if let Err(error) = migrated {
        let forbidden = error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE);
        let (place, name) = (shared.place.clone(), schema.clone());
        let fault = match forbidden {
            true => Fault::MayNotMigrate { place, name, found: before, known: SCHEMA },
            false => shared.fault(error),
        };
        if client.batch_execute("ROLLBACK").await.is_err() {
            // The connection is gone, and the transaction with it.
            return Err(fault);
        }
        return Err(fault);
    }
    Ok(())
}

/// The schema number of the database, 0 for none.
pub(super) async fn found(shared: &Shared, client: &Object) -> Result<i64, Fault> {
    let table = format!("{}.migrations", shared.schema);
    let to_fault = |error| shared.fault(error);
    let exists = client.simple_query(&format!("SELECT to_regclass('{table}')")).await.map_err(to_fault)?;
    if first_row(&exists).0.is_none() {
        return Ok(0);
    }
    let text = format!("SELECT coalesce(max(number), 0) FROM {table}");
    let newest = first_row(&client.simple_query(&text).await.map_err(to_fault)?).0;
    let Some(found) = newest.as_ref().and_then(|number| number.parse::<i64>().ok()) else {
        return Err(Fault::Unreadable { problem: format!("the number of the schema: {newest:?}") });
    };
    if found > SCHEMA {
        let path = std::path::PathBuf::from(&shared.place);
        return Err(Fault::TooNew { path, found, known: SCHEMA });
    }
    Ok(found)
}

/// Lets a role use what is there and what later migrations of this role add.
pub(super) async fn grant(shared: &Shared, client: &Object, role: &str) -> Result<(), Fault> {
    let schema = &shared.schema;
    let role = format!("\"{}\"", role.replace('"', "\"\""));
    let grants = format!(
        "BEGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}; \
         GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}; \
         ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role}; \
         ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT USAGE, SELECT, UPDATE ON SEQUENCES TO {role}; COMMIT"
    );
    let granted = client.batch_execute(&grants).await;
    if granted.is_err() {
        client.batch_execute("ROLLBACK").await.map_err(|error| shared.fault(error))?;
    }
    granted.map_err(|error| shared.fault(error))
}
