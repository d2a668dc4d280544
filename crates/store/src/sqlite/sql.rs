//! The SQL of this store. Each text has its twin in the other SQL store, under the same name.

use std::sync::LazyLock;

/// Every column of a task, in the order that `row.rs` reads them, and whether any of those is set that most tasks do
/// without: to ask once takes less than to read each.
macro_rules! columns {
    () => {
        "t.seq, t.scope, t.id, q.name, t.kind, t.priority, t.status, t.parent, t.depth, t.triggered_by, \
         t.parent_iteration, t.artifact_present, t.iteration, t.tries, t.attempts, t.limited_in_row, t.fence, \
         t.assignee, t.lease_expires_at, t.next_eligible_at, t.open_since, t.host, t.title, t.description, \
         t.category, t.steps, t.spec_ref, t.reference, t.payload, t.result, t.fail_reason, t.parked_reason, \
         t.created_at, t.updated_at, t.started_at, t.finished_at, t.events, t.open_blockers, t.priority_inherited, \
         t.trigger_hash, t.discovered_from, t.fast_failures, t.filed, \
         coalesce(t.parent, t.triggered_by, t.parent_iteration, t.steps, t.spec_ref, t.reference, t.payload, t.result, \
                  t.fail_reason, t.parked_reason, t.trigger_hash, t.discovered_from) IS NOT NULL"
    };
}

/// `SELECT` the columns of a task, then what follows. Tasks come first whatever the planner has heard of the tables: the
/// order of their index is the order asked for.
macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT ", columns!(), " FROM tasks t CROSS JOIN queues q ON q.key = t.queue ", $rest)
    };
}

/// `SELECT` the columns of a task that may be granted, and whether it has blockers, done or not; then what follows.
macro_rules! select_head {
    ($index:literal, $rest:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            ", EXISTS (SELECT 1 FROM edges e WHERE e.scope = t.scope AND e.task = t.id), t.sort_priority, \
             t.static_score FROM tasks t INDEXED BY ",
            $index,
            " CROSS JOIN queues q ON q.key = t.queue ",
            $rest
        )
    };
}

/// Statements for many tasks or events at once.
pub struct ForMany {
    /// How many at most.
    pub most: usize,
    /// Tasks, by id; the last column says whether one has a parent, dependents or children.
    pub settlement: String,
    /// [`UPDATE_LEASE`] for tasks that move alike; null keeps what is there.
    pub update_leases: String,
    /// Events that have their first seven values in common. A failure ends the transaction anyway, so there is no need
    /// to note how to undo the statement alone.
    pub append: String,
}

