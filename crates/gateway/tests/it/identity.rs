//! Whose a call is, how urgent, what it used, and what it may still spend.

use rota_auth::{LeaseToken, Token};
use rota_core::glob::Globs;
use rota_gateway::{Credentials, Price, TOKEN_PREFIX, hash_of};
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewPriority, NewTask};
use rota_store::intents::claim::{ClaimById, Wanted};
use rota_store::intents::gateway::{MakeGateToken, Used};
use rota_store::intents::settle::Settle;
use rota_store::{UsageFilter, UsageRow};
use rota_testbed::provider::{Step, answer, stream};

use crate::lab::{Lab, MESSAGE, Plan, REPLY, until};

/// A task that is held, and its token.
pub async fn held(lab: &Lab, id: &str, priority: u32) -> (LeaseToken, String) {
    held_for(lab, id, priority, None).await
}

async fn held_for(lab: &Lab, id: &str, priority: u32, ttl_ms: Option<i64>) -> (LeaseToken, String) {
    let call = Call::in_scope("default");
    let task = rota_core::TaskId::new(id).unwrap();
    let new = NewTask { priority: NewPriority::Given(priority), ..NewTask::new(task.clone(), "tasks", "t") };
    lab.store.perform(&Add { call: call.clone(), tasks: vec![new] }).await.unwrap();
    let wanted = Wanted::default();
    let claim = ClaimById { call, id: task.clone(), agent: None, ttl_ms, wanted, host: None };
    let fence = lab.store.perform(&claim).await.unwrap().task.fence;
    let lease = rota_core::LeaseId { task, fence }.to_string();
    let claim = LeaseToken { scope: "default".into(), task: id.into(), lease };
    let token = Token::of_file(&lab.folder().join("token")).unwrap();
    let signed = token.sign(&claim).expose().to_owned();
    (claim, signed)
}

async fn used(lab: &Lab) -> Vec<UsageRow> {
    let ask = Used { call: Call::in_scope("default"), filter: UsageFilter::default() };
    lab.store.perform(&ask).await.unwrap().1
}

pub async fn used_requests(lab: &Lab, requests: u64) -> Vec<UsageRow> {
    for _ in 0..6_000 {
        let rows = used(lab).await;
        if rows.iter().map(|row| row.requests).sum::<u64>() == requests {
            return rows;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{requests} requests were not written down: {:?}", used(lab).await);
}

/// A lease's token is good while the lease lasts, in both forms, and what it uses is its task's.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_has_a_token_and_an_account() {
    let lab = Lab::start(|seen| {
        if seen.wants_stream() {
            let start = r#"data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":30,"cache_read_input_tokens":7,"output_tokens":1}}}"#;
            let delta = r#"data: {"type":"message_delta","usage":{"output_tokens":40}}"#;
            return stream(&[&format!("{start}\n\n"), &format!("{delta}\n\n")]);
        }
        answer(200, &[], REPLY)
    })
    .await;
    let (claim, token) = held(&lab, "job-1", 1).await;
    let ask = lab.ask("POST", "/v1/messages").header("x-api-key", &token).body(MESSAGE);
    assert_eq!(ask.answer().await.status, 200);
    let streamed = MESSAGE.replace("{\"model\"", "{\"stream\":true,\"model\"");
    let ask =
        lab.ask("POST", "/v1/messages").header("authorization", &format!("Bearer {token}")).body(&streamed);
    assert!(ask.answer().await.is_whole);
    let rows = used_requests(&lab, 2).await;
    let row = &rows[0];
    assert_eq!(
        (row.task.as_str(), row.upstream.as_str(), row.model.as_str()),
        ("job-1", "anthropic", "claude-opus-4")
    );
    assert_eq!((row.input_tokens, row.output_tokens, row.cache_read_tokens), (42, 45, 7));
    assert_eq!(lab.ask("GET", "/rota/status").header("x-api-key", &token).answer().await.status, 403);
    lab.gateway.keeper().revoke(&claim.lease);
    assert_eq!(ask.answer().await.status, 401, "revoked at once");
    lab.gateway.keeper().expect(&claim.lease);
    assert_eq!(ask.answer().await.status, 200);
    let id = rota_core::TaskId::new("job-1").unwrap();
    let lease = rota_core::LeaseId::parse(&claim.lease).unwrap();
    let done =
        rota_core::transition::Command::Done { caller: rota_core::lease::Caller::lease(lease), result: None };
    let settled = lab.store.perform(&Settle::one(Call::in_scope("default"), id, done)).await.unwrap();
    assert!(settled.steps[0].is_ok());
    let start = std::time::Instant::now();
    while ask.answer().await.status != 401 {
        assert!(start.elapsed() < crate::lab::SOON, "the token of an ended lease is still good");
    }
}

/// The token of a lease that has run out is refused at once, though nobody has taken the lease back.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_is_refused_at_once() {
    let lab = Lab::start(|_| answer(200, &[], REPLY)).await;
    let ttl = std::time::Duration::from_secs(2);
    let (_, token) = held_for(&lab, "job-1", 2, Some(2_000)).await;
    // The lease began before this.
    let start = std::time::Instant::now();
    let ask = lab.ask("POST", "/v1/messages").header("x-api-key", &token).body(MESSAGE);
    let mut passed = 0;
    loop {
        let is_over = start.elapsed() > ttl;
        match ask.answer().await.status {
            200 if !is_over => passed += 1,
            401 => break,
            status => panic!("{status} after {:?}", start.elapsed()),
        }
    }
    assert!(passed > 0, "it was good while it lasted");
}

