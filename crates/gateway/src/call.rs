//! One request from head to end: Host and Origin, the caller, the route, the body, the budget, the gate, the provider, and
//! again from the gate where the provider pushes back before anything reached the client.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use rota_gate::{Advice, Outcome, Permit, Priority, overload_wait};
use tokio::time::{Instant, timeout};

use crate::config::{Api, Credentials};
use crate::keeper::{Caller, Spending};
use crate::link::{Link, NoAnswer, Question};
use crate::meter::Meter;
use crate::refusal::Refusal;
use crate::relay::{Relayed, Reply, Tally};
use crate::route::Route;
use crate::server::Shared;
use crate::upstream::Upstream;
use crate::verdict::Verdict;
use crate::{bound, headers, limits, members, metered, quiet, route, verdict, wire};

/// Answers a request.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Infallible> {
    let (mut parts, body) = request.into_parts();
    // HTTP/2 says it in the target.
    if parts.version == Version::HTTP_2
        && !parts.headers.contains_key(HOST)
        && let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        parts.headers.insert(HOST, host);
    }
    let uri = parts.uri.clone();
    let found = route::find(&parts.method, uri.path(), &parts.headers, &shared.apis);
    let api = shared.api_of(&found, uri.path());
    let is_framed_twice = parts.version < Version::HTTP_2 && parts.headers.contains_key(TRANSFER_ENCODING);
    let mut response = match serve(&shared, &parts, body, found).await {
        Ok(response) => response,
        Err(refusal) => refusal.response(api).map(Reply::whole),
    };
    // What came in chunks may have said a length, too: nothing behind it is read as another request.
    if parts.version < Version::HTTP_2 && (is_framed_twice || parts.headers.contains_key(UPGRADE)) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

async fn serve(
    shared: &Arc<Shared>,
    parts: &Parts,
    body: Incoming,
    found: Route<'_>,
) -> Result<Response<Reply>, Refusal> {
    shared.auth.check_address(parts).map_err(Refusal::Address)?;
    if found == Route::Greeting {
        return Ok(Response::new(Reply::whole(Bytes::from_static(b"rota gateway\n"))));
    }
    let caller = caller(shared, parts).await?;
    if parts.headers.contains_key(UPGRADE) && parts.version < Version::HTTP_2 {
        return Err(Refusal::Upgrade);
    }
    match found {
        Route::Greeting | Route::Unknown => Err(Refusal::Unknown),
        Route::Control(path) => Box::pin(crate::control::serve(shared, parts, &caller, path)).await,
        Route::Upstream { index, path, is_gated } => {
            let upstream = &shared.upstreams[index];
            let own = caller.priority.unwrap_or_else(|| upstream.gate.default_priority());
            let priority = priority(&parts.headers, own)?;
            let target = target(upstream, path, &parts.uri)?;
            check_key(shared, upstream)?;
            let encodings = if shared.keeper.has_budget() {
                metered::check_endpoint(&parts.method, &route::decoded(path), is_gated)?;
                metered::encodings(&parts.headers)?
            } else {
                None
            };
            let (body, _room) = read(shared, parts, body).await?;
            let model = if is_gated { model_of(&body) } else { Arc::from("") };
            if is_gated && shared.keeper.has_budget() {
                metered::check_call(upstream.api, &route::decoded(path), &model, &body)?;
            }
            let call =
                Call { shared, upstream, caller, priority, asked: parts, target, body, model, encodings };
            if is_gated { call.gated().await } else { Box::pin(call.free()).await }
        }
    }
}

/// Who asks, by a token of ours.
async fn caller(shared: &Shared, parts: &Parts) -> Result<Arc<Caller>, Refusal> {
    for shown in headers::shown(&parts.headers, shared.credentials) {
        if let Some(caller) = shared.keeper.identify(shown).await? {
            return Ok(caller);
        }
    }
    let is_passing = shared.credentials == Credentials::Pass;
    Err(if is_passing { Refusal::TokenApart } else { Refusal::Token })
}

/// What the caller says may lower it, never raise it.
fn priority(headers: &HeaderMap, own: Priority) -> Result<Priority, Refusal> {
    let Some(said) = headers.get(headers::PRIORITY) else { return Ok(own) };
    let said: Option<Priority> = said.to_str().ok().and_then(|text| text.parse().ok());
    said.map(|said| said.max(own)).ok_or(Refusal::Priority)
}