impl ForMany {
    /// The smallest that takes so many, or the largest.
    pub fn of(count: usize) -> &'static Self {
        // What is not bound is passed over, but not for nothing.
        static SIZES: LazyLock<[ForMany; 2]> = LazyLock::new(|| [ForMany::new(16), ForMany::new(128)]);
        let [small, large] = &*SIZES;
        if count <= small.most { small } else { large }
    }

    /// Those that search, as in [`SERVED`].
    #[cfg(feature = "test-hooks")]
    pub fn served() -> Vec<(&'static str, &'static str, &'static str)> {
        let of = |many: &'static Self| {
            [
                ("settlement", many.settlement.as_str(), "t sqlite_autoindex_tasks_1 (scope=? AND id=?)"),
                ("update_leases", many.update_leases.as_str(), "tasks PRIMARY KEY (rowid=?)"),
            ]
        };
        [Self::of(1), Self::of(usize::MAX)].into_iter().flat_map(of).collect()
    }

    fn new(most: usize) -> Self {
        let places = |first: usize, count: usize| -> Vec<String> {
            (first..first + count).map(|number| format!("?{number}")).collect()
        };
        let events: Vec<String> =
            (0..most).map(|event| format!("({})", places(8 + 4 * event, 4).join(", "))).collect();
        Self {
            most,
            settlement: format!(
                concat!(
                    "SELECT ",
                    columns!(),
                    ", t.parent IS NOT NULL \
                       OR EXISTS (SELECT 1 FROM edges e WHERE e.scope = ?1 AND e.blocker = t.id) \
                       OR EXISTS (SELECT 1 FROM tasks c WHERE c.scope = ?1 AND c.parent = t.id) \
                     FROM tasks t CROSS JOIN queues q ON q.key = t.queue \
                     WHERE t.scope = ?1 AND t.id IN ({}) ORDER BY t.id"
                ),
                places(2, most).join(", ")
            ),
            update_leases: format!(
                "UPDATE OR ROLLBACK tasks SET status = ?1, fence = fence + ?2, assignee = coalesce(?3, assignee), \
                 lease_expires_at = ?4, result = coalesce(?5, result), updated_at = ?6, \
                 started_at = coalesce(?7, started_at), finished_at = coalesce(?8, finished_at), events = events + 1, \
                 stage = 0 WHERE seq IN ({})",
                places(9, most).join(", ")
            ),
            append: format!(
                "INSERT OR ROLLBACK INTO journal (scope, at, kind, from_status, to_status, actor, policy, task, number, \
                 fence, data) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, column1, column2, column3, column4 \
                 FROM (VALUES {}) WHERE column1 IS NOT NULL",
                events.join(", ")
            ),
        }
    }
}

pub const TASK: &str = select!("WHERE t.scope = ?1 AND t.id = ?2");
/// A task, what is known of its parent, and its blockers: a row for each, or one without. The queue comes last, so that the
/// order of the edges is the order asked for however it is found.
pub const IN_CONTEXT: &str = concat!(
    "SELECT ",
    columns!(),
    ", p.status, p.iteration, b.id, b.title, b.status, b.result \
     FROM tasks t LEFT JOIN tasks p ON p.scope = t.scope AND p.id = t.parent \
     LEFT JOIN edges e ON e.scope = t.scope AND e.task = t.id \
     LEFT JOIN tasks b ON b.scope = e.scope AND b.id = e.blocker CROSS JOIN queues q ON q.key = t.queue \
     WHERE t.scope = ?1 AND t.id = ?2 ORDER BY e.blocker"
);
/// A task that is only looked at, and whether it has blockers, done or not.
pub const TASK_TO_READ: &str = concat!(
    "SELECT ",
    columns!(),
    ", EXISTS (SELECT 1 FROM edges e WHERE e.scope = ?1 AND e.task = ?2) \
     FROM tasks t CROSS JOIN queues q ON q.key = t.queue WHERE t.scope = ?1 AND t.id = ?2"
);
/// A task that is about to change, and whether anybody follows it: a dependent or a child.
pub const TASK_TO_CHANGE: &str = concat!(
    "SELECT ",
    columns!(),
    ", EXISTS (SELECT 1 FROM edges e WHERE e.scope = ?1 AND e.blocker = ?2) \
       OR EXISTS (SELECT 1 FROM tasks c WHERE c.scope = ?1 AND c.parent = ?2) \
     FROM tasks t CROSS JOIN queues q ON q.key = t.queue WHERE t.scope = ?1 AND t.id = ?2"
);
pub const TASK_BY_SEQ: &str = select!("WHERE t.seq = ?1");
/// Sorted after the search: asked for the order of ids, SQLite would walk every id of the scope.
pub const CHILDREN: &str = select!("WHERE t.scope = ?1 AND t.parent = ?2 ORDER BY +t.id");
/// The edges come first, in the order of their index, which is that of the ids.
pub const DEPENDENTS: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM edges e CROSS JOIN tasks t ON t.scope = e.scope AND t.id = e.task \
     CROSS JOIN queues q ON q.key = t.queue WHERE e.scope = ?1 AND e.blocker = ?2 ORDER BY e.task"
);
pub const EXPIRED: &str = select!(
    "WHERE t.queue = ?1 AND t.status = 'active' AND t.lease_expires_at <= ?2 \
     ORDER BY t.lease_expires_at, t.kind, t.seq LIMIT ?3"
);
/// `?3` is a JSON list of states, `?5` one of specs; null for any.
pub const LIST: &str = select!(
    "WHERE t.scope = ?1 AND (?2 IS NULL OR t.queue = ?2) \
       AND (?3 IS NULL OR t.status IN (SELECT value FROM json_each(?3))) \
       AND (?4 IS NULL OR t.assignee = ?4) AND (?6 IS NULL OR t.category = ?6) \
       AND (?5 IS NULL OR t.spec_ref IN (SELECT value FROM json_each(?5)))"
);
/// The same where the specs are known, so that their index serves it.
pub const LIST_SPECS: &str = select!(
    "WHERE t.scope = ?1 AND t.spec_ref IN (SELECT value FROM json_each(?5)) AND (?2 IS NULL OR t.queue = ?2) \
       AND (?3 IS NULL OR t.status IN (SELECT value FROM json_each(?3))) \
       AND (?4 IS NULL OR t.assignee = ?4) AND (?6 IS NULL OR t.category = ?6)"
);
/// The same for what is under way, which has an index of its own.
pub const LIST_ACTIVE: &str = select!(
    "WHERE t.queue = ?2 AND t.status = 'active' AND ?1 = t.scope AND (?4 IS NULL OR t.assignee = ?4) \
       AND (?6 IS NULL OR t.category = ?6) AND (?5 IS NULL OR t.spec_ref IN (SELECT value FROM json_each(?5)))"
);

