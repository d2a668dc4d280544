//! One iteration of a loop: a fresh folder, the agent and the validation under a shim, a verdict. Knows nothing of the
//! store.
//!
//! The agent is told about its folder ([`Folders::of_iteration`]). Logs, verdict and feedback are records of the
//! daemon's own ([`Folders::records`]), which the next prompt is made from.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};

use rota_core::{LeaseId, Task};
use rota_store::intents::add::NewTask;

use crate::boot::BootTime;
use crate::children;
use crate::config::{LoopKind, Program};
use crate::files::{self, Dir, Owner, off_runtime};
use crate::folders::{ARTIFACTS, Folders, Place, numbered};
use crate::prompt::{self, Background, Earlier};
use crate::runner::environment::{self, Environment};
use crate::runner::output::{TAIL_BYTES, last_line};
use crate::runner::process::{Meaning, in_words, status_of};
use crate::runner::retry_after;
use crate::shim::attend::{self, End, Shims};
use crate::shim::orders::OrderReceiver;
use crate::shim::record::{self, Run, RunRecord, Step, Unattended, Why};
use crate::worktree::Worktrees;

/// How much output of one program is kept.
const OUTPUT_BYTES: u64 = 64 * 1_024 * 1_024;
/// How much of it the next iteration is told.
const FEEDBACK_BYTES: usize = 8 * 1_024;
/// How many earlier iterations are told of.
const PROGRESS_LINES: u32 = 20;
/// The longest note about an earlier iteration that is read.
const NOTE_BYTES: u64 = 64 * 1_024;
/// What is said of a run whose shim was killed.
const LOST: &str = "lost: its shim was killed, and what it left behind was ended";

/// What is said of a run whose shim was stopped by a signal.
pub const SHIM_STOPPED: &str = "its shim was stopped by a signal (SIGSTOP), so the agent was ended";

/// What an agent prints.
pub const OUTPUT: &str = "output.log";
/// What the validation prints.
pub const VALIDATION: &str = "validate.log";
const PROMPT: &str = "prompt.md";
const VERDICT: &str = "verdict.txt";
const FEEDBACK: &str = "feedback.txt";

/// What to run.
#[derive(Clone)]
pub struct Iteration {
    /// The loop, as it was granted or iterated.
    pub task: Task,
    /// Its lease.
    pub lease: LeaseId,
    /// How its kind is run.
    pub kind: LoopKind,
    /// Where things are.
    pub folders: Arc<Folders>,
    /// What is said of the store.
    pub environment: Environment,
    /// Of the lease.
    pub scope: String,
    /// Who starts it.
    pub shims: Arc<Shims>,
    /// Why the loop was started over, if it was.
    pub started_over: Option<String>,
    /// The worktrees of the workspace.
    pub worktrees: Arc<Worktrees>,
    /// Where it is; found out once, on a thread for blocking work.
    pub paths: Arc<OnceLock<Paths>>,
}

/// The folders of one iteration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paths {
    /// The agent's.
    folder: PathBuf,
    /// The daemon's.
    records: PathBuf,
    /// The directory that the agent is started in.
    workplace: PathBuf,
}

/// What came of it, and the run's record, which nobody else may take up before it is removed.
pub struct Finished {
    /// How it ended.
    pub verdict: Verdict,
    /// Its record; none where nothing was begun.
    pub run: Option<(RunRecord, Unattended)>,
}

/// How it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Validation passed.
    Passed,
    /// Not yet.
    NotPassed {
        /// In a line.
        why: String,
    },
    /// The API pushed back.
    RateLimited {
        /// How long the agent asks to wait.
        retry_after_secs: Option<u64>,
    },
    /// A person must look at it.
    NeedsPerson {
        /// Why.
        reason: String,
    },
    /// It could not be carried out.
    Failed {
        /// Why.
        reason: String,
    },
    /// It was stopped.
    Stopped,
    /// Nobody renewed its lease in time, and it was ended before others could have it.
    LeaseLost,
}

impl Iteration {
    fn number(&self) -> u32 {
        self.task.iteration
    }

