//! The commands that run others.
#![allow(rustdoc::invalid_html_tags, reason = "the comments are the help text")]

use clap::Args;

/// Claims a task, runs CMD with the task as markdown on its input and ROTA_TASK, ROTA_LEASE, ROTA_AGENT, ROTA_QUEUE,
/// ROTA_SCOPE and ROTA_STORE in its environment, renews the lease while it runs, settles by its exit code, and goes on.
///
/// Exit code 0 is done (the last line of output is the result if it is a JSON object), 75 is rate limited (tried again
/// later, nothing counted), 77 parks the task for a person, anything else is a failure. TERM, INT or HUP is passed on to
/// the commands as TERM, and their tasks go back; a second one kills.
///
/// Commands see PATH, HOME, USER, SHELL, LANG, LC_*, TERM, TMPDIR and TZ of the environment, or what `work: {pass_env: […]}`
/// in rota.yml lists, and what --pass-env adds. Keys of model providers are not among them.
///
/// Example: rota work --jobs 4 --until-empty -- ./agent.sh
#[derive(Args, Debug)]
pub struct WorkArgs {
    /// Take tasks of this queue
    #[arg(long, value_name = "QUEUE", default_value = "tasks")]
    pub queue: String,
    /// Commands at once
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true)]
    pub jobs: String,
    /// Park a task that failed so often here (default: 3 where the queue's policy has no maxAttempts); 0 for never
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub give_up: Option<String>,
    /// End when nothing is left to claim, and nothing that was tried here waits for its next try
    #[arg(long)]
    pub until_empty: bool,
    /// Give commands no token of the gateway, though one runs here
    #[arg(long)]
    pub no_gateway: bool,
    /// Pass this variable on to commands, besides those of `work: {pass_env: […]}` in rota.yml
    #[arg(long, value_name = "NAME")]
    pub pass_env: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

/// Runs the loops of queue `loops`: chooses by score, runs the agent that rota.yml names for the kind, validates, iterates
/// with feedback, and adds the children that an iteration leaves in artifacts/children.jsonl.
///
/// The first TERM or INT stops it: no new starts, agents are asked to end and after 10 s killed, their tasks go back. The
/// second kills at once. HUP, `rota reload` and a changed rota.yml are picked up while it runs. On a terminal it shows what
/// happens; elsewhere it writes a line per event to stderr, from the level of ROTA_LOG (debug, info, warn).
///
/// Each agent runs under a shim of its own. A rota up that was killed leaves them running; the next one goes on with them,
/// and without one each ends by itself before its lease does.
///
/// Example: rota up --until-idle
#[derive(Args, Debug)]
pub struct UpArgs {
    /// Begin what can begin now, and end when that has ended
    #[arg(long)]
    pub once: bool,
    /// End when nothing is left that could run; exit code 1 if anything failed or is parked
    #[arg(long)]
    pub until_idle: bool,
    /// On PostgreSQL: publish what rota.yml says about the policy (on SQLite that is always done)
    #[arg(long)]
    pub publish: bool,
    /// Run the supervisor too, as the section `supervisor` of rota.yml says; its lines go to .rota/run/supervise.log
    #[arg(long)]
    pub supervise: bool,
    /// Serve no HTTP API; the listener stays open for agents with a lease token
    #[arg(long)]
    pub no_serve: bool,
    /// Run no gateway, though rota.yml has a section for it
    #[arg(long)]
    pub no_gateway: bool,
}

#[derive(Args, Debug)]
pub struct DownArgs {
    /// Kill the agents instead of asking them
    #[arg(long)]
    pub kill: bool,
}
