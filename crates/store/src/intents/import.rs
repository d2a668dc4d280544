//! Taking in what [`super::carry`] wrote: all of it in one transaction, or nothing and the line that is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use async_trait::async_trait;
use rota_core::obstacle::Stage;
use rota_core::{Refusal, TaskId};
use serde_json::Value;

use super::carry::{AgentLine, BlockLine, End, FORMAT, Header, Line, PolicyLine, Source};
use super::{Call, Cx, doctor};
use crate::fault::{Fault, Outcome};
use crate::store::Intent;
use crate::tx::{AgentRow, AnyTx, BlockRow, PolicyRow, Standing, Tx};
use crate::upkeep::Highest;

/// How many tasks are derived anew at once.
const PAGE: usize = 500;

/// Takes an export into scopes that are empty. Numbers are kept if the whole store is, else they go on behind the
/// highest there are, in the same order.
pub struct Import<'a, S> {
    /// When, who. The scope does not matter: the lines name theirs.
    pub call: Call,
    /// Where from.
    pub source: &'a S,
}

#[async_trait]
impl<S: Source> Intent for Import<'_, S> {
    type Output = End;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<End> {
        let mut reader = self.source.open()?;
        let mut loading: Option<Loading> = None;
        let (mut text, mut number) = (String::new(), 0);
        loop {
            text.clear();
            number += 1;
            let read = reader.read_line(&mut text);
            if read.map_err(|source| Fault::Io { path: self.source.path(), source })? == 0 {
                return Err(bad(number, "the file ends without its last line: it was cut off").into());
            }
            check_nul(&text, number)?;
            let line =
                serde_json::from_str(text.trim_end()).map_err(|error| bad(number, error.to_string()))?;
            match (&mut loading, line) {
                (None, Line::Export(header)) => loading = Some(Loading::begin(tx, header, number).await?),
                (None, _) => return Err(bad(number, "the first line of an export is missing").into()),
                (Some(loaded), Line::End(end)) => {
                    return finish(tx, &self.call, loaded, end, reader, number).await;
                }
                (Some(loaded), line) => loaded.take(tx, line, number).await?,
            }
        }
    }
}

/// The fields whose values are kept as JSON, where NUL is an escape like any other.
const JSON_FIELDS: [&str; 3] = ["payload", "result", "data"];

/// Refuses a line with a text that contains NUL: PostgreSQL has no place for it, and no store takes what another one cannot.
fn check_nul(text: &str, line: usize) -> Result<(), Refusal> {
    // Only an escape can stand for NUL in JSON. A line that is no JSON is refused by its reader.
    let Some(value) = text.contains("\\u0000").then(|| serde_json::from_str(text).ok()).flatten() else {
        return Ok(());
    };
    match field_with_nul("", &value) {
        Some(field) => Err(bad(line, format!("field \"{field}\" contains a NUL character"))),
        None => Ok(()),
    }
}

fn field_with_nul<'a>(name: &'a str, value: &'a Value) -> Option<&'a str> {
    match value {
        Value::String(text) => text.contains('\0').then_some(name),
        Value::Array(values) => values.iter().find_map(|value| field_with_nul(name, value)),
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !JSON_FIELDS.contains(&name.as_str()))
            .find_map(|(name, value)| field_with_nul(name, value)),
        _ => None,
    }
}

fn bad(line: usize, problem: impl Into<String>) -> Refusal {
    Refusal::BadLine { line, problem: problem.into() }
}

/// What was taken in so far.
struct Loading {
    scopes: BTreeSet<String>,
    queues: BTreeMap<(String, String), i64>,
    tasks: BTreeSet<(String, TaskId)>,
    numbers: BTreeSet<u64>,
    events: BTreeSet<u64>,
    /// Which events of which task are there.
    steps: BTreeSet<(String, TaskId, u64)>,
    policies: BTreeSet<(String, u64)>,
    above: Highest,
    count: End,
}

impl Loading {
    async fn begin<T: Tx>(tx: &mut T, header: Header, line: usize) -> Outcome<Self> {
        if header.schema_version != FORMAT {
            let problem = format!("schemaVersion is {}, this rota reads {FORMAT}", header.schema_version);
            return Err(bad(line, problem).into());
        }
        let scopes: BTreeSet<String> = header.scopes.into_iter().collect();
        let mut there = Vec::new();
        for scope in tx.scopes().await?.into_iter().filter(|scope| scopes.contains(scope)) {
            let queues: Vec<String> = tx.queues(&scope).await?.into_iter().map(|queue| queue.name).collect();
            there.push(format!("'{scope}' (queues: {})", queues.join(", ")));
        }
        if !there.is_empty() {
            let problem = format!(
                "an import needs empty scopes, but the store has {}: import into another store",
                there.join(", ")
            );
            return Err(Refusal::BadValue { problem }.into());
        }
        Ok(Self {
            scopes,
            queues: BTreeMap::new(),
            tasks: BTreeSet::new(),
            numbers: BTreeSet::new(),
            events: BTreeSet::new(),
            steps: BTreeSet::new(),
            policies: BTreeSet::new(),
            above: tx.highest().await?,
            count: End { lines: 1, ..End::default() },
        })
    }

    fn check_scope(&self, scope: &str, line: usize) -> Result<(), Refusal> {
        if self.scopes.contains(scope) {
            return Ok(());
        }
        Err(bad(line, format!("scope '{scope}' is not named in the first line")))
    }