/// Numbers are sorted before rows are read: there may be a million, and a thousand are wanted.
pub const LIST_UNLEASED: &str = select!(
    "WHERE t.seq IN (SELECT seq FROM tasks WHERE queue = ?1 AND status <> 'deleted' \
         AND (status <> 'active' OR lease_expires_at <= ?2) ORDER BY sort_priority, created_at, seq LIMIT ?3) \
     ORDER BY t.sort_priority, t.created_at, t.seq"
);

/// The head of the first bucket of the most urgent priority after ?2.
pub const FIRST_HEAD: &str = select_head!(
    "tasks_ready",
    "WHERE t.queue = ?1 AND t.stage = 2 AND t.sort_priority > ?2 \
     ORDER BY t.sort_priority, t.kind, t.host, t.static_score, t.created_at, t.seq LIMIT 1"
);
/// The head of the next bucket of a priority after (kind, host, static score). A comparison of rows seeks to the first
/// one that is not less, so the time behind every possible one takes it past the whole bucket instead of through it.
pub const NEXT_HEAD: &str = select_head!(
    "tasks_ready",
    "WHERE t.queue = ?1 AND t.stage = 2 AND t.sort_priority = ?2 \
       AND (t.kind, t.host, t.static_score, t.created_at) > (?3, ?4, ?5, 9223372036854775807) \
     ORDER BY t.kind, t.host, t.static_score, t.created_at, t.seq LIMIT 1"
);
/// The oldest of a bucket. Everything in the index is due, except for a `now` before the one that let it in.
pub const BUCKET_HEADS: &str = select_head!(
    "tasks_ready",
    "WHERE t.queue = ?1 AND t.stage = 2 AND t.sort_priority = ?2 AND t.kind = ?3 AND t.host = ?4 \
       AND t.static_score = ?5 AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= ?6) \
     ORDER BY t.created_at, t.seq LIMIT ?7"
);
/// The same with a filter on category and specs.
pub const BUCKET_HEADS_FILTERED: &str = select_head!(
    "tasks_ready",
    "WHERE t.queue = ?1 AND t.stage = 2 AND t.sort_priority = ?2 AND t.kind = ?3 AND t.host = ?4 \
       AND t.static_score = ?5 AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= ?6) \
       AND (?8 IS NULL OR t.category = ?8) \
       AND (?9 IS NULL OR t.spec_ref IN (SELECT value FROM json_each(?9))) \
     ORDER BY t.created_at, t.seq LIMIT ?7"
);
/// The longest waiting of a kind on a host; `?5` is the guard's limit.
pub const OVERDUE_HEADS: &str = select_head!(
    "tasks_overdue",
    "WHERE t.queue = ?1 AND t.stage = 2 AND t.guarded = 1 AND t.sort_priority = ?2 AND t.kind = ?3 AND t.host = ?4 \
       AND t.ready_at < ?5 AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= ?6) \
       AND (?8 IS NULL OR t.category = ?8) \
       AND (?9 IS NULL OR t.spec_ref IN (SELECT value FROM json_each(?9))) \
     ORDER BY t.ready_at, t.created_at, t.seq LIMIT ?7"
);
/// Whether anything has cooled down. Asked first: letting in needs a table on the side, and each one costs as much as
/// the rest of a claim.
pub const ANY_DUE: &str = "SELECT 1 FROM tasks INDEXED BY tasks_cooling \
     WHERE queue = ?1 AND stage = 1 AND next_eligible_at <= ?2 LIMIT 1";
