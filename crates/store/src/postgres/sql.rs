//! The SQL of this store. Each text has its twin in the other SQL store, under the same name.

/// Every column of a task, in the order of the table, which `row.rs` reads; the queue by its name.
macro_rules! columns {
    () => {
        "t.seq, q.name, t.created_at, t.stage, t.sort_priority, t.static_score, t.ready_at, t.fence, t.events, \
         t.limited_in_row, t.updated_at, t.open_since, t.iteration, t.tries, t.attempts, t.fast_failures, \
         t.filed, t.depth, t.open_blockers, t.bucketed, t.guarded, t.artifact_present, t.priority_inherited, \
         t.scope, t.id, t.status, t.kind, t.host, t.title, t.lease_expires_at, t.next_eligible_at, t.assignee, \
         t.result, t.started_at, t.finished_at, t.parent, t.triggered_by, t.spec_ref, t.description, \
         t.category, t.priority, t.parent_iteration, t.steps, t.reference, t.payload, t.fail_reason, \
         t.parked_reason, t.trigger_hash, t.discovered_from"
    };
}

/// `SELECT` the columns of a task, then what follows.
macro_rules! select {
    ($($rest:expr),+) => {
        concat!("SELECT ", columns!(), " FROM tasks t JOIN queues q ON q.key = t.queue ", $($rest),+)
    };
}

pub const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// The clock and the policy version in force.
pub const OPENING: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
     (SELECT version FROM policies WHERE scope = $1 ORDER BY number DESC LIMIT 1)";
/// The same, and what identifies a writing transaction if the answer to its COMMIT is lost.
pub const OPENING_TO_WRITE: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
     (SELECT version FROM policies WHERE scope = $1 ORDER BY number DESC LIMIT 1), \
     pg_current_xact_id()::text, pg_postmaster_start_time()::text";
/// The same for a claim: also moves tasks that have cooled down into the ready index, as [`PROMOTE_DUE`], and reads the queue.
/// The last column counts the tasks that were moved.
pub const OPENING_TO_CLAIM: &str = "WITH now AS MATERIALIZED \
         (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms), \
     q AS MATERIALIZED (SELECT key, name, paused FROM queues WHERE scope = $1 AND name = $2), \
     due AS MATERIALIZED (SELECT seq FROM tasks WHERE queue = (SELECT key FROM q) AND stage = 1 \
         AND next_eligible_at <= (SELECT ms FROM now) ORDER BY next_eligible_at LIMIT $3 \
         FOR NO KEY UPDATE SKIP LOCKED), \
     promoted AS (UPDATE tasks t SET stage = 2 WHERE t.seq = ANY (ARRAY(SELECT d.seq FROM due d)) RETURNING 1) \
     SELECT now.ms, (SELECT version FROM policies WHERE scope = $1 ORDER BY number DESC LIMIT 1), \
         pg_current_xact_id()::text, pg_postmaster_start_time()::text, q.key, q.name, q.paused, \
         (SELECT count(*) FROM promoted) FROM now LEFT JOIN q ON true";

pub const TASK: &str = select!("WHERE t.scope = $1 AND t.id = $2");
pub const TASK_LOCKED: &str = select!("WHERE t.scope = $1 AND t.id = $2 FOR NO KEY UPDATE OF t");
pub const TASKS: &str = select!("WHERE t.scope = $1 AND t.id = ANY($2)");
pub const TASKS_LOCKED: &str =
    select!("WHERE t.scope = $1 AND t.id = ANY($2) ORDER BY t.id FOR NO KEY UPDATE OF t");
/// Whether each of some tasks has followers (dependents or children), and blockers. No other follower can be added once
/// the tasks are locked.
pub const LINKS: &str = "SELECT i.id, EXISTS (SELECT 1 FROM edges e WHERE e.scope = $1 AND e.blocker = i.id) \
         OR EXISTS (SELECT 1 FROM tasks c WHERE c.scope = $1 AND c.parent = i.id), \
     EXISTS (SELECT 1 FROM edges e WHERE e.scope = $1 AND e.task = i.id) FROM unnest($2::text[]) AS i (id)";