/// A call without a level of its own has the one that the policy says.
#[tokio::test(flavor = "multi_thread")]
async fn the_default_priority_counts() {
    let mut plan =
        Plan::new(|_| vec![Step::WaitForOpen].into_iter().chain(answer(200, &[], REPLY)).collect());
    plan.gate.default_priority = rota_gate::Priority::Low;
    let (mut gate, config) = (plan.gate.clone(), plan.config.clone());
    let lab = plan.start().await;
    let _first = lab.message().send().await;
    until("it runs", || lab.view().running == 1).await;
    assert_eq!(lab.view().calls[0].priority, "low");
    gate.default_priority = rota_gate::Priority::High;
    lab.gateway.reconfigure(&gate, &config).unwrap();
    let _second = lab.message().send().await;
    until("both run", || lab.view().running == 2).await;
    let shown: Vec<String> = lab.view().calls.into_iter().map(|call| call.priority).collect();
    assert_eq!(shown, ["high", "low"]);
    lab.provider.open();
}

/// What an answer had said by the time it was cut, or its client hung up, was used all the same.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_cut_is_paid_for() {
    let lab = Lab::start(|seen| {
        let start =
            r#"data: {"type":"message_start","message":{"usage":{"input_tokens":30,"output_tokens":1}}}"#;
        let mut steps = stream(&[&format!("{start}\n\n")]);
        steps.pop();
        steps.push(if seen.number == 0 { Step::Cut } else { Step::WaitForOpen });
        steps
    })
    .await;
    assert!(!lab.message().answer().await.is_whole);
    assert_eq!(used_requests(&lab, 1).await[0].input_tokens, 30);
    let mut client = lab.message().send().await;
    let mut piece = [0; 4_096];
    let mut text = String::new();
    while !text.contains("message_start") {
        let count = tokio::io::AsyncReadExt::read(&mut client, &mut piece).await.unwrap();
        text.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    drop(client);
    assert_eq!(used_requests(&lab, 2).await[0].input_tokens, 60);
}

/// The task says how urgent a call is; a caller may lower that and never raise it.
#[tokio::test(flavor = "multi_thread")]
async fn urgent_calls_go_first() {
    let mut plan =
        Plan::new(|_| vec![Step::WaitForOpen].into_iter().chain(answer(200, &[], REPLY)).collect());
    plan.gate.max_concurrent = 1;
    let lab = plan.start().await;
    let (_, low) = held(&lab, "low", 3).await;
    let (_, high) = held(&lab, "high", 1).await;
    let ask = |token: &str, said: Option<&str>, name: &str| {
        let ask = lab.ask("POST", "/v1/messages").header("x-api-key", token).header("x-name", name);
        let ask = match said {
            Some(said) => ask.header("x-rota-priority", said),
            None => ask,
        };
        ask.body(MESSAGE)
    };
    assert_eq!(ask(&low, Some("urgent"), "").answer().await.status, 400);
    let mut clients = Vec::new();
    let calls = [
        ("first", ask(&low, None, "first")),
        ("low", ask(&low, None, "low")),
        ("low-says-critical", ask(&low, Some("critical"), "low-says-critical")),
        ("high-says-normal", ask(&high, Some("normal"), "high-says-normal")),
        ("high", ask(&high, None, "high")),
    ];
    for (index, (_, call)) in calls.iter().enumerate() {
        clients.push(call.send().await);
        until("it is there", || lab.view().running + lab.view().queued == index + 1).await;
    }
    let shown: Vec<(String, bool)> =
        lab.view().calls.into_iter().map(|call| (call.priority, call.is_running)).collect();
    let expected = [("low", true), ("high", false), ("normal", false), ("low", false), ("low", false)];
    assert_eq!(shown, expected.map(|(priority, is_running)| (priority.to_owned(), is_running)));
    lab.provider.open();
    for client in &mut clients {
        assert_eq!(crate::lab::read_answer(client).await.status, 200);
    }
    let order: Vec<String> =
        lab.provider.seen().iter().map(|seen| seen.header("x-name").unwrap().to_owned()).collect();
    assert_eq!(order, ["first", "high", "high-says-normal", "low", "low-says-critical"]);
}

