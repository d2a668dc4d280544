//! `rota serve` on a large store: one task and one page beside the bare query of the same rows, a scrape of the metrics,
//! and what 200 listeners cost.
//!
//! The bare query is made by a process of its own, too, which knows two statements and sends what they find without
//! making anything of it: two processes that wake one another are in both figures. All are on one core then. On two,
//! each answer waits for a processor to be woken, which on a virtual machine takes longer than either query.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rota_store::sqlite::SqliteStore;
use rota_testbed::block_on;
use rota_verbs::create::CreateTask;
use rota_verbs::input::read;
use rota_verbs::overview::page;
use rota_verbs::show::ShowTask;
use rota_verbs::{Context, Payload, Verb};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};

use crate::Result;
use crate::agents::processor_seconds;
use crate::backlog::{self, Shape};
use crate::cores::pin;
use crate::options::{Options, built_rota, print_machine};
use crate::server::Server;
use crate::stats::{median, median_ratio, micros, verdict};

const PAGE: usize = 100;
/// Requests of one side before it is the other's turn.
const TURN: usize = 50;

/// Runs it.
pub fn run(options: &Options) -> Result<()> {
    let folder = options.scratch()?;
    let rota = built_rota()?;
    print_machine(folder.path());
    let database = folder.path().join("large.db");
    let tasks = options.pick(2_000, 1_000_000);
    drop(backlog::fill(&database, "tasks", tasks, Shape::Runnable)?);
    let cx = Context::new(SqliteStore::open(&database)?);
    let server = Server::start(&rota, folder.path(), &format!("sqlite:{}", database.display()))?;
    let bare = Server::bare(&database)?;
    println!("| {tasks} tasks | the verb in process | bare query | `rota serve` | ratio | target | |");
    println!("|---|---|---|---|---|---|---|");
    let all_cores = format!("0-{}", std::thread::available_parallelism()?.get() - 1);
    let together = [std::process::id(), bare.pid, server.pid];
    together.iter().try_for_each(|pid| pin(*pid, "0"))?;
    compare(&cx, &bare, &server, tasks, options.pick(20, 2_000), Asked::Task)?;
    compare(&cx, &bare, &server, tasks, options.pick(20, 300), Asked::Page)?;
    drop(bare);
    [std::process::id(), server.pid].iter().try_for_each(|pid| pin(*pid, &all_cores))?;
    let mut connection = server.connect()?;
    metrics(&server, &mut connection)?;
    listeners(options, &cx, &server)
}

/// What is asked for, in process and over HTTP.
#[derive(Clone, Copy)]
enum Asked {
    Task,
    Page,
}

impl Asked {
    const fn name(self) -> &'static str {
        match self {
            Self::Task => "one task",
            Self::Page => "page of 100",
        }
    }

    fn in_process(self, cx: &Context, at: usize) -> Result<String> {
        Ok(match self {
            Self::Task => {
                let input = ShowTask { id: backlog::id(at)?.into(), with_deps: false };
                Payload::new(block_on(input.run(cx))?).to_text()
            }
            Self::Page => Payload::new(block_on(page(cx, at as u64, PAGE))?).to_text(),
        })
    }

    fn path(self, at: usize) -> Result<String> {
        Ok(match self {
            Self::Task => format!("/api/v1/tasks/{}", backlog::id(at)?),
            Self::Page => format!("/api/v1/task-pages?limit={PAGE}&after={at}"),
        })
    }
}

/// The verb in this process, the bare query over HTTP, and the verb over HTTP, in turns of some requests each.
fn compare(
    cx: &Context,
    bare: &Server,
    server: &Server,
    tasks: usize,
    rounds: usize,
    asked: Asked,
) -> Result<()> {
    let step = (tasks - PAGE) / rounds;
    let (mut to_bare, mut to_server) = (bare.connect()?, server.connect()?);
    let (mut direct, mut queried, mut served) = (Vec::new(), Vec::new(), Vec::new());
    let places: Vec<usize> = (0..rounds).map(|round| round * step).collect();
    for turn in places.chunks(TURN) {
        let mut texts = Vec::new();
        for at in turn {
            let start = Instant::now();
            texts.push(asked.in_process(cx, *at)?);
            direct.push(micros(start.elapsed()));
        }
        let paths = turn.iter().map(|at| asked.path(*at)).collect::<Result<Vec<String>>>()?;
        for path in &paths {
            let start = Instant::now();
            bare.get(&mut to_bare, path)?;
            queried.push(micros(start.elapsed()));
        }
        for (path, text) in paths.iter().zip(texts) {
            let start = Instant::now();
            let body = server.get(&mut to_server, path)?;
            served.push(micros(start.elapsed()));
            if body != text {
                return Err(format!("{path} answers something else").into());
            }
        }
    }
    let ratio = median_ratio(&served, &queried);
    println!(
        "| {} | {:.0} µs | {:.0} µs | {:.0} µs | {ratio:.2} | ≤ 2 | {} |",
        asked.name(),
        median(&direct),
        median(&queried),
        median(&served),
        verdict(ratio <= 2.0)
    );
    Ok(())
}