pub const TASKS_BY_SEQ: &str = select!("WHERE t.seq = ANY($1)");
pub const CHILDREN: &str = select!("WHERE t.scope = $1 AND t.parent = $2 ORDER BY t.id");
pub const CHILDREN_LOCKED: &str =
    select!("WHERE t.scope = $1 AND t.parent = $2 ORDER BY t.id FOR NO KEY UPDATE OF t");
pub const DEPENDENTS: &str = select!(
    "JOIN edges e ON e.scope = t.scope AND e.task = t.id WHERE e.scope = $1 AND e.blocker = $2 ORDER BY t.id"
);
/// Locks dependents in the order of their ids, so that two settling blockers meet without a deadlock.
pub const LOCK_DEPENDENTS: &str = "SELECT 1 FROM edges e \
     JOIN tasks t ON t.scope = e.scope AND t.id = e.task WHERE e.scope = $1 AND e.blocker = $2 ORDER BY t.id FOR NO KEY UPDATE OF t";
pub const EXPIRED: &str = select!(
    "WHERE t.queue = $1 AND t.status = 'active' AND t.lease_expires_at <= $2 \
     ORDER BY t.lease_expires_at, t.kind, t.seq LIMIT $3"
);
/// Expired leases, by the server's clock where no time is given.
pub const EXPIRED_LOCKED: &str = select!(
    "WHERE t.queue = $1 AND t.status = 'active' \
       AND t.lease_expires_at <= (SELECT coalesce($2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)) \
     ORDER BY t.lease_expires_at, t.kind, t.seq LIMIT $3 FOR NO KEY UPDATE OF t SKIP LOCKED"
);
pub const LIST: &str = select!(
    "WHERE t.scope = $1 AND ($2::bigint IS NULL OR t.queue = $2) \
       AND ($3::text[] IS NULL OR t.status = ANY($3)) AND ($4::text IS NULL OR t.assignee = $4) \
       AND ($5::text[] IS NULL OR t.spec_ref = ANY($5)) AND ($6::text IS NULL OR t.category = $6)"
);
/// Numbers are sorted before rows are read: there may be a million, and a thousand are wanted.
pub const LIST_UNLEASED: &str = select!(
    "WHERE t.seq IN (SELECT seq FROM tasks WHERE queue = $1 AND status <> 'deleted' \
         AND (status <> 'active' OR lease_expires_at <= $2) ORDER BY sort_priority, created_at, seq LIMIT $3) \
     ORDER BY t.sort_priority, t.created_at, t.seq"
);

macro_rules! buckets {
    ($($rest:literal),+) => {
        concat!(
            "WITH RECURSIVE level AS MATERIALIZED (SELECT sort_priority AS p FROM tasks \
                 WHERE queue = $1 AND stage = 2 AND bucketed AND sort_priority > $2 ORDER BY sort_priority LIMIT 1), \
             bucket AS ((SELECT kind, host, static_score FROM tasks WHERE queue = $1 AND stage = 2 AND bucketed \
                     AND sort_priority = (SELECT p FROM level) ORDER BY kind, host, static_score LIMIT 1) \
                 UNION ALL SELECT n.kind, n.host, n.static_score FROM bucket b CROSS JOIN LATERAL \
                     (SELECT kind, host, static_score FROM tasks WHERE queue = $1 AND stage = 2 AND bucketed \
                     AND sort_priority = (SELECT p FROM level) \
                     AND (kind, host, static_score) > (b.kind, b.host, b.static_score) \
                     ORDER BY kind, host, static_score LIMIT 1) n), \
             wanted AS MATERIALIZED (SELECT kind, host, static_score FROM bucket \
                 WHERE (host = '' OR $3::text IS NULL OR host = $3) AND kind <> ALL($4::text[]) \
                 AND ($10::text[] IS NULL OR kind = ANY($10))) ",
            $($rest),+
        )
    };
}

/// The most urgent priority that has ready tasks, after $2.
pub const NEXT_PRIORITY: &str = "SELECT sort_priority FROM tasks \
     WHERE queue = $1 AND stage = 2 AND bucketed AND sort_priority > $2 ORDER BY sort_priority LIMIT 1";
