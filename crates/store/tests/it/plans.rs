//! S10: at 100,000 rows every statement of claiming and settling is served from its index.

use rota_conformance::Lab;
use rota_conformance::lab::{after, at, new, of_kind};
use rota_store::sqlite::statements;
use rusqlite::Connection;

use crate::subjects::Sqlite;

const ROWS: i64 = 100_000;

/// A backlog of which nine in ten are blocked or cooling, copied from a few real rows.
fn backlog(connection: &Connection) {
    let columns: Vec<String> = connection
        .prepare("SELECT name FROM pragma_table_info('tasks') WHERE name NOT IN ('seq', 'id', 'stage', 'spec_ref')")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let columns = columns.join(", ");
    let copy = format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS} / 3)
         INSERT INTO tasks (id, stage, spec_ref, {columns})
         SELECT id || '-' || i, CASE WHEN i % 10 = 0 THEN 2 ELSE i % 2 END, 'spec' || i % 40, {columns} FROM n, tasks"
    );
    connection.execute_batch(&copy).unwrap();
    connection
        .execute_batch(
            "INSERT INTO edges SELECT scope, id, 'a' FROM tasks WHERE id LIKE '%-%' AND open_blockers > 0",
        )
        .unwrap();
}

fn plan(connection: &Connection, text: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
    let count = statement.parameter_count();
    let nothing = rusqlite::params_from_iter(std::iter::repeat_n(rusqlite::types::Null, count));
    statement.query_map(nothing, |row| row.get(3)).unwrap().collect::<Result<_, _>>().unwrap()
}

fn check(connection: &Connection) {
    for (name, text, wanted) in statements() {
        let plan = plan(connection, text);
        let (table, index) = wanted.split_once(' ').unwrap();
        let served =
            |line: &&String| line.starts_with(&format!("SEARCH {table} USING")) && line.ends_with(index);
        assert!(plan.iter().any(|line| served(&line)), "{name}: wanted {wanted}, got {plan:#?}");
        for line in &plan {
            let scans = ["tasks", "t", "edges", "e", "journal"].iter().any(|table| {
                line.strip_prefix("SCAN ").is_some_and(|rest| rest.split(' ').next() == Some(table))
            });
            // The children of one task and the kinds of a queue's leases are sorted after the search; both are few.
            let sorts = line.contains("TEMP B-TREE") && !["CHILDREN", "ACTIVE_BY_KIND"].contains(&name);
            assert!(!scans && !sorts, "{name}: {plan:#?}");
        }
    }
}

/// S10: the plans, before and after somebody ran ANALYZE; and a claim still chooses what core would.
#[test]
fn every_statement_is_served_from_its_index() {
    let subject = Sqlite::default();
    let lab = Lab::new(&subject);
    lab.add(at(0), &[new("a"), after("b", &["a"]), of_kind("c", "tasks", "plan")]);
    let connection = Connection::open(lab.store.path()).unwrap();
    check(&connection);
    backlog(&connection);
    let rows: i64 = connection.query_row("SELECT count(*) FROM tasks", [], |row| row.get(0)).unwrap();
    assert!(rows >= ROWS - 10, "{rows} rows");
    check(&connection);
    connection.execute_batch("ANALYZE").unwrap();
    check(&connection);
    let fresh = Connection::open(lab.store.path()).unwrap();
    check(&fresh);
    assert_eq!(lab.ok(&rota_conformance::lab::claim(at(1), 3)).len(), 3);
}
