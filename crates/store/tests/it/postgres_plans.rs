//! S10 on PostgreSQL: at 100,000 rows every statement of claiming and settling is served from its index, also by the
//! plan that is made once for all values.

use rota_conformance::lab::{after, at, new, of_kind};
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::add::Add;
use rota_store::postgres::statements;
use rota_testbed::Server;
use tokio_postgres::Client;

use crate::pg::{look, open, run};

const ROWS: i64 = 100_000;

/// A backlog of which nine in ten are blocked or cooling, copied from a few real rows; some buckets and guards in it.
async fn backlog(client: &Client) {
    let text = "SELECT string_agg(column_name, ', ') FROM information_schema.columns WHERE table_schema = \
         current_schema() AND table_name = 'tasks' AND column_name NOT IN ('seq', 'id', 'stage', 'bucketed', 'guarded')";
    let columns: String = client.query_one(text, &[]).await.unwrap().get(0);
    let each = ROWS / 3;
    let copy = format!(
        "INSERT INTO tasks (id, stage, bucketed, guarded, {columns})
         SELECT id || '-' || i, CASE WHEN i % 10 = 0 THEN 2 ELSE i % 2 END, i % 20 = 0, i % 20 = 0, {columns}
         FROM generate_series(1, {each}) i, tasks;
         UPDATE tasks SET status = 'active', stage = 0, lease_expires_at = seq WHERE seq % 100 = 1;
         UPDATE tasks SET next_eligible_at = seq WHERE stage = 1;
         UPDATE tasks SET parent = 'a' WHERE seq % 1000 = 3;
         INSERT INTO edges SELECT scope, id, 'c-' || split_part(id, '-', 2) FROM tasks WHERE id LIKE 'b-%';
         INSERT INTO journal (scope, at, task, number, kind, data)
         SELECT scope, created_at, id, 7, 'edited', '{{}}' FROM tasks"
    );
    client.batch_execute(&copy).await.unwrap();
}

/// The plan for all values of a statement.
async fn plan(client: &Client, text: &str) -> String {
    let values = (1..100).take_while(|number| text.contains(&format!("${number}"))).count();
    let nothing = vec!["NULL"; values].join(", ");
    client.batch_execute(&format!("PREPARE looked_at AS {text}")).await.unwrap();
    let asked = if values == 0 { String::new() } else { format!("({nothing})") };
    let lines = client.query(&format!("EXPLAIN (COSTS off) EXECUTE looked_at{asked}"), &[]).await.unwrap();
    client.batch_execute("DEALLOCATE looked_at").await.unwrap();
    lines.iter().map(|line| line.get::<_, String>(0) + "\n").collect()
}

async fn check(client: &Client, list: &[(&str, String, &str)]) {
    for (name, text, index) in list {
        let plan = plan(client, text).await;
        assert!(
            plan.contains(&format!(" using {index} ")) || plan.contains(&format!(" on {index}")),
            "{name}: {plan}"
        );
        for table in ["tasks", "edges", "journal"] {
            assert!(!plan.contains(&format!("Seq Scan on {table}")), "{name} reads all of {table}:\n{plan}");
        }
    }
}

#[test]
fn every_statement_is_served_from_its_index() {
    run(async {
        let url = Server::shared().fresh_url();
        let store = open(&url).await;
        let tasks = vec![new("a"), after("b", &["a"]), of_kind("c", "tasks", "plan")];
        store.perform(&Add { call: Call::in_scope("default").at(at(0)), tasks }).await.unwrap();
        let client = look(&url).await;
        backlog(&client).await;
        client.batch_execute("ANALYZE; SET plan_cache_mode = force_generic_plan").await.unwrap();
        check(&client, &statements()).await;
    });
}
