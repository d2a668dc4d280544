//! Rows that are measured in turns, and the table they become.

use std::time::Instant;

use crate::Result;
use crate::stats::{median, median_ratio, verdict};

/// The reason given for a row that a build cannot do.
pub const NOT_SUPPORTED: &str = "not supported by this build";

/// The figures of one round of one row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Round {
    /// Tasks per second.
    pub per_second: f64,
    /// Processor time per task in microseconds, of the load generator and of the server.
    pub cpu: Option<(f64, f64)>,
}

impl Round {
    /// Tasks per second, and nothing else.
    pub fn rate(per_second: f64) -> Self {
        Self { per_second, cpu: None }
    }
}

/// A row, and how one round of it is measured with so many callers.
pub struct Row<'a> {
    /// The first column.
    pub name: String,
    /// One round.
    pub measure: Box<dyn Fn(usize) -> Result<Round> + 'a>,
}

struct Figures {
    name: String,
    /// Rounds by column.
    rounds: Vec<Vec<Round>>,
    failed: Option<String>,
}

/// Measured rows.
pub struct Table {
    columns: Vec<usize>,
    rows: Vec<Figures>,
}

impl Table {
    /// Measures all rows with each number of callers; the row that goes first changes from round to round.
    pub fn measure(rows: &[Row<'_>], columns: &[usize], rounds: usize) -> Self {
        let empty = |row: &Row<'_>| Figures {
            name: row.name.clone(),
            rounds: vec![Vec::new(); columns.len()],
            failed: None,
        };
        let mut figures: Vec<Figures> = rows.iter().map(empty).collect();
        for (column, callers) in columns.iter().enumerate() {
            for round in 0..rounds {
                for place in 0..rows.len() {
                    let index = (place + round) % rows.len();
                    let row = &mut figures[index];
                    if row.failed.is_some() {
                        continue;
                    }
                    let began = Instant::now();
                    match (rows[index].measure)(*callers) {
                        Ok(measured) => row.rounds[column].push(measured),
                        Err(error) => row.failed = Some(error.to_string()),
                    }
                    let seconds = began.elapsed().as_secs_f64();
                    eprintln!("{}, {callers}: took {seconds:.1} s with its preparation", row.name);
                }
            }
        }
        Self { columns: columns.to_vec(), rows: figures }
    }

    fn rates(&self, name: &str, column: usize) -> Option<Vec<f64>> {
        let row = self.rows.iter().find(|row| row.name == name)?;
        let rates: Vec<f64> = row.rounds[column].iter().map(|round| round.per_second).collect();
        (!rates.is_empty()).then_some(rates)
    }

    /// The median of each round's own ratio.
    pub fn ratio(&self, name: &str, base: &str, column: usize) -> Option<f64> {
        Some(median_ratio(&self.rates(name, column)?, &self.rates(base, column)?))
    }

    /// Prints the table, with ratios to a row where that was measured; returns whether all rows were measured.
    pub fn print(&self, title: &str, callers: &str, base: &str) -> bool {
        let heads: String = self.columns.iter().map(|column| format!(" {column} |")).collect();
        println!("| {title}, tasks/s (ratio to {base}), {callers} |{heads}");
        println!("|---|{}", "---|".repeat(self.columns.len()));
        for row in &self.rows {
            let cells: String = (0..self.columns.len()).map(|column| self.cell(row, column, base)).collect();
            println!("| {} |{cells}", row.name);
        }
        self.print_cpu();
        let failed = |row: &&Figures| row.failed.as_ref().is_some_and(|reason| reason != NOT_SUPPORTED);
        for row in self.rows.iter().filter(failed) {
            println!("\n{}: could not be measured: {}", row.name, row.failed.as_deref().unwrap_or_default());
        }
        println!();
        !self.rows.iter().any(|row| failed(&row))
    }

    fn cell(&self, row: &Figures, column: usize, base: &str) -> String {
        let Some(rates) = self.rates(&row.name, column) else {
            let reason = row.failed.as_deref().filter(|reason| *reason == NOT_SUPPORTED);
            return format!(" {} |", reason.unwrap_or("failed"));
        };
        match self.ratio(&row.name, base, column) {
            Some(ratio) => format!(" {:.0} ({ratio:.2}) |", median(&rates)),
            None => format!(" {:.0} |", median(&rates)),
        }
    }

    fn print_cpu(&self) {
        let with_cpu = |row: &&Figures| row.rounds.iter().flatten().any(|round| round.cpu.is_some());
        let rows: Vec<&Figures> = self.rows.iter().filter(with_cpu).collect();
        if rows.is_empty() {
            return;
        }
        println!("\nProcessor time per task, load generator + rota serve, µs:\n");
        let heads: String = self.columns.iter().map(|column| format!(" {column} |")).collect();
        println!("| |{heads}\n|---|{}", "---|".repeat(self.columns.len()));
        for row in rows {
            let cells: String = row.rounds.iter().map(|rounds| cpu_cell(rounds)).collect();
            println!("| {} |{cells}", row.name);
        }
    }

    /// Prints whether a row reaches so many times another one, column by column.
    pub fn target(&self, name: &str, base: &str, at_least: &[(usize, f64)]) {
        for (callers, least) in at_least {
            let column = self.columns.iter().position(|column| column == callers);
            let ratio = column.and_then(|column| self.ratio(name, base, column));
            if let Some(ratio) = ratio {
                let holds = verdict(ratio >= *least);
                println!("{name}, {callers}: {ratio:.2} of {base} (target ≥ {least}: {holds})");
            }
        }
    }
}

fn cpu_cell(rounds: &[Round]) -> String {
    let of = |pick: fn((f64, f64)) -> f64| {
        median(&rounds.iter().filter_map(|round| round.cpu).map(pick).collect::<Vec<f64>>())
    };
    if rounds.is_empty() {
        " |".to_owned()
    } else {
        format!(" {:.0} + {:.0} |", of(|cpu| cpu.0), of(|cpu| cpu.1))
    }
}
