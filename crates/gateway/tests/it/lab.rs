//! A gateway between a scripted provider and clients, with a store in a folder of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rota_auth::Token;
use rota_gate::GateConfig;
use rota_gateway::panel::GateView;
use rota_gateway::{Api, Gateway, GatewayConfig, Notice, Setup, Target, UpstreamConfig};
use rota_store::intents::Call;
use rota_store::{AnyStore, Location, Secret};
use rota_testbed::provider::{Provider, Seen, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Longer than anything that should happen takes.
pub const SOON: Duration = Duration::from_secs(60);
/// What no client may ever see.
pub const KEY: &str = "sk-canary-0123456789";

/// A gateway that runs.
pub struct Lab {
    pub provider: Arc<Provider>,
    pub gateway: Gateway,
    pub address: SocketAddr,
    pub token: String,
    pub store: AnyStore,
    pub notices: Arc<Mutex<Vec<Notice>>>,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<tokio::task::JoinHandle<()>>,
    folder: Arc<tempfile::TempDir>,
}

/// What a lab is made of.
pub struct Plan {
    pub config: GatewayConfig,
    pub gate: GateConfig,
    folder: Arc<tempfile::TempDir>,
    provider: Arc<Provider>,
}

/// A gate that holds nobody back.
pub fn wide() -> GateConfig {
    GateConfig {
        max_concurrent: 10_000,
        max_requests_per_window: 1_000_000,
        burst: 1_000_000,
        initial_backoff: Duration::from_millis(50),
        max_backoff: Duration::from_millis(50),
        // After a block it is back at once.
        recovery_period: Duration::from_millis(1),
        ..GateConfig::default()
    }
}

impl Plan {
    /// One provider under both names.
    pub fn new(script: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let provider = Provider::start(script);
        let upstream = |api, key: &str| UpstreamConfig {
            api,
            url: Target::parse(&provider.url()).unwrap(),
            key_env: Some(key.to_owned()),
        };
        let upstreams = [
            ("anthropic".to_owned(), upstream(Api::Anthropic, "ANTHROPIC_API_KEY")),
            ("openai".to_owned(), upstream(Api::OpenAi, "OPENAI_API_KEY")),
        ];
        let config = GatewayConfig { upstreams: upstreams.into(), ..GatewayConfig::default() };
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self { config, gate: wide(), folder, provider: Arc::new(provider) }
    }

    /// Before whoever listens there, who is no scripted provider.
    pub fn before(address: SocketAddr) -> Self {
        let mut plan = Self::new(|_| Vec::new());
        let url = Target::parse(&format!("http://{address}")).unwrap();
        plan.config.upstreams.get_mut("anthropic").unwrap().url = url;
        plan
    }

    pub async fn start(self) -> Lab {
        let Self { config, gate, folder, provider } = self;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let token_file = folder.path().join("token");
        let operator = Token::of_file(&token_file).unwrap();
        let token = std::fs::read_to_string(&token_file).unwrap().trim().to_owned();
        let store = AnyStore::open(&Location::Sqlite(folder.path().join("rota.db"))).await.unwrap();
        let notices = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&notices);
        let variable = |_: &str| Some(Secret::from(KEY));
        let setup = Setup {
            config: &config,
            gate,
            store: store.clone(),
            call: Call::in_scope("default"),
            token: operator,
            address,
            variable: &variable,
            notices: Arc::new(move |notice| told.lock().unwrap().push(notice)),
        };
        let gateway = Gateway::new(setup).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = gateway.clone();
        let serving =
            tokio::spawn(async move { served.serve(listener, async { drop(stopped.await) }).await });
        let (stop, serving) = (Some(stop), Some(serving));
        Lab { provider, gateway, address, token, store, notices, stop, serving, folder }
    }
}

