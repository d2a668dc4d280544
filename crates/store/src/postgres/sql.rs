//! The SQL of this store. Each text has its twin in the other SQL store, under the same name.

/// Every column of a task, in the order of the table, which `row.rs` reads; the queue by its name.
macro_rules! columns {
    () => {
        "t.seq, q.name, t.created_at, t.stage, t.sort_priority, t.static_score, t.ready_at, t.fence, \
         t.events, t.limited_in_row, t.told, t.bucketed, t.guarded, t.awaited, t.artifact_present, t.scope, \
         t.id, t.status, t.kind, t.host, t.lease_expires_at, t.next_eligible_at, t.assignee, t.result, \
         t.started_at, t.triggered_by, t.parent, t.spec_ref, t.updated_at, t.finished_at, t.told_before, \
         t.open_since, t.iteration, t.tries, t.attempts, t.depth, t.open_blockers, t.title, t.description, \
         t.category, t.priority, t.parent_iteration, t.steps, t.reference, t.payload, t.fail_reason, \
         t.parked_reason"
    };
}

/// `SELECT` the columns of a task, then what follows.
macro_rules! select {
    ($($rest:expr),+) => {
        concat!("SELECT ", columns!(), " FROM tasks t JOIN queues q ON q.key = t.queue ", $($rest),+)
    };
}

pub const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// The clock and the version in force, in one round trip.
pub const OPENING: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
     (SELECT version FROM policies WHERE scope = $1 ORDER BY number DESC LIMIT 1)";

/// The task with id $2, and those with the ids $2.
macro_rules! has_id {
    () => {
        "t.seq = (SELECT i.seq FROM ids i WHERE i.scope = $1 AND i.id = $2)"
    };
}
macro_rules! has_one_of_ids {
    () => {
        "t.seq = ANY (ARRAY(SELECT i.seq FROM ids i WHERE i.scope = $1 AND i.id = ANY($2)))"
    };
}
pub(super) use has_one_of_ids;

pub const TASK: &str = select!("WHERE ", has_id!());
pub const TASK_LOCKED: &str = select!("WHERE ", has_id!(), " FOR NO KEY UPDATE OF t");
pub const TASKS: &str = select!("WHERE ", has_one_of_ids!());
pub const TASKS_LOCKED: &str = select!("WHERE ", has_one_of_ids!(), " ORDER BY t.id FOR NO KEY UPDATE OF t");
pub const TASKS_BY_SEQ: &str = select!("WHERE t.seq = ANY($1)");
pub const CHILDREN: &str = select!("WHERE t.scope = $1 AND t.parent = $2 ORDER BY t.id");
pub const CHILDREN_LOCKED: &str =
    select!("WHERE t.scope = $1 AND t.parent = $2 ORDER BY t.id FOR NO KEY UPDATE OF t");
pub const DEPENDENTS: &str = select!(
    "JOIN ids i ON i.seq = t.seq JOIN edges e ON e.scope = i.scope AND e.task = i.id \
     WHERE e.scope = $1 AND e.blocker = $2 ORDER BY t.id"
);
/// Locks dependents in the order of their ids, so that two settling blockers meet without a deadlock.
pub const LOCK_DEPENDENTS: &str = "SELECT 1 FROM edges e JOIN ids i ON i.scope = e.scope AND i.id = e.task \
     JOIN tasks t ON t.seq = i.seq WHERE e.scope = $1 AND e.blocker = $2 ORDER BY t.id FOR NO KEY UPDATE OF t";