/// Only the path and the query are the caller's.
fn target(upstream: &Upstream, path: &str, asked: &Uri) -> Result<PathAndQuery, Refusal> {
    let base = &upstream.target.base;
    if base.is_empty()
        && path == asked.path()
        && let Some(same) = asked.path_and_query()
    {
        return Ok(same.clone());
    }
    let query = asked.query().map_or(String::new(), |query| format!("?{query}"));
    PathAndQuery::try_from(format!("{base}{path}{query}")).map_err(|_| Refusal::Unknown)
}

/// Whether a provider that wants a key of ours can have it.
fn check_key(shared: &Shared, upstream: &Upstream) -> Result<(), Refusal> {
    match &upstream.key_env {
        Some(variable) if shared.credentials == Credentials::Inject && upstream.key.is_none() => {
            Err(Refusal::NoKey { variable: variable.clone(), upstream: upstream.name.to_string() })
        }
        _ => Ok(()),
    }
}

/// The whole body: it may have to be sent again.
async fn read<'a>(
    shared: &'a Shared,
    parts: &Parts,
    mut body: Incoming,
) -> Result<(Bytes, crate::server::Room<'a>), Refusal> {
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if length
        .and_then(|length| length.parse::<u64>().ok())
        .is_some_and(|length| length > limits::BODY_BYTES as u64)
    {
        return Err(Refusal::TooLarge(limits::BODY_BYTES));
    }
    let mut room = shared.room();
    // Begins with the first wait: most bodies come with their heads.
    let mut ends_at = None;
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    while !body.is_end_stream() {
        let deadline = || {
            let now = Instant::now();
            (now + limits::BODY_PAUSE).min(*ends_at.get_or_insert(now + limits::BODY))
        };
        let frame = match bound::until(deadline, piece(&mut body)).await.ok_or(Refusal::TooSlow)? {
            None => break,
            Some(frame) => frame.map_err(|_| Refusal::Unreadable)?,
        };
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > limits::BODY_BYTES {
            return Err(Refusal::TooLarge(limits::BODY_BYTES));
        }
        room.take(data.len())?;
        // Most bodies come in one piece, which need not be copied.
        match (first.is_empty(), rest.is_empty()) {
            (true, true) => first = data,
            (_, true) => {
                rest.reserve(first.len() + data.len());
                rest.extend_from_slice(&std::mem::take(&mut first));
                rest.extend_from_slice(&data);
            }
            _ => rest.extend_from_slice(&data),
        }
    }
    Ok((if rest.is_empty() { first } else { rest.freeze() }, room))
}

/// The next piece of a body.
async fn piece(body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    poll_fn(|cx| {
        let (polled, is_woken) = quiet::take(|| Pin::new(&mut *body).poll_frame(cx));
        // Where more is to come, the connection must be read on.
        if is_woken && !body.is_end_stream() {
            cx.waker().wake_by_ref();
        }
        polled
    })
    .await
}

/// What cannot be read is the provider's to refuse, and so is what names two.
fn model_of(body: &[u8]) -> Arc<str> {
    members::only(body, &members::MODEL).and_then(members::text).map_or_else(|| Arc::from(""), Arc::from)
}

/// The wall clock, for what providers say in dates.
fn wall_clock() -> SystemTime {
    let millis = u64::try_from(rota_store::clock::system_now().get()).unwrap_or(0);
    UNIX_EPOCH + Duration::from_millis(millis)
}

/// A request on its way to a provider.
struct Call<'a> {
    shared: &'a Arc<Shared>,
    upstream: &'a Arc<Upstream>,
    caller: Arc<Caller>,
    priority: Priority,
    /// As the client sent it.
    asked: &'a Parts,
    target: PathAndQuery,
    body: Bytes,
    model: Arc<str>,
    /// In place of what the client accepts, where its usage must be readable.
    encodings: Option<HeaderValue>,
}

/// What one attempt came to.
enum Attempt {
    Answered(Response<Reply>),
    /// To be sent again, not before this.
    Again(Duration),
}

