//! Telling people and programs what needs them: by webhooks and commands, from the journal, beside whoever schedules. Each
//! hook has a line of its own that holds a bounded number of messages; a receiver that is down, slow or refuses is tried
//! again a bounded number of times and then given up on. Nobody waits for any of this.

mod hooks;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use rota_core::UnixMillis;
use rota_core::event::EventKind;
use rota_store::intents::issues::PINNED_ANEW;
use rota_store::{Cursor, Secret};
use rota_verbs::log::{EventPayload, placed, tail};
use rota_verbs::overview::{Glimpse, SpentBudget, glance};
use rota_verbs::{Context, Result};
use serde::Serialize;
use sha2::Sha256;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use hooks::{Hook, Way, read};
pub use rota_core::notify::Topic;

use crate::http::Cycles;
use rota_net::Target;

/// How often the store is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// Messages that wait for one receiver; more are dropped.
const WAITING: usize = 1_000;
/// How often a message is tried.
const TRIES: u32 = 6;
/// How long one try may take.
const TRY: Duration = Duration::from_secs(10);
/// How many events are read at once.
const PAGE: usize = 1_000;
/// A block that lasts longer is a quota.
const LONG_MS: i64 = 300_000;

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields say it")]
pub struct Message {
    pub schema_version: u32,
    /// The same for each try: a receiver can tell that it has seen it.
    pub id: String,
    pub event: &'static str,
    pub at: UnixMillis,
    pub scope: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where the journal stands now: from here on events are told. None where there is nobody to tell.
pub async fn place(cx: &Context, hooks: &[Hook]) -> Result<Option<Cursor>> {
    if hooks.is_empty() {
        return Ok(None);
    }
    Ok(Some(tail(cx, None, 0).await?.cursor))
}

/// Follows the journal from a place, else from its end, and tells the hooks, until it is told to stop. How long the first wait between two tries is, is
/// the caller's to say; each further one is twice as long.
pub async fn run(
    cx: Context,
    from: Option<Cursor>,
    cycles: Option<Cycles>,
    hooks: Vec<Hook>,
    first_wait: Duration,
    stop: CancellationToken,
) {
    if hooks.is_empty() {
        return;
    }
    let mut receivers = tokio::task::JoinSet::new();
    let begin = |hook: Hook| {
        let (line, messages) = mpsc::channel(WAITING);
        receivers.spawn(deliver(hook.way.clone(), messages, first_wait, stop.clone()));
        (hook, line)
    };
    let lines: Vec<(Hook, mpsc::Sender<Message>)> = hooks.into_iter().map(begin).collect();
    let mut watcher = Watcher { cycles, place: from, ..Watcher::default() };
    loop {
        let is_last = stop.is_cancelled();
        // A store that is away for a while is asked again.
        for (topic, message) in watcher.look(&cx).await.unwrap_or_default() {
            for (_, line) in lines.iter().filter(|(hook, _)| hook.topics.contains(&topic)) {
                // A line that is full belongs to a receiver that does not keep up.
                drop(line.try_send(message.clone()));
            }
        }
        if is_last {
            break;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(EVERY) => {}
        }
    }
    // What waits is tried once more, for a bounded time.
    drop(lines);
    let all = async { while receivers.join_next().await.is_some() {} };
    drop(tokio::time::timeout(TRY, all).await);
}

/// Sees what is worth telling.
#[derive(Default)]
struct Watcher {
    /// Reads where the supervisor's cycles stand.
    cycles: Option<Cycles>,
    /// The count of the last cycle that was seen.
    last_cycle: Option<u64>,
    has_looked: bool,
    place: Option<Cursor>,
    /// Whether anything ran or could run at the last look.
    was_busy: bool,
    /// Until when each upstream was blocked, as told.
    blocks: BTreeMap<String, Option<UnixMillis>>,
    /// Spent budgets as told, by upstream.
    budgets: BTreeMap<String, SpentBudget>,
}

impl Watcher {
    async fn look(&mut self, cx: &Context) -> Result<Vec<(Topic, Message)>> {
        let failed = self.failed_cycle(cx).await;
        if !self.has_looked {
            if self.place.is_none() {
                self.place = Some(tail(cx, None, 0).await?.cursor);
            }
            // A state from before is no news.
            self.see(cx, &glance(cx).await?);
            self.has_looked = true;
        }
        let Some(place) = self.place else { return Ok(Vec::new()) };
        let (events, cursor) = placed(cx, place, PAGE).await?;
        self.place = Some(cursor);
        let mut told: Vec<_> = events.iter().flat_map(|(place, event)| of_event(*place, event)).collect();
        let is_held = !self.blocks.is_empty() || !self.budgets.is_empty();
        if !events.is_empty() || self.was_busy || is_held {
            told.extend(self.see(cx, &glance(cx).await?));
        }
        told.extend(failed);
        Ok(told)
    }

    /// The supervisor's last cycle, if it is new and failed. The first look only remembers where the cycles stand.
    async fn failed_cycle(&mut self, cx: &Context) -> Option<(Topic, Message)> {
        let cycles = Arc::clone(self.cycles.as_ref()?);
        let standing = tokio::task::spawn_blocking(move || cycles()).await.ok()??;
        let before = self.last_cycle.replace(standing.cycle_count);
        let is_new = before.is_some_and(|before| standing.cycle_count > before);
        if !is_new || standing.consecutive_failures == 0 {
            return None;
        }
        let at = standing.last_cycle_at?;
        let message = Message {
            schema_version: 1,
            id: format!("{}-{}", Topic::CycleFailed.word(), standing.cycle_count),
            event: Topic::CycleFailed.word(),
            at,
            scope: cx.scope.clone(),
            task: None,
            upstream: None,
            reason: standing.last_failure_code,
        };
        Some((Topic::CycleFailed, message))
    }

