//! Who is measured: the stub itself, nginx, rota, and the others where they are installed.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::cores::pinned;
use crate::options::built_rota;

/// What is asked.
pub const BODY: &str = r#"{"model":"claude-opus-4","max_tokens":64,"messages":[{"role":"user","content":"Say hello to everybody here."}]}"#;
/// The same as a stream.
pub const STREAM_BODY: &str = r#"{"model":"claude-opus-4","max_tokens":64,"stream":true,"messages":[{"role":"user","content":"Say hello to everybody here."}]}"#;
/// How long a proxy may take to come up.
const START: Duration = Duration::from_secs(120);

/// Something to send requests to.
pub struct Subject {
    pub name: &'static str,
    pub address: String,
    pub path: &'static str,
    /// Each with its end of line.
    pub headers: String,
    /// Whether its streams are measured.
    pub streams: bool,
    child: Option<Child>,
}

impl Subject {
    fn processes(&self) -> Vec<String> {
        let Some(child) = &self.child else { return Vec::new() };
        let own = child.id();
        let children =
            std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        children.split_whitespace().map(str::to_owned).chain([own.to_string()]).collect()
    }

    /// How long it and its children have had a processor, in microseconds.
    pub fn processor_micros(&self) -> f64 {
        let threads = self
            .processes()
            .into_iter()
            .filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
        let nanos = |thread: std::fs::DirEntry| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0)
        };
        threads.flatten().flatten().map(nanos).sum::<f64>() / 1_000.0
    }

    /// The most memory it and its children ever had.
    pub fn peak_megabytes(&self) -> Result<f64> {
        let mut kilobytes = 0.0;
        for pid in self.processes() {
            let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
            kilobytes +=
                line.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
        }
        Ok(kilobytes / 1_024.0)
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// All of them; gone with the run.
pub struct Subjects {
    pub all: Vec<Subject>,
}

impl Subjects {
    /// Starts what is there and says what is not.
    pub fn start(folder: &Path) -> Result<Self> {
        let mut stub = pinned(1, &std::env::current_exe()?);
        let mut child = stub.arg("gateway-stub").stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
        let upstream = format!("127.0.0.1:{}", line.trim());
        let direct = Subject {
            name: "direct",
            address: upstream.clone(),
            path: "/v1/messages",
            headers: String::new(),
            streams: true,
            child: Some(child),
        };
        let mut all = vec![direct, rota(folder, &upstream)?, bare_hyper(&upstream)?];
        match nginx(folder, &upstream) {
            Ok(subject) => all.push(subject),
            Err(error) => println!("not measured: nginx ({error})"),
        }
        let peers = std::env::var("ROTA_BENCH_PEERS").map(PathBuf::from).ok();
        match peers {
            Some(peers) => {
                for started in [litellm(folder, &peers, &upstream), portkey(&peers, &upstream)] {
                    match started {
                        Ok(subject) => all.push(subject),
                        Err(error) => println!("not measured: {error}"),
                    }
                }
            }
            None => println!("not measured: LiteLLM and Portkey (ROTA_BENCH_PEERS names no folder)"),
        }
        Ok(Self { all })
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn wait_for(name: &str, address: &str) -> Result<()> {
    let start = Instant::now();
    while std::net::TcpStream::connect(address).is_err() {
        if start.elapsed() > START {
            return Err(format!("{name} does not listen on {address}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn rota(folder: &Path, upstream: &str) -> Result<Subject> {
    let program = built_rota()?;
    let workspace = folder.join("rota");
    // A repository of its own: the folder may lie in another one, whose settings would count.
    std::fs::create_dir_all(workspace.join(".git"))?;
    let port = free_port()?;
    let config = format!(
        "concurrency: {{max_api_calls: 1000}}\nrate_limit: {{rate_window_secs: 1, max_requests_per_window: 1000000, \
         burst: 1000000, recovery_period_secs: 0}}\ngateway:\n  listen: 127.0.0.1:{port}\n  upstreams: {{anthropic: \
         {{url: \"http://{upstream}\"}}}}\n"
    );
    std::fs::write(workspace.join("rota.yml"), config)?;
    let mut command = pinned(0, &program);
    command.arg("gateway").current_dir(&workspace).env("ANTHROPIC_API_KEY", "sk-bench").stderr(Stdio::null());
    for name in ["ROTA_STORE", "ROTA_CONFIG", "ROTA_SCOPE"] {
        command.env_remove(name);
    }
    let address = format!("127.0.0.1:{port}");
    let child = Some(command.spawn()?);
    let mut subject =
        Subject { name: "rota", address, path: "/v1/messages", headers: String::new(), streams: true, child };
    wait_for("rota", &subject.address)?;
    let token = std::fs::read_to_string(workspace.join(".rota/token"))?;
    subject.headers = format!("x-api-key: {}\r\n", token.trim());
    Ok(subject)
}

fn bare_hyper(upstream: &str) -> Result<Subject> {
    let mut command = pinned(0, &std::env::current_exe()?);
    let mut child = command.args(["bare-hyper", upstream]).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
    let (address, path) = (format!("127.0.0.1:{}", line.trim()), "/v1/messages");
    let headers = String::new();
    Ok(Subject { name: "bare hyper", address, path, headers, streams: true, child: Some(child) })
}

fn nginx(folder: &Path, upstream: &str) -> Result<Subject> {
    let found = ["/usr/sbin/nginx", "/usr/local/bin/nginx", "/opt/homebrew/bin/nginx"].map(Path::new);
    let program = found.into_iter().find(|path| path.exists()).ok_or("not installed")?;
    let port = free_port()?;
    let place = folder.join("nginx");
    std::fs::create_dir_all(&place)?;
    let temp = |name: &str| format!("{name}_temp_path {}/{name};", place.display());
    let temps: Vec<String> = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(temp).into();
    let config = format!(
        "worker_processes 1; daemon off; master_process off; pid {0}/pid; error_log {0}/error.log crit; events \
         {{ worker_connections 4096; }} http {{ access_log off; {1} keepalive_requests 1000000000; upstream stub {{ server \
         {upstream}; keepalive 256; keepalive_requests 1000000000; }} server {{ listen 127.0.0.1:{port}; location / \
         {{ proxy_pass http://stub; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_buffering off; }} }} }}",
        place.display(),
        temps.join(" ")
    );
    let file = place.join("nginx.conf");
    std::fs::write(&file, config)?;
    let mut command = pinned(0, program);
    command.arg("-c").arg(&file).arg("-p").arg(&place).stderr(Stdio::null());
    let child = command.spawn()?;
    let address = format!("127.0.0.1:{port}");
    wait_for("nginx", &address)?;
    let path = "/v1/messages";
    Ok(Subject { name: "nginx", address, path, headers: String::new(), streams: true, child: Some(child) })
}

fn litellm(folder: &Path, peers: &Path, upstream: &str) -> Result<Subject> {
    let program = peers.join("litellm/bin/litellm");
    if !program.exists() {
        return Err("LiteLLM (not installed)".into());
    }
    let port = free_port()?;
    let file = folder.join("litellm.yml");
    let config = format!(
        "model_list:\n  - model_name: claude-opus-4\n    litellm_params: {{model: openai/gpt-5, api_base: \
         \"http://{upstream}/v1\", api_key: sk-bench}}\n"
    );
    std::fs::write(&file, config)?;
    let mut command = pinned(0, &program);
    command.arg("--config").arg(&file).args(["--port", &port.to_string(), "--host", "127.0.0.1"]);
    // It does not start without a key that is hard to guess.
    let key = "sk-5b1f0a7c93e24d68b0c7f1e2a49d83560c1e7f42";
    command.env("LITELLM_MASTER_KEY", key).env("LITELLM_LOG", "ERROR").env("LITELLM_TELEMETRY", "False");
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let address = format!("127.0.0.1:{port}");
    let path = "/v1/chat/completions";
    let subject = Subject {
        name: "LiteLLM",
        address,
        path,
        headers: format!("authorization: Bearer {key}\r\n"),
        streams: false,
        child: Some(child),
    };
    wait_for("LiteLLM", &subject.address)?;
    Ok(subject)
}

fn portkey(peers: &Path, upstream: &str) -> Result<Subject> {
    let program = peers.join("portkey/node_modules/@portkey-ai/gateway/build/start-server.js");
    if !program.exists() {
        return Err("Portkey (not installed)".into());
    }
    let port = free_port()?;
    let mut command = pinned(0, Path::new("node"));
    command.arg(&program).args([&format!("--port={port}"), "--headless"]);
    let child = command.env("NODE_ENV", "production").stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let address = format!("127.0.0.1:{port}");
    let headers = format!(
        "authorization: Bearer sk-bench\r\nx-portkey-provider: openai\r\nx-portkey-custom-host: http://{upstream}/v1\r\n"
    );
    let path = "/v1/chat/completions";
    let subject = Subject { name: "Portkey", address, path, headers, streams: false, child: Some(child) };
    wait_for("Portkey", &subject.address)?;
    Ok(subject)
}