/// The insertion numbers of the oldest of each bucket of the next priority, and of the longest waiting of each kind.
pub const BUCKET_HEADS: &str = buckets!(
    "SELECT h.seq FROM wanted b CROSS JOIN LATERAL (SELECT t.seq FROM tasks t WHERE t.queue = $1 AND t.stage = 2 \
         AND t.bucketed AND t.sort_priority = (SELECT p FROM level) AND t.kind = b.kind AND t.host = b.host \
         AND t.static_score = b.static_score AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= $5) \
         AND ($8::text IS NULL OR t.category = $8) AND ($9::text[] IS NULL OR t.spec_ref = ANY($9)) \
         ORDER BY t.created_at, t.seq LIMIT $6) h \
     UNION SELECT h.seq FROM (SELECT DISTINCT kind, host FROM wanted WHERE $7::bigint IS NOT NULL) b \
         CROSS JOIN LATERAL (SELECT t.seq FROM tasks t WHERE t.queue = $1 AND t.stage = 2 AND t.guarded \
         AND t.sort_priority = (SELECT p FROM level) AND t.kind = b.kind AND t.host = b.host AND t.ready_at < $7 \
         AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= $5) \
         AND ($8::text IS NULL OR t.category = $8) AND ($9::text[] IS NULL OR t.spec_ref = ANY($9)) \
         ORDER BY t.ready_at, t.created_at, t.seq LIMIT $6) h"
);
/// The heads of the buckets of the most urgent priorities, for a host ($2), a category ($3) and kinds ($4), so many of each
/// bucket ($5); of each kind also those that have waited longest, where the queue has a guard against starvation.
macro_rules! ready_heads {
    ($($rest:expr),+) => {
        concat!(
            "WITH RECURSIVE level AS ((SELECT sort_priority AS p, 1 AS n FROM tasks WHERE queue = $1 AND stage = 2 \
                     AND bucketed ORDER BY sort_priority LIMIT 1) \
                 UNION ALL SELECT x.p, l.n + 1 FROM level l CROSS JOIN LATERAL (SELECT sort_priority AS p FROM tasks \
                     WHERE queue = $1 AND stage = 2 AND bucketed AND sort_priority > l.p \
                     ORDER BY sort_priority LIMIT 1) x WHERE l.n < 8), \
             bucket AS ((SELECT f.p, f.kind, f.host, f.static_score FROM level l CROSS JOIN LATERAL \
                     (SELECT sort_priority AS p, kind, host, static_score FROM tasks WHERE queue = $1 AND stage = 2 \
                     AND bucketed AND sort_priority = l.p ORDER BY kind, host, static_score LIMIT 1) f) \
                 UNION ALL SELECT n.p, n.kind, n.host, n.static_score FROM bucket b CROSS JOIN LATERAL \
                     (SELECT sort_priority AS p, kind, host, static_score FROM tasks WHERE queue = $1 AND stage = 2 \
                     AND bucketed AND sort_priority = b.p \
                     AND (kind, host, static_score) > (b.kind, b.host, b.static_score) \
                     ORDER BY kind, host, static_score LIMIT 1) n), \
             wanted AS MATERIALIZED (SELECT p, kind, host, static_score FROM bucket \
                 WHERE (host = '' OR $2::text IS NULL OR host = $2) AND ($4::text[] IS NULL OR kind = ANY($4))), \
             heads AS MATERIALIZED (SELECT h.seq FROM wanted b CROSS JOIN LATERAL (SELECT t.seq FROM tasks t \
                     WHERE t.queue = $1 AND t.stage = 2 AND t.bucketed AND t.sort_priority = b.p \
                     AND t.kind = b.kind AND t.host = b.host AND t.static_score = b.static_score \
                     AND ($3::text IS NULL OR t.category = $3) ORDER BY t.created_at, t.seq LIMIT $5) h \
                 UNION SELECT h.seq FROM (SELECT DISTINCT p, kind, host FROM wanted) b CROSS JOIN LATERAL \
                     (SELECT t.seq FROM tasks t WHERE t.queue = $1 AND t.stage = 2 AND t.guarded \
                     AND t.sort_priority = b.p AND t.kind = b.kind AND t.host = b.host \
                     AND ($3::text IS NULL OR t.category = $3) \
                     ORDER BY t.ready_at, t.created_at, t.seq LIMIT $5) h) ",
            $($rest),+
        )
    };
}