    /// What the whole says that no event does.
    fn see(&mut self, cx: &Context, seen: &Glimpse) -> Vec<(Topic, Message)> {
        let mut told = Vec::new();
        let message = |topic: Topic, id: String| Message {
            schema_version: 1,
            id,
            event: topic.word(),
            at: seen.now,
            scope: cx.scope.clone(),
            task: None,
            upstream: None,
            reason: None,
        };
        if self.was_busy && !seen.is_busy {
            told.push((Topic::Idle, message(Topic::Idle, format!("idle-{}", seen.now.get()))));
        }
        self.was_busy = seen.is_busy;
        for block in seen.blocks.iter().filter(|block| block.blocked) {
            let before = self.blocks.insert(block.upstream.clone(), block.blocked_until);
            if before == Some(block.blocked_until) {
                continue;
            }
            let is_long = block.blocked_until.is_none_or(|until| until.get() - seen.now.get() > LONG_MS);
            let topic = if is_long { Topic::Quota } else { Topic::RateLimited };
            let id = format!("{}-{}-{}", topic.word(), block.upstream, seen.now.get());
            let (upstream, reason) = (Some(block.upstream.clone()), block.reason.clone());
            told.push((topic, Message { upstream, reason, ..message(topic, id) }));
        }
        let is_blocked =
            |name: &String| seen.blocks.iter().any(|block| block.blocked && block.upstream == *name);
        self.blocks.retain(|name, _| is_blocked(name));
        for spent in &seen.budgets {
            if self.budgets.insert(spent.upstream.clone(), spent.clone()).as_ref() == Some(spent) {
                continue;
            }
            let topic = Topic::BudgetSpent;
            let id = format!("{}-{}-{}", topic.word(), spent.upstream, seen.now.get());
            let (upstream, reason) = (Some(spent.upstream.clone()), Some(spent.budget.clone()));
            told.push((topic, Message { upstream, reason, ..message(topic, id) }));
        }
        self.budgets.retain(|_, known| seen.budgets.contains(known));
        told
    }
}

/// What an event is worth telling as.
fn of_event(place: Cursor, event: &EventPayload) -> Option<(Topic, Message)> {
    let reason = event.data.reason.clone();
    let topic = match event.to.as_deref() {
        _ if event.event == EventKind::Violated.word() => Topic::GovernanceViolation,
        _ if event.event == EventKind::Pinned.word()
            && reason.as_deref().is_some_and(|reason| reason.starts_with(PINNED_ANEW)) =>
        {
            Topic::GovernanceViolation
        }
        Some("parked") if event.from.as_deref() != Some("parked") => Topic::Parked,
        Some("failed") if event.from.as_deref() != Some("failed") => Topic::Failed,
        _ => return None,
    };
    let message = Message {
        schema_version: 1,
        id: format!("{}-{place}", topic.word()),
        event: topic.word(),
        at: event.at,
        scope: event.scope.clone(),
        task: event.task.as_ref().map(ToString::to_string),
        upstream: None,
        reason,
    };
    Some((topic, message))
}

/// Tells one receiver, message by message.
async fn deliver(
    way: Way,
    mut messages: mpsc::Receiver<Message>,
    first_wait: Duration,
    stop: CancellationToken,
) {
    while let Some(message) = messages.recv().await {
        let body = serde_json::to_vec(&message).unwrap_or_default();
        let mut wait = first_wait;
        for attempt in 1..=TRIES {
            let tried = async {
                match &way {
                    Way::Web { target, secret } => {
                        post(target, secret.as_ref(), &message, body.clone()).await
                    }
                    Way::Run { argv } => run_command(argv, &message, &body).await,
                }
            };
            let is_done = tokio::time::timeout(TRY, tried).await.unwrap_or(false);
            if is_done || attempt == TRIES || stop.is_cancelled() {
                break;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(wait) => wait *= 2,
            }
        }
    }
}

/// Whether the receiver took it. A redirect is not followed: it could lead where nobody meant it to.
async fn post(target: &Target, secret: Option<&Secret>, message: &Message, body: Vec<u8>) -> bool {
    let mut headers = vec![
        ("content-type", "application/json".to_owned()),
        ("x-rota-event", message.event.to_owned()),
        // Ids hold the names of upstreams, which a header cannot hold as they are.
        ("x-rota-delivery", message.id.escape_default().to_string()),
    ];
    if let Some(secret) = secret {
        headers.push(("x-rota-signature", format!("sha256={}", signature(secret, &body))));
    }
    target.post(&headers, body).await.is_ok_and(|status| status.is_success())
}

/// HMAC-SHA-256 of the body, in hex: whoever knows the secret can tell that it comes from here.
fn signature(secret: &Secret, body: &[u8]) -> String {
    let keyed = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes());
    // HMAC takes a key of any length.
    let mut mac = keyed.unwrap_or_else(|_| unreachable!());
    mac.update(body);
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the program ended well. It reads the message; nothing of the message is on its command line.
async fn run_command(argv: &[String], message: &Message, body: &[u8]) -> bool {
    let Some((program, arguments)) = argv.split_first() else { return false };
    let mut command = tokio::process::Command::new(program);
    command.envs(rota_store::environment::hidden());
    command.args(arguments).env("ROTA_EVENT", message.event).env("ROTA_SCOPE", &message.scope);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // A program that does not read it may know enough.
        drop(input.write_all(body).await);
    }
    child.wait().await.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod signed {
    use super::*;

    /// RFC 4231, test case 2.
    #[test]
    fn a_signature_is_what_others_make() {
        let made = signature(&"Jefe".into(), b"what do ya want for nothing?");
        assert_eq!(made, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }
}