    /// The loop, as its folders are named.
    pub fn place(&self) -> Place {
        Place::of(&self.task)
    }

    fn paths(&self) -> &Paths {
        self.paths.get_or_init(|| {
            let place = self.place();
            let workplace = if self.kind.worktree {
                self.folders.worktree(&place)
            } else {
                self.folders.workspace.clone()
            };
            Paths {
                folder: self.folders.of_iteration(&place, self.number()),
                records: self.folders.records(&place, self.number()),
                workplace,
            }
        })
    }

    /// Does something with files on a thread for blocking work.
    async fn off_runtime<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> std::io::Result<T> + Send + 'static,
    ) -> std::io::Result<T> {
        let this = self.clone();
        off_runtime(move || work(&this)).await
    }

    /// The children that the agent left in its artifacts, or what is wrong with them.
    pub async fn children(&self, queue: &'static str) -> Result<Vec<NewTask>, String> {
        let read = self.off_runtime(move |this| {
            let folder = match Dir::open(&this.paths().folder) {
                Ok(folder) => folder,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ok(Vec::new())),
                Err(error) => return Err(error),
            };
            Ok(children::read(&children::Parent {
                id: &this.task.id,
                iteration: this.number(),
                queue,
                folder: &folder,
                owner: this.folders.owner(),
                artifacts_from_loop: &format!("iterations/{}/{ARTIFACTS}", numbered(this.number())),
            }))
        });
        read.await.unwrap_or_else(|error| Err(format!("{}: {error}", children::FILE)))
    }

    /// Runs it to its end. Trouble with files is a failure of this loop and of no other.
    pub async fn run(&self, orders: OrderReceiver) -> Finished {
        let finished = self.attempt(orders).await;
        self.finish(finished).await
    }

    /// Goes on with a run that another daemon began.
    pub async fn resume(&self, record: RunRecord, orders: OrderReceiver) -> Finished {
        let resumed = async {
            let (end, taken) = attend::adopt(&record, orders).await?;
            let verdict = match end {
                End::NeverBegun => Verdict::Stopped,
                end => self.judge(end).await,
            };
            Ok(Finished { verdict, run: Some((record, taken)) })
        };
        let finished = resumed.await;
        self.finish(finished).await
    }

    async fn finish(&self, finished: std::io::Result<Finished>) -> Finished {
        let finished = finished.unwrap_or_else(|error| Finished {
            verdict: Verdict::Failed { reason: error.to_string() },
            run: None,
        });
        let line = in_a_line(&finished.verdict);
        // Only people and the next prompt read it.
        let _noted = self.off_runtime(move |this| this.note(VERDICT, line.as_bytes())).await;
        finished
    }

    /// Writes one of the daemon's files about this iteration.
    fn note(&self, file: &str, text: &[u8]) -> std::io::Result<()> {
        Dir::open(&self.paths().records)?.write(file, text)
    }

    /// Creates the folders and writes the prompt.
    fn prepare(&self) -> std::io::Result<PathBuf> {
        let made = self.folders.create_iteration(&self.task)?;
        made.folder.write(PROMPT, self.prompt().as_bytes())?;
        self.folders.hand_over(&made.path)?;
        Ok(self.paths().folder.join(PROMPT))
    }

    async fn attempt(&self, mut orders: OrderReceiver) -> std::io::Result<Finished> {
        let prompt = self.off_runtime(Self::prepare).await?;
        let without_run = |verdict| Ok(Finished { verdict, run: None });
        if let Some(reason) = self.worktrees.refusal().filter(|_| self.kind.worktree) {
            return without_run(Verdict::NeedsPerson { reason: reason.to_owned() });
        }
        if self.kind.worktree {
            let place = self.place();
            // Git is ended with the lease, as an agent is.
            tokio::select! {
                made = self.worktrees.ensure(&place) => drop(made?),
                verdict = must_end(&mut orders) => return without_run(verdict),
            }
        }
        let Some(agent) = &self.kind.run else {
            return without_run(Verdict::NeedsPerson {
                reason: "nothing is configured to run this kind".to_owned(),
            });
        };
        // What is ordered from here on is passed on to the shim.
        let told = orders.latest();
        if told.end.is_some() {
            return without_run(Verdict::Stopped);
        }
        let mut steps = vec![self.step(agent, &prompt, OUTPUT)];
        steps.extend(self.kind.validate.as_ref().map(|validate| self.step(validate, &prompt, VALIDATION)));
        let paths = self.paths();
        let run = Run {
            marker: record::marker(),
            lease: self.lease.to_string(),
            scope: self.scope.clone(),
            iteration: Some(self.number()),
            folder: paths.workplace.clone(),
            steps,
            exit: Some(paths.records.join("exit.json")),
            until: told.until,
            user: self.folders.agents.as_ref().map(|agents| agents.ids()),
            started: BootTime::now(),
        };
        let (shims, variables) = (Arc::clone(&self.shims), self.variables(&prompt));
        // Without a time limit: a run that was begun must be followed.
        let started = tokio::task::spawn_blocking(move || shims.start(run, variables, None)).await;
        let (record, line) = started.map_err(std::io::Error::other)??;
        let (end, taken) =
            attend::follow(&record, line, orders).await.map_err(|error| match error.kind() {
                ErrorKind::NotFound => {
                    std::io::Error::other("the record of its run was removed while it ran")
                }
                _ => files::at(record.path(), error),
            })?;
        Ok(Finished { verdict: self.judge(end).await, run: Some((record, taken)) })
    }

    /// What an end means, once the commits and files that the agent left are looked at.
    async fn judge(&self, end: End) -> Verdict {
        let judged = async {
            if self.kind.worktree {
                self.worktrees.collect(&self.place()).await?;
            }
            self.off_runtime(|this| Ok(this.verdict_on_files(end))).await
        };
        judged.await.unwrap_or_else(|error| Verdict::Failed { reason: error.to_string() })
    }

    fn verdict_on_files(&self, end: End) -> Verdict {
        let verdict = self.verdict(end);
        let Some(removed) = self.removed() else { return verdict };
        match verdict {
            Verdict::Passed => self.not_passed(format!("the agent removed {removed}"), &self.said(OUTPUT)),
            Verdict::NotPassed { why } => {
                self.not_passed(format!("{why}, and the agent removed {removed}"), &self.said(OUTPUT))
            }
            other => other,
        }
    }

    /// The folder that the agent removed, if it removed one.
    fn removed(&self) -> Option<String> {
        let is_gone = |path: &Path| Dir::open(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let paths = self.paths();
        if is_gone(&paths.folder) {
            return Some(format!("its folder {}", paths.folder.display()));
        }
        let is_gone = self.kind.worktree && is_gone(&paths.workplace);
        is_gone.then(|| format!("its worktree {}", paths.workplace.display()))
    }

    /// What an end means.
    fn verdict(&self, end: End) -> Verdict {
        let exit = match end {
            End::Known(exit) => exit,
            End::Lost => return Verdict::Failed { reason: LOST.to_owned() },
            End::NeverBegun => return Verdict::Failed { reason: "its shim could not begin".to_owned() },
        };
        let is_validation = match exit.why {
            Why::CannotStart { .. } => exit.steps.len() == 1,
            _ => exit.steps.len() == 2,
        };
        match exit.why {
            Why::Stopped => Verdict::Stopped,
            Why::LeaseLost => Verdict::LeaseLost,
            Why::ShimStopped => Verdict::Failed { reason: SHIM_STOPPED.to_owned() },
            Why::TimedOut if is_validation => {
                self.not_passed("the validation timed out".to_owned(), &self.said(VALIDATION))
            }
            Why::TimedOut => {
                let secs = self.kind.timeout.unwrap_or_default().as_secs();
                Verdict::Failed { reason: format!("timed out after {secs} s") }
            }
            Why::CannotStart { error } => {
                self.cannot_start(&std::io::Error::from_raw_os_error(error), is_validation)
            }
            Why::Ended => {
                let status = status_of(exit.steps.last().copied().unwrap_or_default());
                if is_validation { self.validated(status) } else { self.agent_ended(status) }
            }
        }
    }

    fn agent_ended(&self, status: ExitStatus) -> Verdict {
        match Meaning::of(status) {
            Meaning::Done => Verdict::Passed,
            Meaning::RateLimited => Verdict::RateLimited { retry_after_secs: self.retry_after() },
            Meaning::NeedsPerson => {
                let said = self.said(OUTPUT);
                let reason = last_line(&said).unwrap_or("the agent asks for a person (exit code 77)");
                Verdict::NeedsPerson { reason: reason.to_owned() }
            }
            Meaning::Failed => {
                self.not_passed(format!("the agent ended with {}", in_words(status)), &self.said(OUTPUT))
            }
        }
    }

    /// How long a limited agent asks to wait: by its output, else by a file among its artifacts.
    fn retry_after(&self) -> Option<u64> {
        let path = format!("{ARTIFACTS}/{}", retry_after::FILE);
        let file = || {
            let folder = Dir::open(&self.paths().folder).ok()?;
            folder.read(&path, self.folders.owner(), retry_after::FILE_BYTES).ok()
        };
        retry_after::in_output(&self.said(OUTPUT)).or_else(|| retry_after::in_file(&file()?))
    }

    fn validated(&self, status: ExitStatus) -> Verdict {
        if status.success() {
            return Verdict::Passed;
        }
        self.not_passed(format!("the validation ended with {}", in_words(status)), &self.said(VALIDATION))
    }

    /// A program that is not there needs a person; anything else may pass.
    fn cannot_start(&self, error: &std::io::Error, is_validation: bool) -> Verdict {
        if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) {
            return Verdict::Failed { reason: error.to_string() };
        }
        let program = match (&self.kind.run, is_validation) {
            (_, true) => "the validation".to_owned(),
            (Some(Program::Argv(words)), _) => format!("'{}'", words.first().map_or("", String::as_str)),
            _ => "the agent".to_owned(),
        };
        // Without its folder, it is not the program that is missing.
        if self.removed().is_some() {
            return Verdict::NotPassed { why: format!("{program} could not be started") };
        }
        Verdict::NeedsPerson { reason: format!("cannot start {program}: {error}") }
    }

    /// The end of what a program printed.
    fn said(&self, file: &str) -> String {
        // A log that is not there costs the next iteration a hint.
        let tail = Dir::open(&self.paths().records)
            .and_then(|records| records.tail(file, Owner::Us, TAIL_BYTES as u64));
        String::from_utf8_lossy(&tail.unwrap_or_else(|_| Vec::new())).into_owned()
    }

    /// Notes what the next iteration should know.
    fn not_passed(&self, why: String, said: &str) -> Verdict {
        self.write_feedback(&why, said);
        Verdict::NotPassed { why }
    }

    /// Notes that an iteration that had passed by itself did not pass after all.
    pub async fn note_refused(&self, why: String) {
        let noted = self.off_runtime(move |this| {
            this.write_feedback(&why, "");
            this.note(VERDICT, format!("{NOT_PASSED}{why}").as_bytes())
        });
        // Only people and the next prompt read it.
        let _noted = noted.await;
    }

    /// Writes down what the next iteration is told.
    fn write_feedback(&self, why: &str, said: &str) {
        let start = said.len().saturating_sub(FEEDBACK_BYTES);
        let start = (start..=said.len()).find(|start| said.is_char_boundary(*start)).unwrap_or(said.len());
        // A missing note costs the agent a hint, not the loop its turn.
        let _noted = self.note(FEEDBACK, format!("{why}\n\n{}", &said[start..]).as_bytes());
    }

    fn step(&self, program: &Program, prompt: &Path, output: &str) -> Step {
        let artifacts = self.paths().folder.join(ARTIFACTS);
        let replaced = |word: &String| -> OsString {
            let mut word = word.replace("{task}", self.task.id.as_str());
            for (name, path) in [("{prompt}", prompt), ("{artifacts}", artifacts.as_path())] {
                word = word.replace(name, &path.to_string_lossy());
            }
            word.into()
        };
        let argv = match program {
            Program::Argv(words) => words.iter().map(replaced).collect(),
            Program::Shell(line) => vec!["/bin/sh".into(), "-c".into(), line.into()],
        };
        let timeout = self.kind.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        Step {
            argv,
            output: Some(self.paths().records.join(output)),
            output_bytes: OUTPUT_BYTES,
            timeout_ms: timeout,
        }
    }

    /// All that the agent and the validation see.
    fn variables(&self, prompt: &Path) -> Environment {
        let mut environment = environment::passed(&self.kind.pass_env, rota_store::environment::vars_os());
        if let Some(agents) = &self.folders.agents {
            let own = [("HOME", agents.home.as_os_str()), ("USER", agents.name.as_ref())];
            environment.extend(own.map(|(name, value)| (name.into(), value.to_owned())));
        }
        environment.extend(self.kind.env.iter().map(|(name, value)| (name.into(), value.into())));
        environment.extend(self.environment.clone());
        for (name, value) in [
            ("ROTA_TASK", OsString::from(self.task.id.as_str())),
            ("ROTA_LEASE", self.lease.to_string().into()),
            ("ROTA_ITERATION", self.number().to_string().into()),
            ("ROTA_ARTIFACTS", self.paths().folder.join(ARTIFACTS).into_os_string()),
            ("ROTA_PROMPT", prompt.as_os_str().to_owned()),
        ] {
            environment.insert(name.into(), value);
        }
        environment
    }

    fn prompt(&self) -> String {
        let first = self.number().saturating_sub(PROGRESS_LINES).max(1);
        let place = self.place();
        let read = |number: u32, file: &str| {
            let records = Dir::open(&self.folders.records(&place, number)).ok()?;
            String::from_utf8(records.read(file, Owner::Us, NOTE_BYTES).ok()?).ok()
        };
        let earlier: Vec<Earlier> = (first..self.number())
            .filter_map(|number| Some(Earlier { number, verdict: read(number, VERDICT)? }))
            .collect();
        let feedback = last_not_passed(&earlier).and_then(|number| Some((number, read(number, FEEDBACK)?)));
        let background = Background { earlier, started_over: self.started_over.clone(), feedback };
        prompt::text(&self.task, self.kind.max_iterations, &background)
    }
}