/// Locks the heads that nobody else has; the last column says whether a task has children.
pub const READY_HEADS_LOCKED: &str = ready_heads!(
    "SELECT ",
    columns!(),
    ", EXISTS (SELECT 1 FROM tasks c WHERE c.scope = t.scope AND c.parent = t.id) \
     FROM tasks t JOIN queues q ON q.key = t.queue WHERE t.seq = ANY (ARRAY(SELECT seq FROM heads)) AND t.stage = 2 \
     FOR NO KEY UPDATE OF t SKIP LOCKED"
);
/// The parents of the heads, in the scope $6.
pub const READY_PARENTS: &str = ready_heads!(
    "SELECT ",
    columns!(),
    " FROM tasks t JOIN queues q ON q.key = t.queue WHERE t.scope = $6 AND t.id = ANY (ARRAY(\
         SELECT h.parent FROM tasks h WHERE h.seq = ANY (ARRAY(SELECT seq FROM heads)) AND h.parent IS NOT NULL))"
);
/// The blockers of the heads, each with its dependent in the last column.
pub const READY_BLOCKERS: &str = ready_heads!(
    "SELECT t.id, t.title, t.status, t.result, e.task FROM edges e \
     JOIN tasks t ON t.scope = e.scope AND t.id = e.blocker WHERE e.scope = $6 AND e.task = ANY (ARRAY(\
         SELECT h.id FROM tasks h WHERE h.seq = ANY (ARRAY(SELECT seq FROM heads)))) ORDER BY e.task, t.id"
);
/// The most urgent priorities that have ready tasks, up to as many as heads are read for.
pub const READY_LEVELS: &str = "WITH RECURSIVE level AS ((SELECT sort_priority AS p, 1 AS n FROM tasks \
         WHERE queue = $1 AND stage = 2 AND bucketed ORDER BY sort_priority LIMIT 1) \
     UNION ALL SELECT x.p, l.n + 1 FROM level l CROSS JOIN LATERAL (SELECT sort_priority AS p FROM tasks \
         WHERE queue = $1 AND stage = 2 AND bucketed AND sort_priority > l.p ORDER BY sort_priority LIMIT 1) x \
         WHERE l.n < 8) SELECT p FROM level";
/// Locks chosen heads that are still ready and that nobody else has.
pub const LOCK_HEADS: &str =
    select!("WHERE t.seq = ANY($1) AND t.stage = 2 FOR NO KEY UPDATE OF t SKIP LOCKED");
/// The first of a queue without buckets, after a priority; the last column says whether a task has blockers.
macro_rules! plain_heads {
    ($lock:literal) => {
        concat!(
            "SELECT ", columns!(), ", EXISTS (SELECT 1 FROM edges e WHERE e.scope = t.scope AND e.task = t.id) \
             FROM tasks t JOIN queues q ON q.key = t.queue \
             WHERE t.queue = $1 AND t.stage = 2 AND NOT t.bucketed AND t.sort_priority > $2 \
               AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= $3) \
               AND (t.host = '' OR $4::text IS NULL OR t.host = $4) AND ($6::text IS NULL OR t.category = $6) \
               AND ($7::text[] IS NULL OR t.spec_ref = ANY($7)) AND ($8::text[] IS NULL OR t.kind = ANY($8)) \
             ORDER BY t.sort_priority, t.created_at, t.seq LIMIT $5",
            $lock
        )
    };
}
pub const PLAIN_HEADS: &str = plain_heads!("");
pub const PLAIN_HEADS_LOCKED: &str = plain_heads!(" FOR NO KEY UPDATE OF t SKIP LOCKED");
/// Moves tasks that have cooled down into the ready index, by the server's clock where no time is given. Through an
/// array, because a plan for any limit would read the whole table.
pub const PROMOTE_DUE: &str = "WITH due AS MATERIALIZED (SELECT seq FROM tasks WHERE queue = $1 AND stage = 1 \
         AND next_eligible_at <= (SELECT coalesce($2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)) \
         ORDER BY next_eligible_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED) \
     UPDATE tasks t SET stage = 2 WHERE t.seq = ANY (ARRAY(SELECT d.seq FROM due d))";
