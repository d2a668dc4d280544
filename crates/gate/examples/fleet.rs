//! Twelve agents share two slots and a small budget; in the middle the provider says 429.
//!
//! Run it: `cargo run -p rota-gate --example fleet`. It uses a paused clock, so a minute takes no time.

use std::time::Duration;

use rota_gate::{Advice, Gate, GateConfig, Outcome, Priority, Refusal, Usage};
use tokio::time::{Instant, sleep};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config =
        GateConfig { max_concurrent: 2, max_requests_per_window: 20, burst: 4, ..GateConfig::default() };
    let gate = Gate::new(config)?;
    let began = Instant::now();

    let agents: Vec<_> = (1..=12)
        .map(|number| {
            let priority = if number % 4 == 0 { Priority::High } else { Priority::Normal };
            tokio::spawn(agent(gate.clone(), number, priority, began))
        })
        .collect();
    sleep(Duration::from_millis(1)).await;
    panel(&gate);
    for agent in agents {
        agent.await??;
    }
    panel(&gate);
    Ok(())
}

/// One agent makes one call, and asks again for as long as the gate advises it.
async fn agent(gate: Gate, number: u32, priority: Priority, began: Instant) -> Result<(), Refusal> {
    for attempt in 1.. {
        let permit = gate.acquire(format!("exec-{number:03}"), priority).await?;
        let (started, waited) = (began.elapsed(), permit.waited());
        let outcome = call(number, attempt).await;
        println!(
            "{:>6.1}s  exec-{number:03} waited {:>5.1}s  {outcome:?}",
            started.as_secs_f32(),
            waited.as_secs_f32()
        );
        match permit.report(outcome) {
            Ok(Advice::AskAgain { .. }) => {}
            Ok(Advice::RetryIn(wait)) => sleep(wait).await,
            _ => break,
        }
    }
    Ok(())
}

/// The provider: slow, and once out of patience.
async fn call(number: u32, attempt: u32) -> Outcome {
    sleep(Duration::from_millis(1_500)).await;
    if number == 3 && attempt == 1 {
        return Outcome::RateLimited { retry_after: Some(Duration::from_secs(8)) };
    }
    Outcome::Success(Usage { input_tokens: 900, output_tokens: 120 })
}

fn panel(gate: &Gate) {
    let details = gate.details();
    let state = details.state;
    let limited = if state.rate_limited { "Yes" } else { "No" };
    println!("Running: {}/{}  Queued: {}  Rate Limited: {limited}", state.running, state.slots, state.queued);
    for row in &details.running {
        println!("  [{:<4}] {}  running {:.1}s", row.priority.label(), row.id, row.running_for.as_secs_f32());
    }
    for row in &details.queued {
        println!(
            "  [{:<4}] {}  #{} about {:.0}s to go",
            row.priority.label(),
            row.id,
            row.position,
            row.estimated_wait.as_secs_f32()
        );
    }
    println!("Stats: {} completed | {} rate limited", state.stats.completed, state.stats.rate_limited);
}
