//! `rota work --jobs N -- true` on both stores, from its start to the end of the backlog.

use std::process::Stdio;
use std::time::Instant;

use super::stores::Template;
use super::table::{Round, Row, Table};
use super::{CALLERS, Run};
use crate::Result;
use crate::server::rota_command;

/// Runs it.
pub fn run(run: &Run) -> Result<bool> {
    let tasks = if run.quick { 200 } else { 1_000 };
    let mut templates = Vec::new();
    for build in &run.builds {
        if run.wants_section("sqlite") {
            templates.push(Template::new(run.sqlite(), build, tasks));
        }
        if run.wants_section("postgres") {
            templates.push(Template::new(run.postgres()?, build, tasks));
        }
    }
    let rows: Vec<Row<'_>> = templates.iter().filter_map(|template| row(run, template)).collect();
    if rows.is_empty() {
        return Ok(true);
    }
    let base = name(&templates[0]);
    let table = Table::measure(&rows, &CALLERS, run.rounds);
    Ok(table.print("rota work -- true, start included", "jobs", &base))
}

fn name(template: &Template<'_>) -> String {
    format!("{} work, {}", template.build().name, template.place().name())
}

fn row<'t>(run: &Run, template: &'t Template<'_>) -> Option<Row<'t>> {
    let name = name(template);
    let measure = |jobs: usize| {
        let store = template.copy()?;
        let jobs = jobs.to_string();
        let arguments = ["work", "--until-empty", "--jobs", &jobs, "--", "true"];
        let path = &template.build().path;
        let mut command = rota_command(path, template.place().folder(), &store.url(), &arguments);
        let began = Instant::now();
        let output = command.stdout(Stdio::null()).output()?;
        let seconds = began.elapsed().as_secs_f64();
        if !output.status.success() {
            return Err(format!("rota work: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(Round::rate(template.tasks() as f64 / seconds))
    };
    run.wants("work", &name).then(|| Row { name, measure: Box::new(measure) })
}