pub const AWAITING_ARTIFACT: &str = select!(
    "WHERE t.queue = $1 AND t.status = 'open' AND t.triggered_by IS NOT NULL AND NOT t.artifact_present \
       AND t.seq > $2 ORDER BY t.seq LIMIT $3"
);
pub const READY_COUNT: &str = "SELECT count(*) FROM tasks WHERE queue = $1 AND stage = 2 \
       OR queue = $1 AND stage = 1 AND next_eligible_at <= $2";
pub const NEXT_DUE: &str = "SELECT next_eligible_at FROM tasks \
     WHERE queue = $1 AND stage = 1 ORDER BY next_eligible_at LIMIT 1";
pub const ACTIVE_BY_KIND: &str =
    "SELECT kind, count(*) FROM tasks WHERE queue = $1 AND status = 'active' GROUP BY kind";
pub const RANK_READY: &str = "SELECT seq, sort_priority, static_score, created_at, ready_at FROM tasks \
     WHERE queue = $1 AND stage = 2 AND (next_eligible_at IS NULL OR next_eligible_at <= $2)";
pub const RANK_DUE: &str = "SELECT seq, sort_priority, static_score, created_at, ready_at FROM tasks \
     WHERE queue = $1 AND stage = 1 AND next_eligible_at <= $2";

/// The columns of a task that an edit changes.
pub const FIELDS: [&str; 19] = [
    "kind",
    "priority",
    "parent",
    "depth",
    "triggered_by",
    "parent_iteration",
    "host",
    "title",
    "description",
    "category",
    "steps",
    "spec_ref",
    "reference",
    "payload",
    "sort_priority",
    "created_at",
    "priority_inherited",
    "trigger_hash",
    "discovered_from",
];
/// The columns of a task that a lease moves, and those derived from them.
pub const STATE: [&str; 26] = [
    "status",
    "artifact_present",
    "iteration",
    "tries",
    "attempts",
    "limited_in_row",
    "fence",
    "assignee",
    "lease_expires_at",
    "next_eligible_at",
    "open_since",
    "result",
    "fail_reason",
    "parked_reason",
    "updated_at",
    "started_at",
    "finished_at",
    "events",
    "open_blockers",
    "stage",
    "static_score",
    "ready_at",
    "guarded",
    "bucketed",
    "fast_failures",
    "filed",
];
/// The columns of an event, without its number.
const EVENT: [&str; 11] =
    ["scope", "at", "kind", "from_status", "to_status", "actor", "policy", "task", "number", "fence", "data"];

/// A statement for one row, and the same for many rows given column by column.
pub struct Write {
    pub one: String,
    pub many: String,
}

fn placeholders(count: usize) -> String {
    (1..=count).map(|place| format!("${place}")).collect::<Vec<_>>().join(", ")
}

/// The arrays of a statement for many rows.
fn arrays(types: &[&str]) -> String {
    let array = |(index, kind): (usize, &&str)| format!("${}::{kind}", index + 1);
    types.iter().enumerate().map(array).collect::<Vec<_>>().join(", ")
}

/// Inserts; `types` are those of the columns' arrays.
pub fn insert(table: &str, columns: &[&str], types: &[&str]) -> Write {
    let names = columns.join(", ");
    // Numbers are reserved before, so that a task is known before it is written.
    let numbered = if columns.contains(&"seq") { "OVERRIDING SYSTEM VALUE " } else { "" };
    Write {
        one: format!("INSERT INTO {table} ({names}) {numbered}VALUES ({})", placeholders(columns.len())),
        many: format!("INSERT INTO {table} ({names}) {numbered}SELECT * FROM unnest({})", arrays(types)),
    }
}

/// Updates tasks by their insertion number, which comes last.
pub fn update(columns: &[&str], types: &[&str]) -> Write {
    let each = |value: fn(usize) -> String| {
        let set = columns.iter().enumerate().map(|(index, name)| format!("{name} = {}", value(index + 1)));
        set.collect::<Vec<_>>().join(", ")
    };
    let last = columns.len() + 1;
    let names: Vec<String> = (1..=last).map(|place| format!("c{place}")).collect();
    Write {
        one: format!("UPDATE tasks SET {} WHERE seq = ${last}", each(|place| format!("${place}"))),
        many: format!(
            "UPDATE tasks t SET {} FROM unnest({}) AS u ({}) WHERE t.seq = u.c{last}",
            each(|place| format!("u.c{place}")),
            arrays(types),
            names.join(", ")
        ),
    }
}