    async fn take<T: Tx>(&mut self, tx: &mut T, line: Line, number: usize) -> Outcome<()> {
        self.count.lines += 1;
        match line {
            Line::Export(_) | Line::End(_) => {
                return Err(bad(number, "a first line inside of the file").into());
            }
            Line::Block(block) => take_block(tx, block, number).await?,
            Line::Usage(usage) => {
                self.check_scope(&usage.scope, number)?;
                tx.add_usage(&usage.into()).await?;
            }
            Line::Queue(queue) => {
                self.check_scope(&queue.scope, number)?;
                let row = tx.ensure_queue(&queue.scope, &queue.name).await?;
                tx.set_queue_paused(row.key, queue.paused).await?;
                self.queues.insert((queue.scope, queue.name), row.key);
            }
            Line::Policy(policy) => {
                self.check_scope(&policy.scope, number)?;
                if !self.policies.insert((policy.scope.clone(), policy.number)) {
                    return Err(bad(number, format!("policy {} is there twice", policy.number)).into());
                }
                take_policy(tx, policy, number).await?;
            }
            Line::Agent(agent) => {
                self.check_scope(&agent.scope, number)?;
                take_agent(tx, agent, number).await?;
            }
            Line::Retired(retired) => {
                self.check_scope(&retired.scope, number)?;
                tx.retire(&retired.scope, &retired.id, retired.fence).await?;
            }
            Line::Task(line) => {
                let task = line.task().map_err(|problem| bad(number, problem))?;
                self.take_task(tx, task, number).await?;
            }
            Line::Edge(edge) => {
                let ends = [&edge.task, &edge.blocker];
                if let Some(id) = ends.into_iter().find(|id| !self.has(&edge.scope, id)) {
                    return Err(bad(number, format!("task '{id}' is not in the lines before")).into());
                }
                tx.add_edge(&edge.scope, &edge.task, &edge.blocker).await?;
                self.count.edges += 1;
            }
            Line::Event(line) => {
                self.check_scope(&line.scope, number)?;
                let mut event = line.event().map_err(|problem| bad(number, problem))?;
                if !self.events.insert(event.seq) {
                    return Err(bad(number, format!("event {} is there twice", event.seq)).into());
                }
                if let Some(task) = event.task.clone()
                    && !self.steps.insert((event.scope.clone(), task.clone(), event.number))
                {
                    let problem = format!("task '{task}' has its event {} twice", event.number);
                    return Err(bad(number, problem).into());
                }
                event.seq += self.above.event;
                event.data.seq = event.data.seq.map(|seq| seq + self.above.task);
                tx.restore_event(&event).await?;
                self.count.events += 1;
            }
        }
        Ok(())
    }

    fn has(&self, scope: &str, id: &TaskId) -> bool {
        self.tasks.contains(&(scope.to_owned(), id.clone()))
    }

    /// Nothing derived yet: that takes the edges and parents that are still to come.
    async fn take_task<T: Tx>(
        &mut self,
        tx: &mut T,
        mut task: rota_core::Task,
        number: usize,
    ) -> Outcome<()> {
        let Some(queue) = self.queues.get(&(task.scope.to_string(), task.queue.to_string())) else {
            return Err(bad(number, format!("queue '{}' is not in the lines before", task.queue)).into());
        };
        let again =
            !self.tasks.insert((task.scope.to_string(), task.id.clone())) || !self.numbers.insert(task.seq);
        if again {
            return Err(bad(number, format!("task '{}' or its number is there twice", task.id)).into());
        }
        task.seq += self.above.task;
        let stage = Stage::Obstructed;
        let standing = Standing { open_blockers: 0, stage, static_score: 0, guarded: false, bucketed: false };
        tx.restore(&task, *queue, &standing).await?;
        self.count.tasks += 1;
        Ok(())
    }
}

async fn take_block<T: Tx>(tx: &mut T, block: BlockLine, number: usize) -> Outcome<()> {
    let BlockLine { upstream, blocked_until, hits, reason, updated_at } = block;
    if tx.block(&upstream).await?.is_some() {
        return Err(bad(number, format!("the store has a block on '{upstream}' of its own")).into());
    }
    Ok(tx.set_block(&BlockRow { upstream, blocked_until, hits, reason, updated_at }).await?)
}

async fn take_policy<T: Tx>(tx: &mut T, line: PolicyLine, number: usize) -> Outcome<()> {
    let PolicyLine { scope, number: count, version, document, published_at, actor } = line;
    rota_core::Policy::parse(document.as_str()).map_err(|error| bad(number, error.to_string()))?;
    Ok(tx.add_policy(&scope, &PolicyRow { number: count, version, document, published_at, actor }).await?)
}

async fn take_agent<T: Tx>(tx: &mut T, line: AgentLine, number: usize) -> Outcome<()> {
    let AgentLine { scope, id, pid, host, started_at, stopped_at } = line;
    let agent = AgentRow { id, pid, host, started_at, stopped_at };
    if !tx.add_agent(&scope, &agent).await? {
        return Err(bad(number, format!("agent '{}' is there twice", agent.id)).into());
    }
    Ok(())
}

async fn finish<T: Tx>(
    tx: &mut T,
    call: &Call,
    loaded: &Loading,
    end: End,
    mut reader: Box<dyn BufRead + Send>,
    number: usize,
) -> Outcome<End> {
    if end != loaded.count {
        let problem =
            format!("{} lines were written before this one, {} are there", end.lines, loaded.count.lines);
        return Err(bad(number, problem).into());
    }
    let mut rest = String::new();
    if reader.read_line(&mut rest).map_or(true, |bytes| bytes > 0) {
        return Err(bad(number + 1, "something follows the last line of the export").into());
    }
    tx.restored().await?;
    for scope in &loaded.scopes {
        let cx = Cx::open(tx, &Call { scope: scope.clone(), ..call.clone() }).await?;
        let mut after = 0;
        loop {
            let page = tx.page(scope, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.row.task.seq;
            for kept in page {
                doctor::rederive(tx, &cx, kept.row.task).await?;
            }
        }
    }
    Ok(end)
}