/// Lets in what has cooled down.
pub const PROMOTE_DUE: &str = "UPDATE tasks SET stage = 2 WHERE seq IN (SELECT seq FROM tasks INDEXED BY tasks_cooling \
     WHERE queue = ?1 AND stage = 1 AND next_eligible_at <= ?2 ORDER BY next_eligible_at LIMIT ?3)";
pub const AWAITING_ARTIFACT: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks t INDEXED BY tasks_awaiting CROSS JOIN queues q ON q.key = t.queue WHERE t.queue = ?1 \
     AND t.status = 'open' AND t.triggered_by IS NOT NULL AND t.artifact_present = 0 AND t.seq > ?2 \
     ORDER BY t.seq LIMIT ?3"
);
pub const READY_COUNT: &str =
    "SELECT count(*) FROM tasks INDEXED BY tasks_ready WHERE queue = ?1 AND stage = 2";
pub const DUE_COUNT: &str = "SELECT count(*) FROM tasks INDEXED BY tasks_cooling \
     WHERE queue = ?1 AND stage = 1 AND next_eligible_at <= ?2";
pub const NEXT_DUE: &str = "SELECT next_eligible_at FROM tasks INDEXED BY tasks_cooling \
     WHERE queue = ?1 AND stage = 1 ORDER BY next_eligible_at LIMIT 1";
pub const ACTIVE_BY_KIND: &str = "SELECT kind, count(*) FROM tasks INDEXED BY tasks_active \
     WHERE queue = ?1 AND status = 'active' GROUP BY kind";
pub const RANK_READY: &str = "SELECT seq, sort_priority, static_score, created_at, ready_at FROM tasks \
     WHERE queue = ?1 AND stage = 2 AND (next_eligible_at IS NULL OR next_eligible_at <= ?2)";
pub const RANK_DUE: &str = "SELECT seq, sort_priority, static_score, created_at, ready_at FROM tasks \
     INDEXED BY tasks_cooling WHERE queue = ?1 AND stage = 1 AND next_eligible_at <= ?2";

pub const INSERT: &str = "INSERT INTO tasks (scope, id, queue, kind, priority, parent, depth, triggered_by, \
     parent_iteration, host, title, description, category, steps, spec_ref, reference, payload, sort_priority, \
     created_at, priority_inherited, trigger_hash, discovered_from, status, artifact_present, iteration, tries, \
     attempts, limited_in_row, fence, assignee, lease_expires_at, next_eligible_at, open_since, result, fail_reason, \
     parked_reason, updated_at, started_at, finished_at, events, open_blockers, stage, static_score, ready_at, \
     guarded, fast_failures, filed) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
     ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40, ?41, ?42, \
     ?43, ?44, ?45, ?46, ?47)";
