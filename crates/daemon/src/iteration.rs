//! One iteration of a loop: a fresh folder, the agent and the validation under a shim, a verdict. Knows nothing of the
//! store.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;

use rota_core::{LeaseId, Task};
use tokio::sync::watch;

use crate::config::{LoopKind, Program};
use crate::folders::{Folders, numbered};
use crate::prompt::{self, Earlier};
use crate::runner::environment::{self, Environment};
use crate::runner::output::{last_line, tail};
use crate::runner::process::{Meaning, in_words, status_of};
use crate::shim::attend::{self, End, Shims};
use crate::shim::orders::Orders;
use crate::shim::record::{self, Run, RunRecord, Step, Unattended, Why};
use crate::worktree;

/// How much output of one program is kept.
const OUTPUT_BYTES: u64 = 64 * 1_024 * 1_024;
/// How much of it the next iteration is told.
const FEEDBACK_BYTES: usize = 8 * 1_024;
/// How many earlier iterations are told of.
const PROGRESS_LINES: u32 = 20;
/// What is said of a run whose shim was killed.
const LOST: &str = "lost: its shim was killed, and what it left behind was ended";

/// What an agent prints.
pub const OUTPUT: &str = "output.log";
/// What the validation prints.
pub const VALIDATION: &str = "validate.log";
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
    RateLimited,
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

    fn folder(&self) -> PathBuf {
        self.folders.of_iteration(&self.task.id, self.number())
    }

    /// Where the agent leaves what others need.
    pub fn artifacts(&self) -> PathBuf {
        self.folder().join("artifacts")
    }

    /// The same, from the loop's folder.
    pub fn artifacts_from_loop(&self) -> String {
        format!("iterations/{}/artifacts", numbered(self.number()))
    }

    /// Runs it to its end. Trouble with files is a failure of this loop and of no other.
    pub async fn run(&self, orders: watch::Receiver<Orders>) -> Finished {
        let finished = self.attempt(orders).await;
        self.finish(finished)
    }

    /// Goes on with a run that another daemon began.
    pub async fn resume(&self, record: RunRecord, orders: watch::Receiver<Orders>) -> Finished {
        let resumed = async {
            let (end, taken) = attend::adopt(&record, orders).await?;
            let verdict = match end {
                End::NeverBegun => Verdict::Stopped,
                end => self.verdict(end),
            };
            Ok(Finished { verdict, run: Some((record, taken)) })
        };
        let finished = resumed.await;
        self.finish(finished)
    }

    fn finish(&self, finished: std::io::Result<Finished>) -> Finished {
        let finished = finished.unwrap_or_else(|error| Finished {
            verdict: Verdict::Failed { reason: error.to_string() },
            run: None,
        });
        // Only people and the next prompt read it.
        let _noted = std::fs::write(self.folder().join(VERDICT), in_a_line(&finished.verdict));
        finished
    }

    async fn attempt(&self, mut orders: watch::Receiver<Orders>) -> std::io::Result<Finished> {
        let folder = self.folder();
        let named = |error: std::io::Error| std::io::Error::other(format!("{}: {error}", folder.display()));
        std::fs::create_dir_all(self.artifacts()).map_err(named)?;
        let prompt = folder.join("prompt.md");
        std::fs::write(&prompt, self.prompt()).map_err(named)?;
        let workplace = if self.kind.worktree {
            worktree::ensure(&self.folders, &self.task.id).await?
        } else {
            self.folders.workspace.clone()
        };
        let without_run = |verdict| Ok(Finished { verdict, run: None });
        let Some(agent) = &self.kind.run else {
            return without_run(Verdict::NeedsPerson {
                reason: "nothing is configured to run this kind".to_owned(),
            });
        };
        // What is ordered from here on is passed on to the shim.
        let told = *orders.borrow_and_update();
        if told.end.is_some() {
            return without_run(Verdict::Stopped);
        }
        let mut steps = vec![self.step(agent, &prompt, OUTPUT)];
        steps.extend(self.kind.validate.as_ref().map(|validate| self.step(validate, &prompt, VALIDATION)));
        let run = Run {
            marker: record::marker(),
            lease: self.lease.to_string(),
            scope: self.scope.clone(),
            iteration: Some(self.number()),
            folder: workplace,
            steps,
            exit: Some(folder.join("exit.json")),
            until: told.until,
        };
        let (record, line) = self.shims.start(run, self.variables(&prompt), None)?;
        let (end, taken) = attend::follow(&record, line, orders).await?;
        Ok(Finished { verdict: self.verdict(end), run: Some((record, taken)) })
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
            Meaning::RateLimited => Verdict::RateLimited,
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
        Verdict::NeedsPerson { reason: format!("cannot start {program}: {error}") }
    }

    /// The end of what a program printed.
    fn said(&self, file: &str) -> String {
        // A log that is not there costs the next iteration a hint.
        tail(&self.folder().join(file)).unwrap_or_else(|_| String::new())
    }

    /// Notes what the next iteration should know.
    fn not_passed(&self, why: String, said: &str) -> Verdict {
        self.note_feedback(&why, said);
        Verdict::NotPassed { why }
    }

    /// Writes down what the next iteration is told.
    pub fn note_feedback(&self, why: &str, said: &str) {
        let start = said.len().saturating_sub(FEEDBACK_BYTES);
        let start = (start..=said.len()).find(|start| said.is_char_boundary(*start)).unwrap_or(said.len());
        // A missing note costs the agent a hint, not the loop its turn.
        let _noted = std::fs::write(self.folder().join(FEEDBACK), format!("{why}\n\n{}", &said[start..]));
    }

    fn step(&self, program: &Program, prompt: &Path, output: &str) -> Step {
        let artifacts = self.artifacts();
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
            output: Some(self.folder().join(output)),
            output_bytes: OUTPUT_BYTES,
            timeout_ms: timeout,
        }
    }

    /// All that the agent and the validation see.
    fn variables(&self, prompt: &Path) -> Environment {
        let mut environment = environment::passed(&self.kind.pass_env, std::env::vars_os());
        environment.extend(self.kind.env.iter().map(|(name, value)| (name.into(), value.into())));
        environment.extend(self.environment.clone());
        for (name, value) in [
            ("ROTA_TASK", OsString::from(self.task.id.as_str())),
            ("ROTA_LEASE", self.lease.to_string().into()),
            ("ROTA_ITERATION", self.number().to_string().into()),
            ("ROTA_ARTIFACTS", self.artifacts().into_os_string()),
            ("ROTA_PROMPT", prompt.as_os_str().to_owned()),
        ] {
            environment.insert(name.into(), value);
        }
        environment
    }

    fn prompt(&self) -> String {
        let first = self.number().saturating_sub(PROGRESS_LINES).max(1);
        let read = |number: u32, file: &str| {
            std::fs::read_to_string(self.folders.of_iteration(&self.task.id, number).join(file)).ok()
        };
        let earlier: Vec<Earlier> = (first..self.number())
            .filter_map(|number| Some(Earlier { number, verdict: read(number, VERDICT)? }))
            .collect();
        let feedback = (first..self.number()).rev().find_map(|number| read(number, FEEDBACK));
        prompt::text(&self.task, self.kind.max_iterations, &earlier, feedback.as_deref())
    }
}

/// For people, and for the next prompt.
pub fn in_a_line(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Passed => "passed".to_owned(),
        Verdict::NotPassed { why } => format!("not passed: {why}"),
        Verdict::RateLimited => "rate limited".to_owned(),
        Verdict::NeedsPerson { reason } => format!("needs a person: {reason}"),
        Verdict::Failed { reason } => format!("failed: {reason}"),
        Verdict::Stopped => "stopped".to_owned(),
        Verdict::LeaseLost => "ended with its lease".to_owned(),
    }
}