/// A token that somebody made is good at once, and counts as the task it names.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_people_make() {
    let lab = Lab::start(|_| answer(200, &[], REPLY)).await;
    let token = format!("{TOKEN_PREFIX}0123456789abcdef0123456789abcdef");
    let ask = lab.ask("POST", "/v1/messages").header("x-api-key", &token).body(MESSAGE);
    assert_eq!(ask.answer().await.status, 401);
    let call = Call::in_scope("default");
    let make = MakeGateToken { call, hash: hash_of(token.as_bytes()), task: None, level: None, ttl_ms: None };
    lab.store.perform(&make).await.unwrap();
    assert_eq!(ask.answer().await.status, 200);
    let rows = used_requests(&lab, 1).await;
    assert_eq!((rows[0].task.as_str(), rows[0].input_tokens), ("", 12));
}

/// A budget stops new calls with words that say what to do, and a status that nobody tries again.
#[tokio::test(flavor = "multi_thread")]
async fn budgets_stop_new_calls() {
    let price = Price { input: 1_000_000, output: 1_000_000, cache_write: None, cache_read: None };
    for (day, task, whose) in [(Some(20_000_000), None, "today"), (None, Some(20_000_000), "task job-1")] {
        let mut plan = Plan::new(|_| answer(200, &[], REPLY));
        plan.config.budget.day_nanos = day;
        plan.config.budget.task_nanos = task;
        plan.config.budget.prices = vec![(Globs::parse("claude-*"), price)];
        let lab = plan.start().await;
        let (_, token) = held(&lab, "job-1", 2).await;
        let ask = lab.ask("POST", "/v1/messages").header("x-api-key", &token);
        // 17 tokens each.
        assert_eq!(ask.clone().body(MESSAGE).answer().await.status, 200);
        assert_eq!(ask.clone().body(MESSAGE).answer().await.status, 200);
        for _ in 0..2 {
            let got = ask.clone().body(MESSAGE).answer().await;
            assert_eq!((got.status, got.header("x-should-retry")), (402, Some("false")));
            let text = got.text();
            assert!(
                text.contains("billing_error") && text.contains(whose) && text.contains("$0.02"),
                "{text}"
            );
        }
        let got = ask.clone().body(&MESSAGE.replace("claude", "other")).answer().await;
        assert_eq!((got.status, got.text().contains("no price for model other-opus-4")), (402, true));
        let rows = used_requests(&lab, 2).await;
        assert_eq!(rows[0].spend_nanos, 34_000_000);
        assert_eq!(ask.clone().body(MESSAGE).answer().await.status, 402, "also once it is in the store");
        assert_eq!(lab.provider.seen().len(), 2);
    }
}

/// A subscription's login goes through, and the token comes beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_of_ones_own_passes() {
    let mut plan = Plan::new(|_| answer(200, &[], REPLY));
    plan.config.credentials = Credentials::Pass;
    let lab = plan.start().await;
    let login = lab.ask("POST", "/v1/messages").header("authorization", "Bearer my-own-login");
    assert_eq!(login.clone().body(MESSAGE).answer().await.status, 401);
    let ask = login.header("x-rota-token", &lab.token).body(MESSAGE);
    assert_eq!(ask.answer().await.status, 200);
    let seen = &lab.provider.seen()[0];
    assert_eq!(seen.header("authorization"), Some("Bearer my-own-login"));
    assert!(
        seen.headers.iter().all(|(name, value)| !name.starts_with("x-rota") && !value.contains(&lab.token))
    );
    let got = lab.message().answer().await;
    assert_eq!(
        (got.status, got.text().contains("x-rota-token")),
        (401, true),
        "a token is never sent on as a key"
    );
}
