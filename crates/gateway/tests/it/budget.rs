//! Money: what is refused once it is spent, what cannot be counted, and figures that no provider can mean.

use rota_core::glob::Globs;
use rota_core::obstacle::Wait;
use rota_core::{Status, TaskId};
use rota_gateway::{Notice, Price};
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::blocks::UpstreamWaits;
use rota_store::intents::read::Show;
use rota_testbed::provider::{Step, answer, stream};

use crate::identity::{held, used_requests};
use crate::lab::{Ask, Lab, MESSAGE, Plan, REPLY, read_answer, until};

/// 17 tokens of one reply cost 0.017 dollars.
const PRICE: Price = Price { input: 1_000_000, output: 1_000_000, cache_write: None, cache_read: None };

fn with_budget(mut plan: Plan, day: Option<u64>, task: Option<u64>) -> Plan {
    plan.config.budget.day_nanos = day;
    plan.config.budget.task_nanos = task;
    plan.config.budget.prices = vec![(Globs::parse("*"), PRICE)];
    plan
}

async fn waits(lab: &Lab) -> Vec<(String, Wait)> {
    let upstreams = vec!["anthropic".to_owned(), "openai".to_owned()];
    let call = Call::in_scope("default");
    lab.store.perform(&UpstreamWaits { call, upstreams }).await.unwrap()
}

/// Waits until the store says what loops wait for.
async fn until_waits(lab: &Lab, count: usize) -> Vec<(String, Wait)> {
    for _ in 0..6_000 {
        let found = waits(lab).await;
        if found.len() == count {
            return found;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{count} waits did not come about: {:?}", waits(lab).await);
}

/// Twenty calls wait for one slot, and the first spends everything: the others are told when their turn comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_leaves_the_queue_is_checked_again() {
    let plan = Plan::new(|_| vec![Step::WaitForOpen].into_iter().chain(answer(200, &[], REPLY)).collect());
    let mut plan = with_budget(plan, Some(10_000_000), None);
    plan.gate.max_concurrent = 1;
    let lab = plan.start().await;
    let mut clients = Vec::new();
    for count in 1..=20 {
        clients.push(lab.message().send().await);
        until("it is there", || lab.view().running + lab.view().queued == count).await;
    }
    lab.provider.open();
    let mut statuses = Vec::new();
    for client in &mut clients {
        statuses.push(read_answer(client).await.status);
    }
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(200), count(402)), (1, 19), "{statuses:?}");
    assert_eq!(lab.provider.seen().len(), 1);
}

/// A spent day is a wait of the loops that use any upstream of the gateway, the operator is told, and the panel shows it;
/// a higher budget ends it at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_spent_day_is_a_wait() {
    let plan = with_budget(Plan::new(|_| answer(200, &[], REPLY)), Some(10_000_000), None);
    let mut config = plan.config.clone();
    let gate = plan.gate.clone();
    let lab = plan.start().await;
    assert_eq!(waits(&lab).await, []);
    assert_eq!(lab.message().answer().await.status, 200);
    let found = until_waits(&lab, 2).await;
    for (index, upstream) in ["anthropic", "openai"].iter().enumerate() {
        assert_eq!(found[index].0, *upstream);
        let Wait::BudgetSpent { budget, until } = &found[index].1 else { panic!("{found:?}") };
        assert_eq!((budget.as_str(), until.get() % 86_400_000), ("usd_per_day", 0), "until midnight");
    }
    let is_told = |notice: &Notice| matches!(notice, Notice::BudgetSpent { .. });
    until("the operator is told", || lab.notices.lock().unwrap().iter().any(is_told)).await;
    assert_eq!(lab.message().answer().await.status, 402);
    let panel = lab.gateway.panel();
    assert!(panel.text().contains("Rate Limited: Budget "), "{}", panel.text());
    assert!(panel.budget.is_some_and(|budget| budget.is_spent));
    config.budget.day_nanos = Some(1_000_000_000);
    lab.gateway.reconfigure(&gate, &config).unwrap();
    assert_eq!(lab.message().answer().await.status, 200);
    until_waits(&lab, 0).await;
    assert!(lab.notices.lock().unwrap().contains(&Notice::BudgetOpen));
}

/// A task that has spent its budget is parked with the reason when it asks for more; others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_spent_task_is_parked() {
    let lab = with_budget(Plan::new(|_| answer(200, &[], REPLY)), None, Some(10_000_000)).start().await;
    let (_, token) = held(&lab, "job-1", 2).await;
    let (_, other) = held(&lab, "job-2", 2).await;
    let ask = |token: &str| lab.ask("POST", "/v1/messages").header("x-api-key", token).body(MESSAGE);
    assert_eq!(ask(&token).answer().await.status, 200);
    let status = |id: &'static str| {
        let store = lab.store.clone();
        async move {
            let show = Show { call: Call::in_scope("default"), id: TaskId::new(id).unwrap() };
            let task = store.perform(&show).await.unwrap().0.task;
            (task.status, task.parked_reason.map(|reason| reason.to_string()))
        }
    };
    assert_eq!(status("job-1").await.0, Status::Active, "it may finish without the model");
    let got = ask(&token).answer().await;
    assert_eq!((got.status, got.text().contains("task job-1")), (402, true), "{}", got.text());
    let (now, reason) = status("job-1").await;
    assert_eq!(now, Status::Parked);
    assert!(reason.as_deref().is_some_and(|reason| reason.contains("budget of $0.01")), "{reason:?}");
    assert_eq!(status("job-2").await.0, Status::Active);
    assert_eq!(ask(&other).answer().await.status, 200);
    let parked = Notice::TaskParked { task: "job-1".into(), limit: rota_core::Usd::from_nanos(10_000_000) };
    assert!(lab.notices.lock().unwrap().contains(&parked));
}