/// The part of a task that a lease moves; `seq` last.
pub const UPDATE_STATE: &str = "UPDATE tasks SET status = ?1, artifact_present = ?2, iteration = ?3, tries = ?4, \
     attempts = ?5, limited_in_row = ?6, fence = ?7, assignee = ?8, lease_expires_at = ?9, next_eligible_at = ?10, \
     open_since = ?11, result = ?12, fail_reason = ?13, parked_reason = ?14, updated_at = ?15, started_at = ?16, \
     finished_at = ?17, events = ?18, open_blockers = ?19, stage = ?20, static_score = ?21, ready_at = ?22, \
     guarded = ?23, fast_failures = ?24, filed = ?25 WHERE seq = ?26";
/// The part that granting and finishing move. What only counts for a task that waits is written when it waits again.
pub const UPDATE_LEASE: &str = "UPDATE tasks SET status = ?2, fence = ?3, assignee = ?4, lease_expires_at = ?5, \
     result = ?6, updated_at = ?7, started_at = ?8, finished_at = ?9, events = ?10, open_blockers = ?11, stage = 0 \
     WHERE seq = ?1";
/// The part that an edit changes; `seq` last.
pub const UPDATE_FIELDS: &str = "UPDATE tasks SET kind = ?1, priority = ?2, parent = ?3, depth = ?4, \
     triggered_by = ?5, parent_iteration = ?6, host = ?7, title = ?8, description = ?9, category = ?10, steps = ?11, \
     spec_ref = ?12, reference = ?13, payload = ?14, sort_priority = ?15, created_at = ?16, priority_inherited = ?17, \
     trigger_hash = ?18, discovered_from = ?19 WHERE seq = ?20";

pub const COUNT: &str = "SELECT status, open_blockers > 0, count(*) FROM tasks WHERE queue = ?1 \
     AND (?2 IS NULL OR category = ?2) AND (?3 IS NULL OR spec_ref IN (SELECT value FROM json_each(?3))) \
     GROUP BY 1, 2";
pub const SPECS: &str =
    "SELECT DISTINCT spec_ref FROM tasks WHERE scope = ?1 AND spec_ref IS NOT NULL ORDER BY spec_ref";

pub const QUEUE: &str = "SELECT key, name, paused FROM queues WHERE scope = ?1 AND name = ?2";
pub const QUEUES: &str = "SELECT key, name, paused FROM queues WHERE scope = ?1 ORDER BY name";
pub const ADD_QUEUE: &str = "INSERT INTO queues (scope, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
pub const PAUSE_QUEUE: &str = "UPDATE queues SET paused = ?2 WHERE key = ?1";

pub const BLOCKERS: &str = "SELECT t.id, t.title, t.status, t.result FROM edges e \
     CROSS JOIN tasks t ON t.scope = e.scope AND t.id = e.blocker WHERE e.scope = ?1 AND e.task = ?2 \
     ORDER BY e.blocker";
pub const EDGES: &str = "SELECT task, blocker FROM edges WHERE scope = ?1 AND task = ?2 ORDER BY blocker";
pub const ADD_EDGE: &str =
    "INSERT INTO edges (scope, task, blocker) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
pub const REMOVE_EDGE: &str = "DELETE FROM edges WHERE scope = ?1 AND task = ?2 AND blocker = ?3";
pub const HAS_DEPENDENTS: &str = "SELECT 1 FROM edges WHERE scope = ?1 AND blocker = ?2 LIMIT 1";
pub const SHIFT_DEPENDENTS: &str = "UPDATE tasks SET open_blockers = open_blockers + ?3 WHERE scope = ?1 \
     AND id IN (SELECT task FROM edges WHERE scope = ?1 AND blocker = ?2)";

pub const APPEND: &str = "INSERT INTO journal (scope, at, kind, from_status, to_status, actor, policy, task, number, \
     fence, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