/// The columns of a new task, in the order of `row::new_task`.
pub fn task_columns() -> Vec<&'static str> {
    let mut columns = vec!["scope", "id", "queue"];
    columns.extend(FIELDS);
    columns.extend(STATE);
    columns.push("seq");
    columns
}

/// The columns of a new event, with its number where it is given.
pub fn event_columns(numbered: bool) -> Vec<&'static str> {
    EVENT.into_iter().chain(numbered.then_some("seq")).collect()
}

/// Insertion numbers for new tasks.
pub const RESERVE: &str =
    "SELECT nextval(pg_get_serial_sequence('tasks', 'seq')) FROM generate_series(1, $1::bigint)";

pub const COUNT: &str = "SELECT status, open_blockers > 0, count(*) FROM tasks WHERE queue = $1 \
     AND ($2::text IS NULL OR category = $2) AND ($3::text[] IS NULL OR spec_ref = ANY($3)) GROUP BY 1, 2";
pub const SPECS: &str =
    "SELECT DISTINCT spec_ref FROM tasks WHERE scope = $1 AND spec_ref IS NOT NULL ORDER BY spec_ref";

/// Edge writers of a scope take turns.
pub const LOCK_EDGES: &str =
    "SELECT pg_advisory_xact_lock(hashtextextended('rota edges ' || current_schema() || ' ' || $1, 0))";
/// Settling a task that others wait for keeps edge writers out, but not other settlers.
pub const SHARE_EDGES: &str = "SELECT pg_advisory_xact_lock_shared(hashtextextended('rota edges ' || current_schema() || ' ' || $1, 0))";

pub const QUEUE: &str = "SELECT key, name, paused FROM queues WHERE scope = $1 AND name = $2";
pub const LOCK_QUEUE: &str = "SELECT 1 FROM queues WHERE scope = $1 AND name = $2 FOR UPDATE";
pub const QUEUES: &str = "SELECT key, name, paused FROM queues WHERE scope = $1 ORDER BY name";
pub const ADD_QUEUE: &str = "INSERT INTO queues (scope, name) VALUES ($1, $2) ON CONFLICT DO NOTHING";
pub const PAUSE_QUEUE: &str = "UPDATE queues SET paused = $2 WHERE key = $1";

pub const BLOCKERS: &str = "SELECT t.id, t.title, t.status, t.result FROM edges e \
     JOIN tasks t ON t.scope = e.scope AND t.id = e.blocker \
     WHERE e.scope = $1 AND e.task = $2 ORDER BY t.id";
pub const EDGES: &str =
    "SELECT task, blocker FROM edges WHERE scope = $1 AND task = ANY($2) ORDER BY task, blocker";
pub const ADD_EDGE: &str =
    "INSERT INTO edges (scope, task, blocker) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
pub const REMOVE_EDGE: &str = "DELETE FROM edges WHERE scope = $1 AND task = $2 AND blocker = $3";
pub const SHIFT_DEPENDENTS: &str = "UPDATE tasks SET open_blockers = open_blockers + $3 \
     WHERE scope = $1 AND id = ANY (ARRAY(SELECT e.task FROM edges e WHERE e.scope = $1 AND e.blocker = $2))";

/// `SELECT` an event, then what follows.
macro_rules! events {
    ($($rest:literal),+) => {
        concat!(
            "SELECT e.seq, e.scope, e.task, e.number, e.at, e.kind, e.from_status, e.to_status, e.actor, e.fence, \
             e.policy, e.data, e.xid FROM journal e ",
            $($rest),+
        )
    };
}
pub(super) use events;

/// Wakes followers. A NOTIFY makes every commit wait for a lock of the whole server, so it is sent only while somebody
/// listens: a listener holds this lock exclusively, and a writer that can share it for a moment is alone. Polling stays
/// the truth.
pub const NOTIFY: &str = "SELECT CASE WHEN pg_try_advisory_lock_shared(k.key) \
         THEN pg_advisory_unlock_shared(k.key)::text ELSE pg_notify('rota', k.name)::text END \
     FROM (SELECT current_schema() AS name, hashtextextended('rota followers ' || current_schema(), 0) AS key) k";
