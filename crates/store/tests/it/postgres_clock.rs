//! S5: hosts whose clocks are an hour off, step and jump. On PostgreSQL only the server's clock counts.

use std::path::Path;

use rota_core::UnixMillis;
use rota_store::clock;
use rota_testbed::Server;

use crate::children::{Child, Stage};
use crate::pg::{add, claim, look, open, run};

const HOUR_MS: i64 = 3_600_000;

/// A host: its clock is set by the parent, who also says when to claim.
pub fn be_a_host(stage: &Stage) {
    use rota_store::Store;
    run(async {
        let store = open(stage.store.to_str().unwrap()).await;
        while let Some(cue) = stage.cue() {
            let words: Vec<&str> = cue.split(' ').collect();
            match words.as_slice() {
                ["skew", by] => {
                    let before = clock::system_now();
                    clock::set_skew_ms(by.parse().unwrap());
                    stage.say(&(clock::system_now().get() - before.get()).to_string());
                }
                ["claim", agent, ttl_ms] => {
                    let grants = store.perform(&claim(agent, ttl_ms.parse().unwrap())).await.unwrap();
                    let expiry = grants.first().and_then(|grant| grant.task.lease_expires_at);
                    stage.say(&expiry.map_or("nothing".to_owned(), |at| at.get().to_string()));
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

fn ask(host: &mut Child, cue: &str) -> String {
    host.tell(cue);
    host.must_hear()
}

async fn server_now(client: &tokio_postgres::Client) -> UnixMillis {
    let text = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    UnixMillis::new(client.query_one(text, &[]).await.unwrap().get(0))
}

#[test]
fn leases_are_judged_by_the_servers_clock() {
    run(async {
        let url = Server::shared().fresh_url();
        add(&open(&url).await, ["a".into()]).await.unwrap();
        let client = look(&url).await;
        let mut hosts = [HOUR_MS, -HOUR_MS].map(|skew| {
            let mut host = Child::start("host", Path::new(&url), "");
            let moved: i64 = ask(&mut host, &format!("skew {skew}")).parse().unwrap();
            assert!((moved - skew).abs() < 60_000, "{moved}");
            host
        });
        let before = server_now(&client).await.get();
        let expiry: i64 = ask(&mut hosts[0], "claim fast 60000").parse().unwrap();
        let after = server_now(&client).await.get();
        assert!((before + 60_000..=after + 60_000).contains(&expiry), "{before} {expiry} {after}");
        // Whatever a host believes, the lease holds: an hour ahead, an hour behind, after a jump, after a step back.
        for (host, skew) in [(0, HOUR_MS), (1, -HOUR_MS), (1, 3 * HOUR_MS), (0, -5 * HOUR_MS)] {
            ask(&mut hosts[host], &format!("skew {skew}"));
            assert_eq!(ask(&mut hosts[host], "claim other 60000"), "nothing", "{skew}");
        }
        // It ends when the server says so: no look that began after the end leaves it.
        let shorten =
            "UPDATE tasks SET lease_expires_at = lease_expires_at - 59700 RETURNING lease_expires_at";
        let end: i64 = client.query_one(shorten, &[]).await.unwrap().get(0);
        let lost = "SELECT at FROM journal WHERE from_status = 'active'";
        let (mut turn, mut last_look) = (0, 0);
        let taken_back: i64 = loop {
            if let Some(row) = client.query_opt(lost, &[]).await.unwrap() {
                break row.get(0);
            }
            assert!(last_look < end, "a look at {last_look} left a lease that ended at {end}");
            last_look = server_now(&client).await.get();
            ask(&mut hosts[turn % 2], "claim other 60000");
            turn += 1;
        };
        assert!(taken_back >= end, "{taken_back} is before {end}");
    });
}

/// No code of this store reads a host's clock; what waits uses a clock that only runs forward.
#[test]
fn the_store_never_asks_the_host() {
    let mut paths = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/postgres")];
    let mut files = 0;
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for word in ["clock::", "system_now", "SystemTime"] {
            assert!(!text.contains(word), "{} has {word}", path.display());
        }
        files += 1;
    }
    assert!(files > 10, "{files} files");
}