pub const EXPIRED: &str = select!(
    "WHERE t.queue = $1 AND t.status = 'active' AND t.lease_expires_at <= $2 \
     ORDER BY t.lease_expires_at, t.kind, t.seq LIMIT $3"
);
pub const EXPIRED_LOCKED: &str = select!(
    "WHERE t.queue = $1 AND t.status = 'active' AND t.lease_expires_at <= $2 \
     ORDER BY t.lease_expires_at, t.kind, t.seq LIMIT $3 FOR NO KEY UPDATE OF t SKIP LOCKED"
);
pub const LIST: &str = select!(
    "WHERE t.scope = $1 AND ($2::bigint IS NULL OR t.queue = $2) \
       AND ($3::text[] IS NULL OR t.status = ANY($3)) AND ($4::text IS NULL OR t.assignee = $4) \
       AND ($5::text[] IS NULL OR t.spec_ref = ANY($5)) AND ($6::text IS NULL OR t.category = $6)"
);
/// Numbers are sorted before rows are read: there may be a million, and a thousand are wanted.
pub const UNHELD: &str = select!(
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
pub const NEXT_PLAIN_PRIORITY: &str = "SELECT sort_priority FROM tasks \
     WHERE queue = $1 AND stage = 2 AND NOT bucketed AND sort_priority > $2 ORDER BY sort_priority LIMIT 1";
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
/// Locks chosen heads that are still ready and that nobody else has.
pub const LOCK_HEADS: &str =
    select!("WHERE t.seq = ANY($1) AND t.stage = 2 FOR NO KEY UPDATE OF t SKIP LOCKED");
/// The oldest of one priority of a queue without buckets.
pub const PLAIN_HEADS: &str = select!(
    "WHERE t.queue = $1 AND t.stage = 2 AND NOT t.bucketed AND t.sort_priority = $2 \
       AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= $3) \
       AND (t.host = '' OR $4::text IS NULL OR t.host = $4) AND ($6::text IS NULL OR t.category = $6) \
       AND ($7::text[] IS NULL OR t.spec_ref = ANY($7)) AND ($8::text[] IS NULL OR t.kind = ANY($8)) \
     ORDER BY t.created_at, t.seq LIMIT $5"
);
pub const PLAIN_HEADS_LOCKED: &str = select!(
    "WHERE t.queue = $1 AND t.stage = 2 AND NOT t.bucketed AND t.sort_priority = $2 \
       AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= $3) \
       AND (t.host = '' OR $4::text IS NULL OR t.host = $4) AND ($6::text IS NULL OR t.category = $6) \
       AND ($7::text[] IS NULL OR t.spec_ref = ANY($7)) AND ($8::text[] IS NULL OR t.kind = ANY($8)) \
     ORDER BY t.created_at, t.seq LIMIT $5 \
     FOR NO KEY UPDATE OF t SKIP LOCKED"
);
/// Lets in what has cooled down. Through an array, because a plan for any limit would read the whole table.
pub const ADMIT_DUE: &str = "WITH due AS MATERIALIZED (SELECT seq FROM tasks WHERE queue = $1 AND stage = 1 \
         AND next_eligible_at <= $2 ORDER BY next_eligible_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED) \
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

pub const INSERT: &str = "WITH added AS (INSERT INTO tasks (scope, id, queue, kind, priority, parent, depth, triggered_by, \
     parent_iteration, host, title, description, category, steps, spec_ref, reference, payload, sort_priority, \
     created_at, status, artifact_present, iteration, tries, attempts, limited_in_row, fence, assignee, \
     lease_expires_at, next_eligible_at, open_since, result, fail_reason, parked_reason, updated_at, started_at, \
     finished_at, events, open_blockers, stage, static_score, ready_at, guarded, bucketed) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, \
     $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43) \
     RETURNING seq, scope, id) INSERT INTO ids (seq, scope, id) SELECT seq, scope, id FROM added RETURNING seq";
/// The part of a task that a lease moves; `seq` last.
pub const UPDATE_STATE: &str = "UPDATE tasks SET status = $1, artifact_present = $2, iteration = $3, tries = $4, \
     attempts = $5, limited_in_row = $6, fence = $7, assignee = $8, lease_expires_at = $9, next_eligible_at = $10, \
     open_since = $11, result = $12, fail_reason = $13, parked_reason = $14, updated_at = $15, started_at = $16, \
     finished_at = $17, events = $18, open_blockers = $19, stage = $20, static_score = $21, ready_at = $22, \
     guarded = $23, bucketed = $24 WHERE seq = $25";
/// The part that an edit changes; `seq` last.
pub const UPDATE_FIELDS: &str = "UPDATE tasks SET kind = $1, priority = $2, parent = $3, depth = $4, \
     triggered_by = $5, parent_iteration = $6, host = $7, title = $8, description = $9, category = $10, steps = $11, \
     spec_ref = $12, reference = $13, payload = $14, sort_priority = $15, created_at = $16 WHERE seq = $17";

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
     JOIN ids i ON i.scope = e.scope AND i.id = e.blocker JOIN tasks t ON t.seq = i.seq \
     WHERE e.scope = $1 AND e.task = $2 ORDER BY t.id";
pub const EDGES: &str =
    "SELECT task, blocker FROM edges WHERE scope = $1 AND task = ANY($2) ORDER BY task, blocker";
pub const ADD_EDGE: &str =
    "INSERT INTO edges (scope, task, blocker) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
pub const REMOVE_EDGE: &str = "DELETE FROM edges WHERE scope = $1 AND task = $2 AND blocker = $3";
pub const HAS_DEPENDENTS: &str = "SELECT 1 FROM edges WHERE scope = $1 AND blocker = $2 LIMIT 1";
pub const SHIFT_DEPENDENTS: &str = "UPDATE tasks SET open_blockers = open_blockers + $3 \
     WHERE seq = ANY (ARRAY(SELECT i.seq FROM edges e JOIN ids i ON i.scope = e.scope AND i.id = e.task \
         WHERE e.scope = $1 AND e.blocker = $2))";

/// `SELECT` an event, then what follows.
macro_rules! events {
    ($($rest:literal),+) => {
        concat!(
            "SELECT e.seq, e.scope, e.task, e.number, e.at, e.kind, e.from_status, e.to_status, e.actor, e.fence, \
             e.policy, e.data, e.xid FROM events e ",
            $($rest),+
        )
    };
}
pub(super) use events;

/// One event in a row of its own; an event's number is at most 15 above that of its row.
pub const APPEND: &str = "WITH place AS MATERIALIZED (SELECT coalesce($12::bigint, nextval('journal_seq_seq')) AS seq), \
     marked AS (UPDATE tasks t SET told = p.seq, told_before = t.told FROM place p \
         WHERE t.seq = (SELECT i.seq FROM ids i WHERE i.scope = $1 AND i.id = $2) RETURNING t.told_before) \
     INSERT INTO journal (seq, at, scope, policy, events) OVERRIDING SYSTEM VALUE \
     SELECT p.seq, $4, $1, $10, ARRAY[ROW($2::text, $3::bigint, $5::text, $6::text, $7::text, $8::text, $9::bigint, \
         coalesce((SELECT m.told_before FROM marked m), 0), $11::text)::told] FROM place p RETURNING seq";
pub const EVENTS: &str = events!(
    "WHERE e.scope = $1 AND e.in_row > $2::bigint - 16 AND e.seq > $2 ORDER BY e.in_row, e.place LIMIT $3"
);
pub const EVENTS_NEWEST: &str = events!(
    "WHERE e.scope = $1 AND e.in_row > $2::bigint - 16 AND e.seq > $2 ORDER BY e.in_row DESC, e.place DESC LIMIT $3"
);

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

pub const ADD_USAGE: &str = "INSERT INTO usage (scope, task, day, upstream, model, requests, input_tokens, \
     output_tokens, cache_read_tokens, wait_ms, spend_nanos) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
     ON CONFLICT (scope, task, day, upstream, model) DO UPDATE SET requests = usage.requests + excluded.requests, \
     input_tokens = usage.input_tokens + excluded.input_tokens, \
     output_tokens = usage.output_tokens + excluded.output_tokens, \
     cache_read_tokens = usage.cache_read_tokens + excluded.cache_read_tokens, \
     wait_ms = usage.wait_ms + excluded.wait_ms, spend_nanos = usage.spend_nanos + excluded.spend_nanos";
pub const USAGE: &str = "SELECT scope, task, day, upstream, model, requests, input_tokens, output_tokens, \
     cache_read_tokens, wait_ms, spend_nanos FROM usage WHERE ($1::text IS NULL OR scope = $1) \
     AND ($2::text IS NULL OR task = $2) AND ($3::bigint IS NULL OR day = $3) \
     ORDER BY scope, task, day, upstream, model";
pub const ADD_GATE_TOKEN: &str = "INSERT INTO gate_tokens (hash, scope, task, level, made_at, expires_at) \
     VALUES ($1, $2, $3, $4, $5, $6)";
pub const GATE_TOKEN: &str =
    "SELECT hash, scope, task, level, made_at, expires_at FROM gate_tokens WHERE hash = $1";

/// What granted tasks wait for, read outside a transaction; `{schema}` is the name of ours.
pub const BLOCKERS_OF_GRANTS: &str = "SELECT t.id, t.title, t.status, t.result, e.task FROM {schema}.edges e \
     JOIN {schema}.ids i ON i.scope = e.scope AND i.id = e.blocker JOIN {schema}.tasks t ON t.seq = i.seq \
     WHERE e.scope = $1 AND e.task = ANY($2) ORDER BY e.task, t.id";
/// A queue keeps its name for ever.
pub const QUEUE_NAME: &str = "SELECT name FROM {schema}.queues WHERE key = $1";
/// Settles, then grants, in one round trip; `{schema}` is the name of ours.
pub const TURN_AT_ONCE: &str = "SELECT place, is_step, at, task FROM {schema}.turn_at_once($1, $2, $3, \
     $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)";
/// The same with the task column by column, for who cannot ask what the type of a task is.
pub const TURN_IN_COLUMNS: &str = "SELECT place, is_step, at, (task).* FROM {schema}.turn_at_once($1, $2, \
     $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)";
/// Adds by one statement.
pub const ADD_AT_ONCE: &str = "SELECT added_at, added FROM {schema}.add_at_once($1, $2, $3, $4, $5, $6, $7, $8, $9, \
     $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)";
/// The same for one task: as a statement it takes half the server's time of the function.
pub const ADD_ONE: &str = "WITH added AS (INSERT INTO {schema}.tasks (queue, created_at, updated_at, open_since, fence, \
         events, iteration, tries, attempts, limited_in_row, depth, open_blockers, stage, sort_priority, static_score, \
         ready_at, told, guarded, bucketed, artifact_present, scope, id, status, kind, host, title, next_eligible_at, \
         spec_ref, priority, parent_iteration, description, category, steps, reference, payload) \
     SELECT q.key, n.now, n.now, n.now, 0, 1, 0, 0, 0, 0, 0, 0, CASE WHEN $21 > n.now THEN 1 ELSE 2 END, \
         $19::bigint, $20::bigint, greatest($21, n.now), nextval('{schema}.journal_seq_seq'), $7, $8, false, $1, $10, \
         'open', $11, '', $12, $21::bigint, $15::text, $18::bigint, $22::bigint, $13::text, $14::text, $23::text, \
         $16::text, $17::text \
     FROM (SELECT coalesce($6::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now) n, \
         {schema}.queues q WHERE q.scope = $1 AND q.name = $2 \
         AND $3::text IS NOT DISTINCT FROM (SELECT p.version FROM {schema}.policies p WHERE p.scope = $1 \
             ORDER BY p.number DESC LIMIT 1) \
         AND NOT EXISTS (SELECT 1 FROM {schema}.ids i WHERE i.scope = $1 AND i.id = $10) \
         AND NOT EXISTS (SELECT 1 FROM {schema}.retired r WHERE r.scope = $1 AND r.id = $10) \
     RETURNING seq, created_at, told), \
     named AS (INSERT INTO {schema}.ids (seq, scope, id) SELECT a.seq, $1, $10 FROM added a), \
     told AS (INSERT INTO {schema}.journal (seq, at, scope, policy, call, events) OVERRIDING SYSTEM VALUE \
     SELECT a.told, a.created_at, $1, $4, $9::bigint, ARRAY[ROW($10, 1, 'created', NULL, 'open', $5::text, NULL, 0, \
         '{\"seq\":' || a.seq || $24::text)::{schema}.told] FROM added a) \
     SELECT a.created_at, ARRAY[a.seq] FROM added a";

/// Tasks in the order of their insertion, with what is derived from them.
pub const PAGE: &str = select!("WHERE t.scope = $1 AND t.seq > $2 ORDER BY t.seq LIMIT $3");
pub const FINISHED: &str = select!(
    "WHERE t.scope = $1 AND t.seq < $2 AND t.status IN ('done', 'failed', 'invalidated', 'deleted') \
       AND t.updated_at < $3 ORDER BY t.seq DESC LIMIT $4"
);
/// A task with its own insertion number, which comes last.
pub const RESTORE: &str = "WITH added AS (INSERT INTO tasks (scope, id, queue, kind, priority, parent, depth, triggered_by, \
     parent_iteration, host, title, description, category, steps, spec_ref, reference, payload, sort_priority, \
     created_at, status, artifact_present, iteration, tries, attempts, limited_in_row, fence, assignee, \
     lease_expires_at, next_eligible_at, open_since, result, fail_reason, parked_reason, updated_at, started_at, \
     finished_at, events, open_blockers, stage, static_score, ready_at, guarded, bucketed, seq) \
     OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, \
     $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, \
     $40, $41, $42, $43, $44) RETURNING seq, scope, id) INSERT INTO ids (seq, scope, id) SELECT seq, scope, id FROM added";

/// Name, text, and the index that must serve it.
#[cfg(feature = "conformance")]
pub const SERVED: &[(&str, &str, &str)] = &[
    ("TASK", TASK, "ids_pkey"),
    ("TASK_LOCKED", TASK_LOCKED, "ids_pkey"),
    ("TASKS", TASKS, "ids_pkey"),
    ("TASKS_LOCKED", TASKS_LOCKED, "ids_pkey"),
    ("TASKS_BY_SEQ", TASKS_BY_SEQ, "tasks_pkey"),
    ("CHILDREN", CHILDREN, "tasks_children"),
    ("DEPENDENTS", DEPENDENTS, "edges_blocker"),
    ("LOCK_DEPENDENTS", LOCK_DEPENDENTS, "edges_blocker"),
    ("EXPIRED", EXPIRED, "tasks_active"),
    ("EXPIRED_LOCKED", EXPIRED_LOCKED, "tasks_active"),
    ("NEXT_PRIORITY", NEXT_PRIORITY, "tasks_ready"),
    ("NEXT_PLAIN_PRIORITY", NEXT_PLAIN_PRIORITY, "tasks_plain"),
    ("BUCKET_HEADS", BUCKET_HEADS, "tasks_ready"),
    ("BUCKET_HEADS, overdue", BUCKET_HEADS, "tasks_overdue"),
    ("LOCK_HEADS", LOCK_HEADS, "tasks_pkey"),
    ("PLAIN_HEADS", PLAIN_HEADS, "tasks_plain"),
    ("PLAIN_HEADS_LOCKED", PLAIN_HEADS_LOCKED, "tasks_plain"),
    ("ADMIT_DUE", ADMIT_DUE, "tasks_cooling"),
    ("AWAITING_ARTIFACT", AWAITING_ARTIFACT, "tasks_awaiting"),
    ("NEXT_DUE", NEXT_DUE, "tasks_cooling"),
    ("ACTIVE_BY_KIND", ACTIVE_BY_KIND, "tasks_active"),
    ("RANK_DUE", RANK_DUE, "tasks_cooling"),
    ("UPDATE_STATE", UPDATE_STATE, "tasks_pkey"),
    ("UPDATE_FIELDS", UPDATE_FIELDS, "tasks_pkey"),
    ("BLOCKERS", BLOCKERS, "edges_pkey"),
    ("EDGES", EDGES, "edges_pkey"),
    ("HAS_DEPENDENTS", HAS_DEPENDENTS, "edges_blocker"),
    ("SHIFT_DEPENDENTS", SHIFT_DEPENDENTS, "ids_pkey"),
    ("EVENTS", EVENTS, "journal_pkey"),
];
