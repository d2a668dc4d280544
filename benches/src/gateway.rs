//! `rota gateway` beside nginx as a plain reverse proxy, the least that a proxy on hyper does, LiteLLM and Portkey, in
//! front of the same stub: each proxy alone on one core, the stub and the load on another, in interleaved rounds.

mod bare_hyper;
mod load;
mod stub;
mod subjects;

use std::time::Duration;

use crate::Result;
use crate::cores::pin;
use crate::options::Options;
use crate::stats::{median, median_ratio, verdict};

pub use bare_hyper::be_bare_hyper;
pub use stub::be_stub;

use load::{Load, percentile};
use subjects::{Subject, Subjects};

/// Connections at once.
const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// A kind of load.
#[derive(Clone, Copy)]
enum Kind {
    /// Requests, over as many connections as stand at this place of [`CONNECTIONS`].
    Requests(usize),
    Streams,
}

const KINDS: [Kind; 4] = [Kind::Requests(0), Kind::Requests(1), Kind::Requests(2), Kind::Streams];
/// Streams at once.
const STREAMS: usize = 100;
const LEAST_SHARE: f64 = 0.7;
const MOST_ADDED: f64 = 1.5;
const MOST_FIRST_BYTE_MILLIS: f64 = 5.0;
const MOST_MEGABYTES: f64 = 32.0;

/// What one subject did, round by round.
struct Figures {
    name: &'static str,
    per_second: [Vec<f64>; 3],
    /// Of the processor for one request at 16 connections, in microseconds.
    processor: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    first_byte_p99: Vec<f64>,
    megabytes: f64,
}

/// Runs it.
pub fn run(options: &Options) -> Result<()> {
    let folder = options.scratch()?;
    let (rounds, time) = options.pick((1, Duration::from_millis(300)), (15, Duration::from_secs(1)));
    // The load and the stub are on the second core, proxies alone on the first.
    pin(std::process::id(), "1")?;
    let subjects = Subjects::start(folder.path())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut figures: Vec<Figures> = subjects.all.iter().map(|subject| Figures::new(subject.name)).collect();
    for round in 0..=rounds {
        // All of them one after the other under each load: what is compared is seconds apart.
        for kind in KINDS {
            for (subject, figures) in subjects.all.iter().zip(&mut figures) {
                let measured = runtime.block_on(measure(&Load { subject, time }, kind))?;
                // The first round opens connections and warms caches.
                if round > 0 {
                    figures.take(measured);
                }
            }
        }
    }
    for (subject, figures) in subjects.all.iter().zip(&mut figures) {
        figures.megabytes = subject.peak_megabytes()?;
    }
    print(&figures);
    Ok(())
}

/// What one subject did under one load.
enum Measured {
    Requests {
        index: usize,
        per_second: f64,
        processor: f64,
        p50: f64,
        p99: f64,
    },
    Streams {
        first_byte_p99: f64,
    },
    /// Its streams are not measured.
    Nothing,
}

async fn measure(load: &Load<'_>, kind: Kind) -> Result<Measured> {
    match kind {
        Kind::Requests(index) => {
            let before = load.subject.processor_micros();
            let micros = load.requests(CONNECTIONS[index]).await?;
            let processor = (load.subject.processor_micros() - before) / micros.len() as f64;
            let per_second = micros.len() as f64 / load.time.as_secs_f64();
            let (p50, p99) = (percentile(&micros, 50.0), percentile(&micros, 99.0));
            Ok(Measured::Requests { index, per_second, processor, p50, p99 })
        }
        Kind::Streams if load.subject.streams => {
            Ok(Measured::Streams { first_byte_p99: percentile(&load.streams(STREAMS).await?, 99.0) })
        }
        Kind::Streams => Ok(Measured::Nothing),
    }
}

impl Figures {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            per_second: Default::default(),
            processor: Vec::new(),
            p50: Vec::new(),
            p99: Vec::new(),
            first_byte_p99: Vec::new(),
            megabytes: 0.0,
        }
    }

    fn take(&mut self, measured: Measured) {
        match measured {
            Measured::Requests { index, per_second, processor, p50, p99 } => {
                self.per_second[index].push(per_second);
                if CONNECTIONS[index] == 16 {
                    self.processor.push(processor);
                }
                if CONNECTIONS[index] == 1 {
                    self.p50.push(p50);
                    self.p99.push(p99);
                }
            }
            Measured::Streams { first_byte_p99 } => self.first_byte_p99.push(first_byte_p99),
            Measured::Nothing => {}
        }
    }
}

fn print(figures: &[Figures]) {
    println!(
        "| | requests/s at 1 | at 16 | at 64 | processor per request at 16 | p50 with one | p99 with one | first byte p99, \
         100 streams | memory |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for one in figures {
        let [alone, some, many] = [0, 1, 2].map(|index| median(&one.per_second[index]));
        println!(
            "| {} | {alone:.0} | {some:.0} | {many:.0} | {:.0} µs | {:.0} µs | {:.0} µs | {:.2} ms | {:.1} MB |",
            one.name,
            median(&one.processor),
            median(&one.p50),
            median(&one.p99),
            median(&one.first_byte_p99) / 1_000.0,
            one.megabytes
        );
    }
    let find = |name: &str| figures.iter().find(|one| one.name == name);
    let (Some(direct), Some(rota)) = (find("direct"), find("rota")) else { return };
    println!("\n| target | measured | |\n|---|---|---|");
    if let Some(nginx) = find("nginx") {
        for (index, connections) in CONNECTIONS.into_iter().enumerate().skip(1) {
            let share = median_ratio(&rota.per_second[index], &nginx.per_second[index]);
            let verdict = verdict(share >= LEAST_SHARE);
            println!(
                "| at least {LEAST_SHARE} of nginx at {connections} connections | {share:.2} | {verdict} |"
            );
        }
        let added = |figures: &[f64], direct: &[f64]| {
            median(&figures.iter().zip(direct).map(|(one, direct)| one - direct).collect::<Vec<f64>>())
        };
        for (name, ours, theirs, bare) in
            [("p50", &rota.p50, &nginx.p50, &direct.p50), ("p99", &rota.p99, &nginx.p99, &direct.p99)]
        {
            let (ours, theirs) = (added(ours, bare), added(theirs, bare));
            let verdict = verdict(ours <= theirs * MOST_ADDED);
            println!(
                "| adds at most {MOST_ADDED} of what nginx adds at {name} | {ours:.0} µs beside {theirs:.0} µs | {verdict} |"
            );
        }
    }
    let later = median(&rota.first_byte_p99) - median(&direct.first_byte_p99);
    let verdict_of = verdict(later / 1_000.0 <= MOST_FIRST_BYTE_MILLIS);
    println!(
        "| first byte at most {MOST_FIRST_BYTE_MILLIS} ms later at p99 | {:.2} ms | {verdict_of} |",
        later / 1_000.0
    );
    let small = verdict(rota.megabytes < MOST_MEGABYTES);
    println!("| below {MOST_MEGABYTES} MB with {STREAMS} streams | {:.1} MB | {small} |", rota.megabytes);
}

/// What a proxy needs to know of the request: where to, with which headers.
fn request(subject: &Subject, is_stream: bool) -> String {
    let body = if is_stream { subjects::STREAM_BODY } else { subjects::BODY };
    format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\nanthropic-version: 2023-06-01\r\n{}content-length: {}\r\n\r\n{body}",
        subject.path,
        subject.address,
        subject.headers,
        body.len()
    )
}
