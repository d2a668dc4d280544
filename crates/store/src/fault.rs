//! The world failed: a disk is full, a file is no database, a server is away. Never mixed with a [`Refusal`].

use std::path::PathBuf;

use rota_core::{Refusal, UnixMillis};

/// What went wrong outside of Rota. The text names the thing and, where there is one, what to do.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Others kept the store busy for the whole waiting time.
    #[error("the store at {place} stayed busy for {waited_secs} s")]
    Busy {
        /// Which store.
        place: String,
        /// How long we waited.
        waited_secs: u64,
    },
    /// The path is a folder.
    #[error("the database {} is a directory", path.display())]
    IsDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The system does not let us.
    #[error("no permission for {}: {problem}", path.display())]
    Forbidden {
        /// The path.
        path: PathBuf,
        /// What the system says.
        problem: String,
    },
    /// The database can be read, not written.
    #[error("the database {} is read-only", path.display())]
    ReadOnly {
        /// The path.
        path: PathBuf,
    },
    /// No space left.
    #[error("no space left for {}: nothing was written", path.display())]
    Full {
        /// The path.
        path: PathBuf,
    },
    /// Damaged, or no SQLite database at all.
    #[error("{} is damaged or not a SQLite database: {problem}", path.display())]
    Corrupt {
        /// The path.
        path: PathBuf,
        /// What SQLite says.
        problem: String,
    },
    /// The database is gone while files that belong to it are still there.
    #[error(
        "the database {} is missing although {} is there, so it was deleted or moved: restore it, or delete the \
         files beside it (-wal, -shm, -turn) to start with an empty store",
        path.display(), beside.display()
    )]
    Missing {
        /// The path.
        path: PathBuf,
        /// The file that shows that there was a database.
        beside: PathBuf,
    },
    /// The path no longer leads to the file that this process has open.
    #[error(
        "{} was {how} while this process had the database {} open; nothing was written: put the file back or \
         restore a backup, then restart every rota process that uses it",
        file.display(), path.display()
    )]
    Displaced {
        /// The database.
        path: PathBuf,
        /// The file that is not the one that was opened: the database, its log, or the log's index.
        file: PathBuf,
        /// `removed` or `replaced`.
        how: &'static str,
    },
    /// SQLite keeps a separate log for each name of a file, so two names lose data.
    #[error(
        "the database {} has {links} hard links, and using it under two names loses data: remove the other names \
         (find them with `find DIR -samefile {}`)",
        path.display(), path.display()
    )]
    Linked {
        /// The path.
        path: PathBuf,
        /// How many names the file has.
        links: u64,
    },
    /// The host's clock is far behind the newest entry.
    #[error(
        "the newest entry of {} was written at {newest}, but this host's clock says {host}; nothing was written: \
         correct the clock or, if the entry's time is wrong, run `rota doctor --accept-clock`",
        path.display()
    )]
    ClockBehind {
        /// The path.
        path: PathBuf,
        /// The newest time that was written by a clock.
        newest: UnixMillis,
        /// What the host's clock says.
        host: UnixMillis,
    },
    /// A read that kept SQLite's log from being reset until the log was too long.
    #[error(
        "reading {} took so long that the database's log grew past its limit; the read was ended: try again, or \
         when fewer processes write",
        path.display()
    )]
    LongRead {
        /// The path.
        path: PathBuf,
    },
    /// A SQLite database of another program.
    #[error("{} is a SQLite database, but not one of Rota's", path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
    },
    /// Written by a newer Rota.
    #[error("{} has schema {found}, this rota knows up to {known}: use a newer rota", path.display())]
    TooNew {
        /// The path.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest one known here.
        known: i64,
    },
    /// Written by a build from before the first release.
    #[error(
        "{place} has schema {found} of an earlier build, this rota needs {known}: export with the old binary, import \
         with this one (`rota export`, then `rota import` into a new store)"
    )]
    TooOld {
        /// Which store.
        place: String,
        /// Its schema.
        found: i64,
        /// The one needed here.
        known: i64,
    },
    /// SQLite does not work on network file systems.
    #[error(
        "{} is on a network file system ({kind}), where SQLite loses data: use PostgreSQL (--store postgres://…) \
         or a local path, or set ROTA_ALLOW_NETWORK_FS=1 if only one host ever opens it",
        path.display()
    )]
    NetworkFileSystem {
        /// The path.
        path: PathBuf,
        /// Which one.
        kind: &'static str,
    },
    /// Another failure of the file system.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A stored policy that cannot be read. Whatever would decide by it stops.
    #[error(
        "the published policy of scope '{scope}' cannot be read ({problem}): publish one with `rota policy apply`"
    )]
    UnreadablePolicy {
        /// The scope.
        scope: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A stored value that Rota cannot have written.
    #[error("the store holds a value that cannot be read: {problem} (try `rota doctor`)")]
    Unreadable {
        /// What and where.
        problem: String,
    },
    /// The SQLite library is older than the oldest safe one.
    #[error("SQLite {found} is older than 3.51.3 and can damage its log: build rota with its bundled SQLite")]
    OldSqlite {
        /// Its version.
        found: &'static str,
    },
    /// The server cannot be reached, or went away.
    #[error("{place} is away: {problem}")]
    Away {
        /// Which server.
        place: String,
        /// What was heard last.
        problem: String,
    },
    /// Another transaction was first, again and again.
    #[error("{place}: others kept being first: {problem}")]
    LostRace {
        /// Which server.
        place: String,
        /// What the server says.
        problem: String,
    },
    /// The connection was lost while the outcome was on its way, and it could not be found out afterwards.
    #[error("{place}: whether it was done is not known, so look before you repeat it: {problem}")]
    OutcomeUnknown {
        /// Which server.
        place: String,
        /// What was heard last.
        problem: String,
    },
    /// The server is not the one we were told to trust, or does not encrypt as we were told to demand.
    #[error("{place} cannot be trusted: {problem}")]
    Untrusted {
        /// Which server.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The URL of a store cannot be read.
    #[error("the store's URL cannot be used: {problem}")]
    BadUrl {
        /// What is wrong with it; never a password.
        problem: String,
    },
    /// The schema is not current, and this role may not change it.
    #[error(
        "{place}: schema '{name}' is at {found}, this rota needs {known}, and this role may not change it: run \
         `rota migrate --store postgres://… --grant-to ROLE` with a role that may"
    )]
    MayNotMigrate {
        /// Which server.
        place: String,
        /// Which schema.
        name: String,
        /// Where it stands.
        found: i64,
        /// Where it should.
        known: i64,
    },
    /// Anything else PostgreSQL reports.
    #[error("{place}: {problem}")]
    Postgres {
        /// Which server.
        place: String,
        /// What the server says.
        problem: String,
    },
    /// Anything else SQLite reports.
    #[error("{}: {source}", path.display())]
    Sqlite {
        /// The path.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
}

