//! The schema: numbered migrations under a lock, so that any number of processes may open a fresh database at once.

use deadpool_postgres::Object;

use super::Shared;
use crate::fault::Fault;

/// Numbered from 1; what was released is never changed. `{schema}` is the name of ours.
const MIGRATIONS: [&str; 1] = [include_str!("../../migrations/postgres/0001_tasks.sql")];

/// The newest schema this program knows.
pub const SCHEMA: i64 = MIGRATIONS.len() as i64;

/// Brings the schema up to date; refuses a newer one.
pub(super) async fn ensure(shared: &Shared, client: &Object) -> Result<(), Fault> {
    if found(shared, client).await? == SCHEMA {
        return Ok(());
    }
    let schema = &shared.schema;
    let begin = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('rota migrate {schema}', 0)); \
         CREATE SCHEMA IF NOT EXISTS {schema}; SET LOCAL search_path = {schema}; \
         CREATE TABLE IF NOT EXISTS migrations (number BIGINT PRIMARY KEY, \
             applied_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp());"
    );
    let run = async {
        client.batch_execute(&begin).await?;
        let row = client.query_one("SELECT coalesce(max(number), 0) FROM migrations", &[]).await?;
        for (number, migration) in
            (1..).zip(MIGRATIONS).skip(usize::try_from(row.get::<_, i64>(0)).unwrap_or(0))
        {
            client.batch_execute(&migration.replace("{schema}", schema)).await?;
            client.execute("INSERT INTO migrations (number) VALUES ($1)", &[&i64::from(number)]).await?;
        }
        client.batch_execute("COMMIT").await
    };
    let migrated: Result<(), tokio_postgres::Error> = run.await;
    if let Err(error) = migrated {
        let fault = shared.fault(error);
        client.batch_execute("ROLLBACK").await.map_err(|error| shared.fault(error))?;
        return Err(fault);
    }
    Ok(())
}

/// The schema number of the database, 0 for none.
async fn found(shared: &Shared, client: &Object) -> Result<i64, Fault> {
    let table = format!("{}.migrations", shared.schema);
    let to_fault = |error| shared.fault(error);
    let exists = client.query_one("SELECT to_regclass($1)::text", &[&table]).await.map_err(to_fault)?;
    if exists.get::<_, Option<String>>(0).is_none() {
        return Ok(0);
    }
    let text = format!("SELECT coalesce(max(number), 0) FROM {table}");
    let found: i64 = client.query_one(&text, &[]).await.map_err(to_fault)?.get(0);
    if found > SCHEMA {
        let path = std::path::PathBuf::from(&shared.place);
        return Err(Fault::TooNew { path, found, known: SCHEMA });
    }
    Ok(found)
}