/// Calls that cost money and do not say how much, each with words that the refusal has.
fn unmetered(lab: &Lab) -> Vec<(Ask, &'static str)> {
    let post = |path: &str, body: &str| lab.ask("POST", path).header("x-api-key", &lab.token).body(body);
    let chat = |more: &str| post("/v1/chat/completions", &format!("{{\"model\":\"gpt-5\"{more}}}"));
    vec![
        (post("/v1/messages/batches", "{}"), "does not report what it uses"),
        (post("/anthropic/v1/messages/batch%65s", "{}"), "does not report what it uses"),
        (post("/openai/v1/images/generations", "{}"), "does not report what it uses"),
        (post("/v1/embeddings", "{}"), "does not report what it uses"),
        (lab.message().header("accept-encoding", "zstd"), "encodings"),
        (chat(",\"stream\":true"), "include_usage"),
        (post("/v1/responses", "{\"model\":\"gpt-5\",\"background\":true}"), "background"),
        (post("/v1/messages", "{\"model\":\"a\",\"model\":\"b\"}"), "the model cannot be read"),
        (post("/v1/messages", "\u{1f}packed"), "the model cannot be read"),
    ]
}

/// With a budget nothing is sent whose cost could not be counted; without one everything passes.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_counted_is_refused() {
    let lab = with_budget(Plan::new(|_| answer(200, &[], REPLY)), Some(u64::MAX), None).start().await;
    for (ask, words) in unmetered(&lab) {
        let got = ask.answer().await;
        assert_eq!(
            (got.status, got.header("x-should-retry")),
            (402, Some("false")),
            "{words}: {}",
            got.text()
        );
        assert!(got.text().contains(words) && got.text().contains("there is a budget"), "{}", got.text());
    }
    assert_eq!(lab.provider.seen().len(), 0);
    let asked = r#"{"model":"gpt-5","stream":true,"stream_options":{"include_usage":true}}"#;
    let chat = lab.ask("POST", "/v1/chat/completions").header("x-api-key", &lab.token).body(asked);
    assert_eq!(chat.answer().await.status, 200);
    assert_eq!(lab.provider.seen()[0].body, asked.as_bytes(), "as it was sent");
    let counted = lab.ask("POST", "/v1/messages/count_tokens").header("x-api-key", &lab.token).body(MESSAGE);
    assert_eq!(counted.answer().await.status, 200);
    let free = Lab::start(|_| answer(200, &[], REPLY)).await;
    for (ask, words) in unmetered(&free) {
        assert_eq!(ask.answer().await.status, 200, "{words}");
    }
    let seen = free.provider.seen();
    assert!(seen.iter().any(|seen| seen.header("accept-encoding") == Some("zstd")));
}

/// Clients that take zstd among others get something that can be read; an answer in a form that nobody asked for and that
/// cannot be counted is not passed on.
#[tokio::test(flavor = "multi_thread")]
async fn answers_come_in_a_form_that_can_be_counted() {
    let plan = Plan::new(|seen| match seen.number {
        0 => answer(200, &[("content-encoding", "zstd")], "packed"),
        1 => {
            stream(&["data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"output_tokens\":3}}}\n\n"])
        }
        _ => answer(200, &[], REPLY),
    });
    let lab = with_budget(plan, Some(u64::MAX), None).start().await;
    let ask = lab.message().header("accept-encoding", "gzip, br, zstd");
    let got = ask.answer().await;
    assert_eq!((got.status, got.text().contains("cannot be read")), (402, true), "{}", got.text());
    assert_eq!(lab.provider.seen()[0].header("accept-encoding"), Some("gzip, br"));
    assert_eq!(lab.message().answer().await.status, 200);
    assert_eq!(lab.message().answer().await.status, 200);
    assert_eq!(used_requests(&lab, 3).await[0].output_tokens, 3 + 5);
}

/// Figures that no provider can mean are bounded, added up without an overflow, and kept as what they are.
#[tokio::test(flavor = "multi_thread")]
async fn absurd_figures_do_no_harm() {
    let absurd = |figure: &str| {
        let usage = format!(
            r#"{{"input_tokens":{figure},"output_tokens":{figure},"cache_read_input_tokens":{figure}}}"#
        );
        format!(r#"{{"id":"m","type":"message","usage":{usage}}}"#)
    };
    let figures = ["18446744073709551615", "9223372036854775807", "99999999999999999999999", "-1", "1e400"];
    let plan = Plan::new(move |seen| match figures.get(seen.number % 6) {
        Some(figure) => answer(200, &[], &absurd(figure)),
        None => stream(&[&format!("data: {}\n\n", absurd(figures[0])), "data: {}\n\n"]),
    });
    let mut plan = with_budget(plan, None, None);
    let dear = Price { input: 1_000_000_000, output: 1_000_000_000, cache_write: None, cache_read: None };
    plan.config.budget.prices = vec![(Globs::parse("*"), dear)];
    plan.gate.input_tokens_per_minute = Some(u64::MAX);
    let lab = plan.start().await;
    for _ in 0..24 {
        assert_eq!(lab.message().answer().await.status, 200);
    }
    let row = used_requests(&lab, 24).await.remove(0);
    assert_eq!((row.input_tokens, row.output_tokens), (16_000_000_000, 16_000_000_000));
    assert_eq!(row.spend_nanos, u64::try_from(i64::MAX).unwrap(), "as much as there is");
}