pub const EVENTS: &str = events!("WHERE e.scope = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3");
pub const EVENTS_NEWEST: &str = events!("WHERE e.scope = $1 AND e.seq > $2 ORDER BY e.seq DESC LIMIT $3");
pub const TASK_EVENTS: &str =
    events!("WHERE e.scope = $1 AND e.seq > $2 AND e.task = $4 ORDER BY e.number LIMIT $3");
pub const TASK_EVENTS_NEWEST: &str =
    events!("WHERE e.scope = $1 AND e.seq > $2 AND e.task = $4 ORDER BY e.number DESC LIMIT $3");

pub const POLICIES: &str = "SELECT number, version, document, published_at, actor FROM policies \
     WHERE scope = $1 ORDER BY number";
pub const ADD_POLICY: &str = "INSERT INTO policies (scope, number, version, document, published_at, actor) \
     VALUES ($1, $2, $3, $4, $5, $6)";

pub const ADD_AGENT: &str = "INSERT INTO agents (scope, id, pid, host, started_at, stopped_at) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
pub const AGENT: &str =
    "SELECT id, pid, host, started_at, stopped_at FROM agents WHERE scope = $1 AND id = $2";
pub const AGENTS: &str = "SELECT id, pid, host, started_at, stopped_at FROM agents WHERE scope = $1 \
     ORDER BY started_at DESC, id";
pub const STOP_AGENT: &str = "UPDATE agents SET stopped_at = $3 WHERE scope = $1 AND id = $2";

pub const BLOCK: &str =
    "SELECT upstream, blocked_until, hits, reason, updated_at FROM blocks WHERE upstream = $1";
pub const SET_BLOCK: &str = "INSERT INTO blocks (upstream, blocked_until, hits, reason, updated_at) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (upstream) DO UPDATE SET blocked_until = excluded.blocked_until, \
     hits = excluded.hits, reason = excluded.reason, updated_at = excluded.updated_at";

/// Sums stay at the largest figure: the store could not keep a larger one.
pub const ADD_USAGE: &str = "INSERT INTO usage (scope, task, day, upstream, model, requests, input_tokens, \
     output_tokens, cache_read_tokens, wait_ms, spend_nanos) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
     ON CONFLICT (scope, task, day, upstream, model) DO UPDATE SET \
     requests = excluded.requests + LEAST(usage.requests, 9223372036854775807 - excluded.requests), \
     input_tokens = excluded.input_tokens + LEAST(usage.input_tokens, 9223372036854775807 - excluded.input_tokens), \
     output_tokens = excluded.output_tokens + LEAST(usage.output_tokens, 9223372036854775807 - excluded.output_tokens), \
     cache_read_tokens = excluded.cache_read_tokens + LEAST(usage.cache_read_tokens, 9223372036854775807 - excluded.cache_read_tokens), \
     wait_ms = excluded.wait_ms + LEAST(usage.wait_ms, 9223372036854775807 - excluded.wait_ms), \
     spend_nanos = excluded.spend_nanos + LEAST(usage.spend_nanos, 9223372036854775807 - excluded.spend_nanos)";
pub const USAGE: &str = "SELECT scope, task, day, upstream, model, requests, input_tokens, output_tokens, \
     cache_read_tokens, wait_ms, spend_nanos FROM usage WHERE ($1::text IS NULL OR scope = $1) \
     AND ($2::text IS NULL OR task = $2) AND ($3::bigint IS NULL OR day = $3) \
     ORDER BY scope, task, day, upstream, model";
pub const ADD_GATE_TOKEN: &str = "INSERT INTO gate_tokens (hash, scope, task, level, made_at, expires_at) \
     VALUES ($1, $2, $3, $4, $5, $6)";
pub const GATE_TOKEN: &str =
    "SELECT hash, scope, task, level, made_at, expires_at FROM gate_tokens WHERE hash = $1";