impl Fault {
    /// 75 for what may pass by itself, else 1.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Busy { .. }
            | Self::Away { .. }
            | Self::LostRace { .. }
            | Self::OutcomeUnknown { .. }
            | Self::ClockBehind { .. }
            | Self::LongRead { .. } => 75,
            _ => 1,
        }
    }

    /// A stable word for scripts and the error pages.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "store_busy",
            Self::IsDirectory { .. } => "store_is_directory",
            Self::Forbidden { .. } => "store_forbidden",
            Self::ReadOnly { .. } => "store_read_only",
            Self::Full { .. } => "store_full",
            Self::Corrupt { .. } => "store_corrupt",
            Self::Missing { .. } => "store_missing",
            Self::Displaced { .. } => "store_displaced",
            Self::Linked { .. } => "store_linked",
            Self::ClockBehind { .. } => "store_clock_behind",
            Self::LongRead { .. } => "store_read_ended",
            Self::Foreign { .. } => "store_foreign",
            Self::TooNew { .. } => "store_too_new",
            Self::TooOld { .. } => "store_too_old",
            Self::NetworkFileSystem { .. } => "store_on_network",
            Self::Io { .. } => "store_io",
            Self::UnreadablePolicy { .. } => "policy_unreadable",
            Self::Unreadable { .. } => "store_unreadable",
            Self::OldSqlite { .. } => "sqlite_too_old",
            Self::Away { .. } => "store_away",
            Self::LostRace { .. } => "store_contended",
            Self::OutcomeUnknown { .. } => "store_outcome_unknown",
            Self::Untrusted { .. } => "store_untrusted",
            Self::BadUrl { .. } => "store_bad_url",
            Self::MayNotMigrate { .. } => "store_may_not_migrate",
            Self::Postgres { .. } | Self::Sqlite { .. } => "store_failed",
        }
    }
}

/// How a verb on a store can fail: declined, or the world failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Declined; nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The world failed; nothing was changed, unless the fault says that it cannot be known.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// The result of an intent.
pub type Outcome<T> = Result<T, Error>;