/// Waits until the run is ordered to end, or its lease is about to.
async fn must_end(orders: &mut OrderReceiver) -> Verdict {
    loop {
        let told = orders.latest();
        let left = BootTime::now().until(told.until.stop_at);
        if told.end.is_some() {
            return Verdict::Stopped;
        }
        if left.is_zero() {
            return Verdict::LeaseLost;
        }
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            changed = orders.changed() => {
                if changed.is_err() {
                    return Verdict::Stopped;
                }
            }
        }
    }
}

/// The iteration whose feedback still counts: the last that did not pass, unless a later one passed. Those that ended
/// without a verdict say nothing about it.
fn last_not_passed(earlier: &[Earlier]) -> Option<u32> {
    let judged = |iteration: &&Earlier| iteration.is_not_passed() || iteration.verdict == PASSED;
    earlier.iter().rev().find(judged).filter(|last| last.is_not_passed()).map(|last| last.number)
}

impl Earlier {
    fn is_not_passed(&self) -> bool {
        self.verdict.starts_with(NOT_PASSED)
    }
}

/// How the line of a passed iteration reads.
const PASSED: &str = "passed";
/// How the line of an iteration that did not pass begins.
const NOT_PASSED: &str = "not passed: ";

/// For people, and for the next prompt.
pub fn in_a_line(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Passed => PASSED.to_owned(),
        Verdict::NotPassed { why } => format!("{NOT_PASSED}{why}"),
        Verdict::RateLimited { .. } => "rate limited".to_owned(),
        Verdict::NeedsPerson { reason } => format!("needs a person: {reason}"),
        Verdict::Failed { reason } => format!("failed: {reason}"),
        Verdict::Stopped => "stopped".to_owned(),
        Verdict::LeaseLost => "ended with its lease".to_owned(),
    }
}