/// Tasks in the order of their insertion, with what is derived from them.
pub const PAGE: &str = select!("WHERE t.scope = $1 AND t.seq > $2 ORDER BY t.seq LIMIT $3");
pub const FINISHED: &str = select!(
    "WHERE t.scope = $1 AND t.seq < $2 AND t.status IN ('done', 'failed', 'invalidated', 'deleted') \
       AND t.updated_at < $3 ORDER BY t.seq DESC LIMIT $4"
);
/// Name, text, and the index that must serve it.
#[cfg(feature = "test-hooks")]
pub fn served() -> Vec<(&'static str, String, &'static str)> {
    let fixed: &[(&'static str, &str, &'static str)] = &[
        ("TASK", TASK, "tasks_scope_id_key"),
        ("TASK_LOCKED", TASK_LOCKED, "tasks_scope_id_key"),
        ("TASKS", TASKS, "tasks_scope_id_key"),
        ("TASKS_LOCKED", TASKS_LOCKED, "tasks_scope_id_key"),
        ("TASKS_BY_SEQ", TASKS_BY_SEQ, "tasks_pkey"),
        ("CHILDREN", CHILDREN, "tasks_children"),
        ("CHILDREN_LOCKED", CHILDREN_LOCKED, "tasks_children"),
        ("DEPENDENTS", DEPENDENTS, "edges_blocker"),
        ("LOCK_DEPENDENTS", LOCK_DEPENDENTS, "edges_blocker"),
        ("EXPIRED", EXPIRED, "tasks_active"),
        ("EXPIRED_LOCKED", EXPIRED_LOCKED, "tasks_active"),
        ("NEXT_PRIORITY", NEXT_PRIORITY, "tasks_ready"),
        ("BUCKET_HEADS", BUCKET_HEADS, "tasks_ready"),
        ("BUCKET_HEADS, overdue", BUCKET_HEADS, "tasks_overdue"),
        ("READY_HEADS_LOCKED", READY_HEADS_LOCKED, "tasks_ready"),
        ("READY_PARENTS", READY_PARENTS, "tasks_scope_id_key"),
        ("READY_BLOCKERS", READY_BLOCKERS, "edges_pkey"),
        ("READY_LEVELS", READY_LEVELS, "tasks_ready"),
        ("LOCK_HEADS", LOCK_HEADS, "tasks_pkey"),
        ("PLAIN_HEADS", PLAIN_HEADS, "tasks_plain"),
        ("PLAIN_HEADS_LOCKED", PLAIN_HEADS_LOCKED, "tasks_plain"),
        ("PROMOTE_DUE", PROMOTE_DUE, "tasks_cooling"),
        ("OPENING_TO_CLAIM", OPENING_TO_CLAIM, "tasks_cooling"),
        ("AWAITING_ARTIFACT", AWAITING_ARTIFACT, "tasks_awaiting"),
        ("NEXT_DUE", NEXT_DUE, "tasks_cooling"),
        ("ACTIVE_BY_KIND", ACTIVE_BY_KIND, "tasks_active"),
        ("RANK_DUE", RANK_DUE, "tasks_cooling"),
        ("LINKS", LINKS, "edges_blocker"),
        ("LINKS, children", LINKS, "tasks_children"),
        ("LINKS, blockers", LINKS, "edges_pkey"),
        ("BLOCKERS", BLOCKERS, "edges_pkey"),
        ("EDGES", EDGES, "edges_pkey"),
        ("SHIFT_DEPENDENTS", SHIFT_DEPENDENTS, "tasks_scope_id_key"),
        ("EVENTS", EVENTS, "journal_pkey"),
        ("TASK_EVENTS", TASK_EVENTS, "journal_task"),
    ];
    let mut served: Vec<_> =
        fixed.iter().map(|(name, text, index)| (*name, (*text).to_owned(), *index)).collect();
    for (one, many, write) in [
        ("UPDATE_STATE", "UPDATE_STATE, many", &super::outbox::STATEMENTS.state),
        ("UPDATE_FIELDS", "UPDATE_FIELDS, many", &super::outbox::STATEMENTS.fields),
    ] {
        served.push((one, write.one.clone(), "tasks_pkey"));
        served.push((many, write.many.clone(), "tasks_pkey"));
    }
    served
}
