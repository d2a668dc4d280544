//! Eight processes open a fresh folder at once: one schema, no error.

use std::process::Stdio;

use crate::support::Lab;

#[test]
fn eight_processes_at_once() {
    for round in 0..5 {
        let lab = Lab::new();
        let start = |number: usize| {
            let (id, title) = (format!("t{number}"), format!("Round {round}"));
            let mut command = lab.command();
            command.args(["task", "create", &id, &title]).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let children: Vec<_> = (0..8).map(start).collect();
        for (number, child) in children.into_iter().enumerate() {
            let output = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("t{number}\n"));
            assert!(output.status.success());
        }
        let connection = rusqlite::Connection::open(lab.database()).unwrap();
        let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(number("PRAGMA user_version"), rota_store::sqlite::SCHEMA);
        assert_eq!(number("SELECT count(*) FROM sqlite_schema WHERE name = 'tasks'"), 1);
        assert_eq!(lab.line("task plan-status").ok(), "8 open, 0 active, 0 done, 0 blocked, 0 deleted\n");
        assert_eq!(std::fs::read_to_string(lab.path().join(".rota/.gitignore")).unwrap(), "*\n");
    }
}
