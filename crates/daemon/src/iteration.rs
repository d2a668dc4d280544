//! One iteration of a loop: a fresh folder, the agent, the validation, a verdict. Knows nothing of the store.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rota_core::{LeaseId, Task};
use tokio::net::unix::pipe;
use tokio::sync::watch;

use crate::config::{LoopKind, Program};
use crate::folders::{Folders, numbered};
use crate::prompt::{self, Earlier};
use crate::runner::environment::{self, Environment};
use crate::runner::output::{Capped, drain, last_line};
use crate::runner::process::{Ended, Launch, Meaning, in_words};
use crate::runner::terminate::Urgency;
use crate::worktree;

/// How much output of one program is kept.
const OUTPUT_BYTES: u64 = 64 * 1_024 * 1_024;
/// How much of it the next iteration is told.
const FEEDBACK_BYTES: usize = 8 * 1_024;
/// How many earlier iterations are told of.
const PROGRESS_LINES: u32 = 20;
/// How long output is waited for after its program has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What an agent prints.
pub const OUTPUT: &str = "output.log";
/// What the validation prints.
pub const VALIDATION: &str = "validate.log";
const VERDICT: &str = "verdict.txt";
const FEEDBACK: &str = "feedback.txt";

/// What to run.
#[derive(Clone, Debug)]
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
    pub async fn run(&self, mut stop: watch::Receiver<Option<Urgency>>) -> Verdict {
        let verdict = match self.attempt(&mut stop).await {
            Ok(verdict) => verdict,
            Err(error) => Verdict::Failed { reason: error.to_string() },
        };
        // Only people and the next prompt read it.
        let _noted = std::fs::write(self.folder().join(VERDICT), in_a_line(&verdict));
        verdict
    }

    async fn attempt(&self, stop: &mut watch::Receiver<Option<Urgency>>) -> std::io::Result<Verdict> {
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
        let Some(run) = &self.kind.run else {
            return Ok(Verdict::NeedsPerson { reason: "nothing is configured to run this kind".to_owned() });
        };
        let agent = self.launch(run, &prompt, &workplace, self.kind.timeout);
        let (ended, said) = match self.run_program(&agent, OUTPUT, stop).await {
            Ok(ended) => ended,
            Err(error) if cannot_start(&error) => {
                let program =
                    agent.argv.first().map_or(String::new(), |name| name.to_string_lossy().into_owned());
                return Ok(Verdict::NeedsPerson { reason: format!("cannot start '{program}': {error}") });
            }
            Err(error) => return Err(error),
        };
        let status = match ended {
            Ended::Stopped => return Ok(Verdict::Stopped),
            Ended::TimedOut => {
                let secs = self.kind.timeout.unwrap_or_default().as_secs();
                return Ok(Verdict::Failed { reason: format!("timed out after {secs} s") });
            }
            Ended::Exited(status) => status,
        };
        match Meaning::of(status) {
            Meaning::RateLimited => Ok(Verdict::RateLimited),
            Meaning::NeedsPerson => {
                let reason =
                    last_line(&said).unwrap_or("the agent asks for a person (exit code 77)").to_owned();
                Ok(Verdict::NeedsPerson { reason })
            }
            Meaning::Failed => {
                Ok(self.not_passed(format!("the agent ended with {}", in_words(status)), &said))
            }
            Meaning::Done => self.validate(&prompt, &workplace, stop).await,
        }
    }

    async fn validate(
        &self,
        prompt: &Path,
        workplace: &Path,
        stop: &mut watch::Receiver<Option<Urgency>>,
    ) -> std::io::Result<Verdict> {
        let Some(validate) = &self.kind.validate else { return Ok(Verdict::Passed) };
        let launch = self.launch(validate, prompt, workplace, self.kind.timeout);
        let (ended, said) = match self.run_program(&launch, VALIDATION, stop).await {
            Ok(ended) => ended,
            Err(error) if cannot_start(&error) => {
                return Ok(Verdict::NeedsPerson { reason: format!("cannot start the validation: {error}") });
            }
            Err(error) => return Err(error),
        };
        Ok(match ended {
            Ended::Stopped => Verdict::Stopped,
            Ended::TimedOut => self.not_passed("the validation timed out".to_owned(), &said),
            Ended::Exited(status) if status.success() => Verdict::Passed,
            Ended::Exited(status) => {
                self.not_passed(format!("the validation ended with {}", in_words(status)), &said)
            }
        })
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

    fn launch(
        &self,
        program: &Program,
        prompt: &Path,
        workplace: &Path,
        timeout: Option<Duration>,
    ) -> Launch {
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
        let mut environment = environment::passed(&self.kind.pass_env, std::env::vars_os());
        environment.extend(self.kind.env.iter().map(|(name, value)| (name.into(), value.into())));
        environment.extend(self.environment.clone());
        for (name, value) in [
            ("ROTA_TASK", OsString::from(self.task.id.as_str())),
            ("ROTA_LEASE", self.lease.to_string().into()),
            ("ROTA_ITERATION", self.number().to_string().into()),
            ("ROTA_ARTIFACTS", artifacts.into_os_string()),
            ("ROTA_PROMPT", prompt.as_os_str().to_owned()),
        ] {
            environment.insert(name.into(), value);
        }
        Launch { argv, folder: workplace.to_owned(), environment, timeout }
    }

    /// Runs a program with its output in a file of the iteration; returns the end of it.
    async fn run_program(
        &self,
        launch: &Launch,
        file: &str,
        stop: &mut watch::Receiver<Option<Urgency>>,
    ) -> std::io::Result<(Ended, String)> {
        let mut kept = Capped::new(File::create(self.folder().join(file))?, OUTPUT_BYTES);
        let (reader, writer) = std::io::pipe()?;
        let mut child = launch.start(Stdio::null(), writer.try_clone()?.into(), writer.into())?;
        let reader = pipe::Receiver::from_owned_fd(reader.into())?;
        let mut trouble = None;
        let ended = {
            // A full disk must not fill the pipe and stop the agent: the rest is read and left out.
            let reading = drain(reader, |bytes| {
                if trouble.is_none() {
                    trouble = kept.take(bytes).err();
                }
                Ok(())
            });
            tokio::pin!(reading);
            let waiting = launch.wait(&mut child, stop);
            tokio::pin!(waiting);
            let mut is_read = false;
            let ended = loop {
                tokio::select! {
                    ended = &mut waiting => break ended?,
                    _ = &mut reading, if !is_read => is_read = true,
                }
            };
            if !is_read {
                // Something that was left behind may hold the pipe open.
                let _read = tokio::time::timeout(LAST_WORDS, reading).await;
            }
            ended
        };
        let tail = kept.finish().unwrap_or_default();
        Ok((ended, tail))
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

fn cannot_start(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied)
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
    }
}
