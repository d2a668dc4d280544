//! The Model Context Protocol: the verbs as tools, for any agent that speaks it. Both families are served, the
//! `initialize` handshake and 2026-07-28, which starts with `server/discover`.
//!
//! A call becomes one verb in a task of its own, which goes on when its caller goes away. The text of
//! an answer is what the command line prints, byte for byte; the structured content is the same JSON.

mod arguments;
mod http;
mod remote;
mod session;
mod stdio;
mod tools;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation,
    InitializeRequestParams, InitializeResult, ListToolsResult, MetaObject, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool as Offer, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use rota_verbs::{Context, Said};
use serde_json::json;
use tokio::sync::Semaphore;

pub use http::serve_http;
pub use remote::Remote;
use session::{Client, Sessions};
pub use stdio::serve_stdio;
use tools::Tool;
pub use tools::ToolSet;

/// Calls under way at once; more wait.
const CALLS: u32 = 16;
/// How long calls that are under way may take when the server is told to stop.
const GRACE: Duration = Duration::from_secs(5);
/// One message: the longest text a verb takes, twice over for its escapes.
const MESSAGE_BYTES: usize = 8 * 1_024 * 1_024;

const INSTRUCTIONS: &str = "Rota hands out tasks to agents, one holder at a time. Claim a task with rota_task_claim, \
    keep its leaseId, work on it, call rota_task_renew before leaseExpiresAt if it takes longer, and end with \
    rota_task_done, rota_task_fail or rota_task_release; rota_task_done with next: true also claims the next task. File \
    what you discover with rota_task_create. A refusal says who holds the task now: then stop working on it. rota_task_peek \
    shows what there is, rota_why explains why a task does not run.";

/// What a server works with.
pub struct Settings {
    /// The store, the scope and who asks, unless a call says otherwise.
    pub context: Context,
    /// Where the copy of the policy is written.
    pub policy_file: PathBuf,
    /// Which tools it offers.
    pub tools: ToolSet,
    /// Where calls go instead of the store, for an agent with a lease token.
    pub remote: Option<Remote>,
}

/// The server, as one client sees it.
#[derive(Clone)]
pub struct McpServer {
    settings: Arc<Settings>,
    calls: Arc<Semaphore>,
    sessions: Arc<Sessions>,
    session: Arc<Client>,
}

impl McpServer {
    /// On a store, for one client, which has the agent name of the settings, if they have one.
    pub fn new(settings: Settings) -> Self {
        let sessions = Arc::new(Sessions::default());
        let session = Arc::new(sessions.client(&settings.context, settings.context.agent.clone()));
        let calls = Arc::new(Semaphore::new(CALLS as usize));
        Self { settings: Arc::new(settings), calls, sessions, session }
    }

    /// The same server for another client, with a session of its own.
    fn for_client(&self) -> Self {
        Self { session: Arc::new(self.sessions.client(&self.settings.context, None)), ..self.clone() }
    }

    /// Waits until no call is under way, for a bounded time, lets none begin any more, and ends all sessions.
    async fn rest(&self) {
        // What is still under way after that is cut off like by a crash: it was not acknowledged.
        if let Ok(Ok(all)) = tokio::time::timeout(GRACE, self.calls.acquire_many(CALLS)).await {
            all.forget();
        }
        let sessions = Arc::clone(&self.sessions);
        let ended = tokio::task::spawn_blocking(move || sessions.end_all());
        // A store that does not answer must not hold up the end: those leases expire.
        drop(tokio::time::timeout(GRACE, ended).await);
    }

    async fn call(
        &self,
        tool: &'static Tool,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let calls = Arc::clone(&self.calls);
        let turn = tokio::select! {
            biased;
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
            turn = calls.acquire_owned() => turn,
        };
        if let Some(id) = context.extensions.get::<::http::request::Parts>().and_then(session_id) {
            self.session.note_id(id);
        }
        let (settings, session) = (Arc::clone(&self.settings), Arc::clone(&self.session));
        let cancelled = context.ct.clone();
        // A task of its own: a call goes on when its caller goes away.
        let called = tokio::spawn(async move {
            let _turn = turn;
            tool.call(&settings, &session, request.arguments, cancelled).await
        });
        match called.await {
            Ok(outcome) => Ok(result(outcome)),
            Err(failed) => Err(ErrorData::internal_error(failed.to_string(), None)),
        }
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("rota", env!("CARGO_PKG_VERSION")).with_title("Rota");
        info.with_instructions(INSTRUCTIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        self.session.begin();
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(
            self.settings.tools.tools().map(|tool| offer(tool, self.settings.context.allow_future)).collect(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = self.settings.tools.find(&request.name);
        let tool = tool.map_err(|problem| ErrorData::invalid_params(problem, None))?;
        Ok(self.call(tool, request, &context).await?.into())
    }
}

/// The session that an HTTP request belongs to.
fn session_id(parts: &::http::request::Parts) -> Option<&str> {
    parts.headers.get("mcp-session-id").and_then(|id| id.to_str().ok())
}

/// A tool as clients see it.
fn offer(tool: &'static Tool, allow_now: bool) -> Offer {
    let hints = ToolAnnotations::with_title(tool.offered.title)
        .read_only(tool.reads())
        .destructive(tool.offered.is_destructive)
        .idempotent(tool.operation.is_idempotent)
        .open_world(false);
    let mut offer = Offer::new(tool.name.as_str(), tool.offered.description, tool.input_schema(allow_now));
    offer.title = Some(tool.offered.title.to_owned());
    offer.output_schema = Some(Arc::new(tool.output_schema()));
    offer.annotations = Some(hints);
    offer
}

/// An answer, or a refusal in the words of the command line. Clients check structured content against the tool's
/// schema, also that of a refusal, so the code of a refusal goes with the metadata.
fn result(outcome: Result<String, Said>) -> CallToolResult {
    match outcome {
        Ok(text) => {
            // A user's result may have a number that fits no machine; the text has it, and then stands alone.
            let structured = serde_json::from_str(&text).ok();
            let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
            result.structured_content = structured;
            result
        }
        Err(said) => {
            let mut result = CallToolResult::error(vec![ContentBlock::text(said.lines())]);
            let error = json!({"code": said.code, "exitCode": said.exit_code, "message": said.message});
            result.meta = Some(MetaObject([("rota/error".to_owned(), error)].into_iter().collect()));
            result
        }
    }
}