impl Lab {
    pub async fn start(script: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Plan::new(script).start().await
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub fn view(&self) -> GateView {
        self.gateway.panel().upstreams.into_iter().find(|view| view.upstream == "anthropic").unwrap()
    }

    /// Tells it to stop; the answer is ready when it has.
    pub fn stop(&mut self) -> tokio::task::JoinHandle<()> {
        drop(self.stop.take());
        self.serving.take().unwrap()
    }

    /// What a second gateway over the same folder is made of.
    pub fn again(&self, config: GatewayConfig, gate: GateConfig) -> Plan {
        Plan { config, gate, folder: Arc::clone(&self.folder), provider: Arc::clone(&self.provider) }
    }

    /// A request with the operator's token, as a client of Anthropic sends it.
    pub fn message(&self) -> Ask {
        self.ask("POST", "/v1/messages").header("x-api-key", &self.token).body(MESSAGE)
    }

    pub fn ask(&self, method: &str, path: &str) -> Ask {
        Ask {
            address: self.address,
            head: format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address),
            body: Vec::new(),
        }
    }
}

pub const MESSAGE: &str =
    r#"{"model":"claude-opus-4","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
/// What a provider answers to it.
pub const REPLY: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{"input_tokens":12,"output_tokens":5}}"#;

/// Waits until something holds.
pub async fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < SOON, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A request that is written as it stands.
#[derive(Clone)]
pub struct Ask {
    address: SocketAddr,
    head: String,
    body: Vec<u8>,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether it came to its end.
    pub is_whole: bool,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Ask {
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub fn body(mut self, body: &str) -> Self {
        self.body = body.into();
        self
    }

    /// Opens a connection and writes it.
    pub async fn send(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(&self.bytes()).await.unwrap();
        stream
    }

    pub fn bytes(&self) -> Vec<u8> {
        let length = format!("content-length: {}\r\n\r\n", self.body.len());
        [self.head.as_bytes(), length.as_bytes(), &self.body].concat()
    }

    /// Writes it and reads only the status: what answers HEAD has a length and no body.
    pub async fn answer_head(&self) -> u16 {
        let mut stream = self.send().await;
        let mut bytes = [0; 12];
        stream.read_exact(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes[9..]).parse().unwrap()
    }

    /// Writes it and reads the answer.
    pub async fn answer(&self) -> Answer {
        let mut stream = self.send().await;
        tokio::time::timeout(SOON, read_answer(&mut stream)).await.expect("an answer in time")
    }
}

/// Reads one answer.
pub async fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        let mut piece = [0; 4_096];
        let count = stream.read(&mut piece).await.unwrap();
        assert!(count > 0, "closed before a head: {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&piece[..count]);
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let pair =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    let headers: Vec<(String, String)> = lines.filter_map(pair).collect();
    let mut answer = Answer { status, headers, body: bytes.split_off(head_end), is_whole: false };
    if let Some(length) = answer.header("content-length").map(|length| length.parse::<usize>().unwrap()) {
        read_more(stream, &mut answer.body, |body| body.len() >= length).await;
        answer.is_whole = answer.body.len() == length;
    } else if answer.header("transfer-encoding").is_some() {
        read_more(stream, &mut answer.body, |body| body.ends_with(b"0\r\n\r\n")).await;
        (answer.body, answer.is_whole) = unchunked(&answer.body);
    } else {
        answer.is_whole = true;
    }
    answer
}

async fn read_more(stream: &mut TcpStream, body: &mut Vec<u8>, is_all: impl Fn(&[u8]) -> bool) {
    let mut piece = vec![0; 65_536];
    while !is_all(body) {
        match stream.read(&mut piece).await {
            Ok(count) if count > 0 => body.extend_from_slice(&piece[..count]),
            _ => return,
        }
    }
}

/// The bytes without their framing, and whether the end was there.
fn unchunked(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|window| window == b"\r\n") else { return (body, false) };
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        let piece = &rest[end + 2..];
        body.extend_from_slice(&piece[..size.min(piece.len())]);
        if piece.len() < size + 2 {
            return (body, false);
        }
        rest = &piece[size + 2..];
    }
}