/// An event with its own number, which comes last.
pub const RESTORE_EVENT: &str = "INSERT INTO journal (scope, at, kind, from_status, to_status, actor, policy, task, \
     number, fence, data, seq) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
pub const EVENTS: &str = "SELECT seq, scope, task, number, at, kind, from_status, to_status, actor, fence, policy, \
     data FROM journal WHERE scope = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
pub const EVENTS_NEWEST: &str = "SELECT seq, scope, task, number, at, kind, from_status, to_status, actor, fence, \
     policy, data FROM journal WHERE scope = ?1 AND seq > ?2 ORDER BY seq DESC LIMIT ?3";
pub const TASK_EVENTS: &str = "SELECT seq, scope, task, number, at, kind, from_status, to_status, actor, fence, \
     policy, data FROM journal WHERE scope = ?1 AND seq > ?2 AND task = ?4 ORDER BY number LIMIT ?3";
pub const TASK_EVENTS_NEWEST: &str = "SELECT seq, scope, task, number, at, kind, from_status, to_status, actor, \
     fence, policy, data FROM journal WHERE scope = ?1 AND seq > ?2 AND task = ?4 ORDER BY number DESC LIMIT ?3";

pub const POLICY_VERSION: &str = "SELECT version FROM policies WHERE scope = ?1 ORDER BY number DESC LIMIT 1";
pub const POLICIES: &str = "SELECT number, version, document, published_at, actor FROM policies \
     WHERE scope = ?1 ORDER BY number";
pub const ADD_POLICY: &str = "INSERT INTO policies (scope, number, version, document, published_at, actor) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

pub const ADD_AGENT: &str = "INSERT INTO agents (scope, id, pid, host, started_at, stopped_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
pub const AGENT: &str =
    "SELECT id, pid, host, started_at, stopped_at FROM agents WHERE scope = ?1 AND id = ?2";
pub const AGENTS: &str = "SELECT id, pid, host, started_at, stopped_at FROM agents WHERE scope = ?1 \
     ORDER BY started_at DESC, id";
pub const STOP_AGENT: &str = "UPDATE agents SET stopped_at = ?3 WHERE scope = ?1 AND id = ?2";

pub const BLOCK: &str =
    "SELECT upstream, blocked_until, hits, reason, updated_at FROM blocks WHERE upstream = ?1";
pub const SET_BLOCK: &str = "INSERT INTO blocks (upstream, blocked_until, hits, reason, updated_at) \
     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (upstream) DO UPDATE SET blocked_until = excluded.blocked_until, \
     hits = excluded.hits, reason = excluded.reason, updated_at = excluded.updated_at";

/// Sums stay at the largest figure: the store could not keep a larger one.
pub const ADD_USAGE: &str = "INSERT INTO usage (scope, task, day, upstream, model, requests, input_tokens, \
     output_tokens, cache_read_tokens, wait_ms, spend_nanos) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
     ON CONFLICT (scope, task, day, upstream, model) DO UPDATE SET \
     requests = excluded.requests + MIN(usage.requests, 9223372036854775807 - excluded.requests), \
     input_tokens = excluded.input_tokens + MIN(usage.input_tokens, 9223372036854775807 - excluded.input_tokens), \
     output_tokens = excluded.output_tokens + MIN(usage.output_tokens, 9223372036854775807 - excluded.output_tokens), \
     cache_read_tokens = excluded.cache_read_tokens + MIN(usage.cache_read_tokens, 9223372036854775807 - excluded.cache_read_tokens), \
     wait_ms = excluded.wait_ms + MIN(usage.wait_ms, 9223372036854775807 - excluded.wait_ms), \
     spend_nanos = excluded.spend_nanos + MIN(usage.spend_nanos, 9223372036854775807 - excluded.spend_nanos)";