impl Call<'_> {
    /// Without a slot: only what could not be sent at all is sent again.
    async fn free(&self) -> Result<Response<Reply>, Refusal> {
        let since = Instant::now();
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.send().await {
                Ok((answer, link)) => return Ok(self.relay(answer, link, None, Duration::ZERO, attempts)),
                Err(NoAnswer::NotConnected) => {
                    let wait = overload_wait(attempts - 1);
                    self.pause(since + self.shared.hold(), wait).await?;
                }
                Err(NoAnswer::Broken) => return Err(Refusal::Broken),
                Err(NoAnswer::Silent) => return Err(Refusal::Silent),
            }
        }
    }

    /// With a slot for each attempt, held in between for as long as a client bears it.
    async fn gated(&self) -> Result<Response<Reply>, Refusal> {
        self.shared.keeper.check_budget(&self.caller, &self.model).await?;
        let since = Instant::now();
        let until = since + self.shared.hold();
        let (mut attempts, mut overloads) = (0, 0);
        loop {
            let permit = match self.permit(until).await {
                Ok(permit) => permit,
                // The provider's own words, where it has said some.
                Err(Refusal::Quota(text)) => return self.quota(text, since, attempts),
                Err(refusal) => return Err(refusal),
            };
            let began = Instant::now();
            // Much may have been spent, and the lease may have ended, while it waited.
            if attempts > 0 || !permit.waited().is_zero() {
                self.shared.keeper.check_budget(&self.caller, &self.model).await?;
                caller(self.shared, self.asked).await?;
            }
            attempts += 1;
            match self.attempt(permit, since, began, attempts, &mut overloads).await? {
                Attempt::Answered(response) => return Ok(response),
                Attempt::Again(wait) => Box::pin(self.pause(until, wait)).await?,
            }
        }
    }

    async fn permit(&self, until: Instant) -> Result<Permit, Refusal> {
        let request = rota_gate::Request::new(self.shared.name_of(&self.caller));
        let request = request.priority(self.priority).model(Arc::clone(&self.model));
        let granted = bound::until(|| until, self.upstream.gate.acquire_request(request)).await;
        match granted.ok_or(Refusal::Held)? {
            Ok(permit) => Ok(permit),
            Err(rota_gate::Refusal::Quota { resets_in }) => Err(Refusal::Quota(renewed(resets_in))),
            Err(rota_gate::Refusal::Rejected(_) | rota_gate::Refusal::Cancelled) => Err(Refusal::Closing),
        }
    }

    fn quota(&self, text: String, since: Instant, attempts: u32) -> Result<Response<Reply>, Refusal> {
        let Some(answer) = self.upstream.last_quota() else { return Err(Refusal::Quota(text)) };
        let (mut parts, body) = answer.into_parts();
        headers::to_client(&mut parts.headers, millis(since.elapsed()), attempts);
        Ok(Response::from_parts(parts, Reply::whole(body)))
    }

    async fn attempt(
        &self,
        permit: Permit,
        since: Instant,
        began: Instant,
        attempts: u32,
        overloads: &mut u32,
    ) -> Result<Attempt, Refusal> {
        let (answer, link) = match self.send().await {
            Ok(answered) => answered,
            Err(NoAnswer::NotConnected) => {
                *overloads += 1;
                return Ok(Attempt::Again(overload_wait(*overloads - 1)));
            }
            Err(NoAnswer::Broken) => return Err(Refusal::Broken),
            Err(NoAnswer::Silent) => return Err(Refusal::Silent),
        };
        if let Some(wait) = verdict::hold_back(answer.headers(), wall_clock) {
            // Only fails for a call that was ended by its name, which nobody does here.
            let _held_back = permit.hold_back(wait);
        }
        if !verdict::is_suspect(answer.status()) {
            let waited = began.saturating_duration_since(since);
            if self.shared.keeper.has_budget()
                && answer.status().is_success()
                && !Meter::can_read(answer.headers())
            {
                self.shared.keeper.note(&self.spending(waited), Meter::off().reading());
                return Err(Refusal::Unmetered("the provider answered in a form that cannot be read"));
            }
            return Ok(Attempt::Answered(self.relay(answer, link, Some(permit), waited, attempts)));
        }
        let answer = Box::pin(self.whole(answer, link)).await;
        let verdict = verdict::judge(answer.status(), answer.headers(), answer.body(), wall_clock());
        let (outcome, said) = match verdict {
            Verdict::Pass => (Outcome::Failed, None),
            Verdict::RateLimited(retry_after) => (Outcome::RateLimited { retry_after }, None),
            Verdict::Quota(resets_in) => (Outcome::Quota { resets_in }, None),
            Verdict::Overloaded(wait) => {
                *overloads += 1;
                (Outcome::Overloaded { earlier: *overloads - 1 }, wait)
            }
        };
        match permit.report(outcome) {
            Ok(Advice::AskAgain { .. }) => Ok(Attempt::Again(Duration::ZERO)),
            // No client would wait for longer than this.
            Ok(Advice::RetryIn(wait)) => {
                Ok(Attempt::Again(said.unwrap_or_default().min(limits::HEAD).max(wait)))
            }
            Ok(Advice::Stop { .. }) => {
                self.upstream.remember_quota(answer);
                self.quota(String::new(), since, attempts).map(Attempt::Answered)
            }
            Ok(Advice::Done) | Err(_) => {
                let (mut parts, body) = answer.into_parts();
                headers::to_client(&mut parts.headers, millis(since.elapsed()), attempts);
                Ok(Attempt::Answered(Response::from_parts(parts, Reply::whole(body))))
            }
        }
    }

    /// Waits before the next attempt, but not beyond what a client bears, nor when the gateway goes down.
    async fn pause(&self, until: Instant, wait: Duration) -> Result<(), Refusal> {
        if wait.is_zero() {
            return Ok(());
        }
        let again = Instant::now() + wait;
        tokio::select! {
            () = self.shared.closing() => Err(Refusal::Closing),
            () = tokio::time::sleep_until(again.min(until)) => if again < until { Ok(()) } else { Err(Refusal::Held) },
        }
    }

    async fn send(&self) -> Result<(Response<()>, Box<Link>), NoAnswer> {
        let is_for_head = self.asked.method == Method::HEAD;
        let question =
            Question { head: |head: &mut Vec<u8>| self.write_head(head), body: &self.body, is_for_head };
        self.upstream.links.ask(question).await
    }

    /// What a provider is told of the request.
    fn write_head(&self, head: &mut Vec<u8>) {
        wire::begin_head(head, &self.asked.method, &self.target);
        wire::write_header(head, &HOST, &self.upstream.host);
        let Upstream { api, key, .. } = &**self.upstream;
        let (asked, credentials) = (&self.asked.headers, self.shared.credentials);
        headers::to_upstream(asked, *api, credentials, key.as_ref(), |name, value| {
            if self.encodings.is_none() || *name != ACCEPT_ENCODING {
                wire::write_header(head, name, value);
            }
        });
        if let Some(encodings) = &self.encodings {
            wire::write_header(head, &ACCEPT_ENCODING, encodings);
        }
        // Said also of nothing, so that no provider waits for more.
        let is_said = !self.body.is_empty() || !matches!(self.asked.method, Method::GET | Method::HEAD);
        wire::end_head(head, is_said.then_some(self.body.len()));
    }

    /// All of an answer that may not be passed on, as far as it comes quickly.
    async fn whole(&self, answer: Response<()>, mut link: Box<Link>) -> Response<Bytes> {
        let collecting = async {
            let mut body = BytesMut::new();
            while let Some(frame) = poll_fn(|cx| link.poll_piece(cx)).await {
                let Ok(data) = frame.ok()?.into_data() else { continue };
                if body.len() + data.len() > limits::REFUSAL_BYTES {
                    return None;
                }
                body.extend_from_slice(&data);
            }
            Some(body.freeze())
        };
        let collected = timeout(limits::REFUSAL, collecting).await.ok().flatten();
        self.upstream.links.give_back(link);
        answer.map(|()| collected.unwrap_or_default())
    }

    fn spending(&self, waited: Duration) -> Spending {
        Spending {
            caller: Arc::clone(&self.caller),
            upstream: Arc::clone(&self.upstream.name),
            model: Arc::clone(&self.model),
            wait_ms: millis(waited),
        }
    }

    fn relay(
        &self,
        answer: Response<()>,
        link: Box<Link>,
        permit: Option<Permit>,
        waited: Duration,
        attempts: u32,
    ) -> Response<Reply> {
        let (mut parts, ()) = answer.into_parts();
        let is_gated = permit.is_some();
        let spending = self.spending(waited);
        let meter = if is_gated { Meter::of(&parts.headers) } else { Meter::off() };
        let is_success = !parts.status.is_server_error();
        let keeper = Arc::clone(&self.shared.keeper);
        let tally = Tally::new(permit, meter, is_success, keeper, spending);
        headers::to_client(&mut parts.headers, millis(waited), attempts);
        let relayed = Relayed::new(link, Arc::clone(self.upstream), tally);
        Response::from_parts(parts, Reply::Relayed(Box::new(relayed)))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn renewed(resets_in: Option<Duration>) -> String {
    resets_in.map_or(String::new(), |left| format!(" for {} s yet", left.as_secs().max(1)))
}

/// What a path that leads nowhere would have meant.
pub(crate) fn api_of_path(path: &str) -> Api {
    let is_openai = ["/openai", "/v1/chat", "/v1/responses", "/v1/embeddings", "/v1/models"]
        .into_iter()
        .any(|root| path.starts_with(root));
    if is_openai { Api::OpenAi } else { Api::Anthropic }
}