fn metrics(server: &Server, connection: &mut BufReader<TcpStream>) -> Result<()> {
    let start = Instant::now();
    server.get(connection, "/metrics")?;
    let first = start.elapsed().as_millis();
    let mut times = Vec::new();
    for _ in 0..100 {
        let start = Instant::now();
        server.get(connection, "/metrics")?;
        times.push(micros(start.elapsed()));
    }
    let typical = median(&times);
    println!(
        "\n/metrics: {typical:.0} µs (target ≤ 10,000: {}), the first scrape {first} ms",
        verdict(typical <= 10_000.0)
    );
    Ok(())
}

/// Listeners that read everything, 100 events a second, and the server's own processor time.
fn listeners(options: &Options, cx: &Context, server: &Server) -> Result<()> {
    let (clients, seconds) = (options.pick(10, 200), options.pick(2, 20));
    for _ in 0..clients {
        let mut stream = server.connect()?;
        server.send(&mut stream, "/api/v1/events")?;
        std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
    }
    std::thread::sleep(Duration::from_secs(1));
    let (before, start) = (processor_seconds(server.pid)?, Instant::now());
    for at in 0..seconds * 100 {
        let task: CreateTask = read(&format!("{{\"id\":\"e{at}\",\"title\":\"T\"}}"))?;
        block_on(task.run(cx))?;
        let due = Duration::from_millis(10) * u32::try_from(at + 1)?;
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
    let took = start.elapsed().as_secs_f64();
    let share = (processor_seconds(server.pid)? - before) / took * 100.0;
    println!(
        "\n{clients} listeners, {:.0} events a second: {share:.1} % of a core (target < 10: {})",
        f64::from(u32::try_from(seconds * 100)?) / took,
        verdict(share < 10.0)
    );
    Ok(())
}

const BARE_TASK: &str = "SELECT * FROM tasks WHERE scope = 'default' AND id = ?1";
const BARE_PAGE: &str =
    "SELECT * FROM tasks NOT INDEXED WHERE scope = 'default' AND seq > ?1 ORDER BY seq LIMIT ?2";

/// The body of the bare server: one connection after the other, blocking, one statement per request, and the columns as
/// they come, one per line.
pub fn be_bare(arguments: &[String]) -> Result<()> {
    let [database] = arguments else { return Err("bare-serve: wrong arguments".into()) };
    let connection = Connection::open(database)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        let (mut first, mut line) = (String::new(), String::new());
        while stream.read_line(&mut first)? > 0 {
            while line != "\r\n" {
                line.clear();
                stream.read_line(&mut line)?;
            }
            line.clear();
            let target = first.split(' ').nth(1).ok_or("no target")?;
            let mut statement;
            let rows = if let Some(id) = target.strip_prefix("/api/v1/tasks/") {
                statement = connection.prepare_cached(BARE_TASK)?;
                statement.query([id])?
            } else {
                let after: i64 = target.rsplit('=').next().ok_or("no place")?.parse()?;
                statement = connection.prepare_cached(BARE_PAGE)?;
                statement.query(params![after, PAGE as i64])?
            };
            let body = columns_of(rows)?;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.get_mut().write_all(&[head.as_bytes(), &body].concat())?;
            first.clear();
        }
    }
}

fn columns_of(mut rows: rusqlite::Rows<'_>) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    while let Some(row) = rows.next()? {
        for column in 0..row.as_ref().column_count() {
            match row.get_ref(column)? {
                ValueRef::Integer(number) => write!(text, "{number}")?,
                ValueRef::Text(bytes) => text.extend_from_slice(bytes),
                _ => {}
            }
            text.push(b'\n');
        }
    }
    Ok(text)
}

impl Server {
    /// The bare query, see [`be_bare`].
    fn bare(database: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("bare-serve").arg(database).stdout(Stdio::piped()).spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().ok_or("no pipe")?).read_line(&mut address)?;
        let address = address.trim().to_owned();
        Ok(Self { pid: child.id(), child, address, token: "x".repeat(64) })
    }

    fn connect(&self) -> Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(stream))
    }

    fn send(&self, stream: &mut BufReader<TcpStream>, path: &str) -> Result<()> {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            self.address, self.token
        );
        stream.get_mut().write_all(head.as_bytes())?;
        Ok(())
    }

    fn get(&self, stream: &mut BufReader<TcpStream>, path: &str) -> Result<String> {
        self.send(stream, path)?;
        let (mut line, mut length) = (String::new(), 0);
        let mut status = None;
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            status = status.or_else(|| line.split(' ').nth(1).map(str::to_owned));
            let lower = line.to_ascii_lowercase();
            if let Some(text) = lower.strip_prefix("content-length: ") {
                length = text.trim().parse()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let text = String::from_utf8(body)?;
        if status.as_deref() == Some("200") { Ok(text) } else { Err(format!("{path}: {text}").into()) }
    }
}