pub const USAGE: &str = "SELECT scope, task, day, upstream, model, requests, input_tokens, output_tokens, \
     cache_read_tokens, wait_ms, spend_nanos FROM usage WHERE (?1 IS NULL OR scope = ?1) \
     AND (?2 IS NULL OR task = ?2) AND (?3 IS NULL OR day = ?3) \
     ORDER BY scope, task, day, upstream, model";
pub const ADD_GATE_TOKEN: &str = "INSERT INTO gate_tokens (hash, scope, task, level, made_at, expires_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
pub const GATE_TOKEN: &str =
    "SELECT hash, scope, task, level, made_at, expires_at FROM gate_tokens WHERE hash = ?1";

/// Name, text, and what its plan must say of every table it reads.
#[cfg(feature = "test-hooks")]
pub const SERVED: &[(&str, &str, &str)] = &[
    ("TASK", TASK, "t sqlite_autoindex_tasks_1 (scope=? AND id=?)"),
    ("IN_CONTEXT, the task", IN_CONTEXT, "t sqlite_autoindex_tasks_1 (scope=? AND id=?)"),
    ("IN_CONTEXT, its parent", IN_CONTEXT, "p sqlite_autoindex_tasks_1 (scope=? AND id=?) LEFT-JOIN"),
    ("IN_CONTEXT, its edges", IN_CONTEXT, "e PRIMARY KEY (scope=? AND task=?) LEFT-JOIN"),
    ("IN_CONTEXT, its blockers", IN_CONTEXT, "b sqlite_autoindex_tasks_1 (scope=? AND id=?) LEFT-JOIN"),
    ("TASK_TO_READ", TASK_TO_READ, "t sqlite_autoindex_tasks_1 (scope=? AND id=?)"),
    ("TASK_BY_SEQ", TASK_BY_SEQ, "t PRIMARY KEY (rowid=?)"),
    ("PAGE", PAGE, "t PRIMARY KEY (rowid>?)"),
    ("CHILDREN", CHILDREN, "t tasks_children (scope=? AND parent=?)"),
    ("DEPENDENTS", DEPENDENTS, "e edges_blocker (scope=? AND blocker=?)"),
    ("EXPIRED", EXPIRED, "t tasks_active (queue=? AND lease_expires_at<?)"),
    ("LIST_SPECS", LIST_SPECS, "t tasks_specs (scope=? AND spec_ref=?)"),
    ("LIST_ACTIVE", LIST_ACTIVE, "t tasks_active (queue=?)"),
    ("FIRST_HEAD", FIRST_HEAD, "t tasks_ready (queue=? AND sort_priority>?)"),
    (
        "NEXT_HEAD",
        NEXT_HEAD,
        "t tasks_ready (queue=? AND sort_priority=? AND (kind,host,static_score,created_at)>(?,?,?,?))",
    ),
    (
        "BUCKET_HEADS",
        BUCKET_HEADS,
        "t tasks_ready (queue=? AND sort_priority=? AND kind=? AND host=? AND static_score=?)",
    ),
    (
        "BUCKET_HEADS_FILTERED",
        BUCKET_HEADS_FILTERED,
        "t tasks_ready (queue=? AND sort_priority=? AND kind=? AND host=? AND static_score=?)",
    ),
    (
        "OVERDUE_HEADS",
        OVERDUE_HEADS,
        "t tasks_overdue (queue=? AND sort_priority=? AND kind=? AND host=? AND ready_at<?)",
    ),
    ("PROMOTE_DUE", PROMOTE_DUE, "tasks tasks_cooling (queue=? AND next_eligible_at<?)"),
    ("ACTIVE_BY_KIND", ACTIVE_BY_KIND, "tasks tasks_active (queue=?)"),
    ("AWAITING_ARTIFACT", AWAITING_ARTIFACT, "t tasks_awaiting (queue=? AND seq>?)"),
    ("READY_COUNT", READY_COUNT, "tasks tasks_ready (queue=?)"),
    ("DUE_COUNT", DUE_COUNT, "tasks tasks_cooling (queue=? AND next_eligible_at<?)"),
    ("NEXT_DUE", NEXT_DUE, "tasks tasks_cooling (queue=?)"),
    ("RANK_DUE", RANK_DUE, "tasks tasks_cooling (queue=? AND next_eligible_at<?)"),
    ("UPDATE_STATE", UPDATE_STATE, "tasks PRIMARY KEY (rowid=?)"),
    ("UPDATE_FIELDS", UPDATE_FIELDS, "tasks PRIMARY KEY (rowid=?)"),
    ("SPECS", SPECS, "tasks tasks_specs (scope=? AND spec_ref>?)"),
    ("QUEUE", QUEUE, "queues sqlite_autoindex_queues_1 (scope=? AND name=?)"),
    ("BLOCKERS", BLOCKERS, "e PRIMARY KEY (scope=? AND task=?)"),
    ("EDGES", EDGES, "edges PRIMARY KEY (scope=? AND task=?)"),
    ("HAS_DEPENDENTS", HAS_DEPENDENTS, "edges edges_blocker (scope=? AND blocker=?)"),
    ("SHIFT_DEPENDENTS", SHIFT_DEPENDENTS, "tasks sqlite_autoindex_tasks_1 (scope=? AND id=?)"),
    ("EVENTS", EVENTS, "journal PRIMARY KEY (rowid>?)"),
    ("TASK_EVENTS", TASK_EVENTS, "journal journal_task (scope=? AND task=?)"),
    ("POLICY_VERSION", POLICY_VERSION, "policies PRIMARY KEY (scope=?)"),
];
/// Tasks in the order of their insertion, with what is derived from them, and whether they have blockers.
pub const PAGE: &str = concat!(
    "SELECT ",
    columns!(),
    ", t.stage, t.sort_priority, t.static_score, t.ready_at, t.guarded, \
       EXISTS (SELECT 1 FROM edges e WHERE e.scope = t.scope AND e.task = t.id) FROM tasks t \
     NOT INDEXED CROSS JOIN queues q ON q.key = t.queue WHERE t.scope = ?1 AND t.seq > ?2 ORDER BY t.seq LIMIT ?3"
);
pub const FINISHED: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks t NOT INDEXED CROSS JOIN queues q ON q.key = t.queue WHERE t.scope = ?1 AND t.seq < ?2 \
     AND t.status IN ('done', 'failed', 'invalidated', 'deleted') AND t.updated_at < ?3 ORDER BY t.seq DESC LIMIT ?4"
);
/// A task with its own insertion number, which comes last.
pub const RESTORE: &str = "INSERT INTO tasks (scope, id, queue, kind, priority, parent, depth, triggered_by, \
     parent_iteration, host, title, description, category, steps, spec_ref, reference, payload, sort_priority, \
     created_at, priority_inherited, trigger_hash, discovered_from, status, artifact_present, iteration, tries, \
     attempts, limited_in_row, fence, assignee, lease_expires_at, next_eligible_at, open_since, result, fail_reason, \
     parked_reason, updated_at, started_at, finished_at, events, open_blockers, stage, static_score, ready_at, \
     guarded, fast_failures, filed, seq) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
     ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40, ?41, ?42, \
     ?43, ?44, ?45, ?46, ?47, ?48)";

/// The newest time that a clock gave to an event, to a second.
pub const CLOCK: &str = "SELECT newest_at FROM clock";

/// The newest time since the mark, among the last events.
pub const NEWEST_OF_MARK: &str =
    "SELECT max(at) FROM (SELECT at FROM journal ORDER BY seq DESC LIMIT 100) WHERE at >= ?1 AND at < ?2";

pub const LAST_TIME: &str = "SELECT at FROM journal ORDER BY seq DESC LIMIT 1";

pub const SET_CLOCK: &str = "INSERT INTO clock (one, newest_at) VALUES (1, ?1) \
     ON CONFLICT (one) DO UPDATE SET newest_at = excluded.newest_at";
