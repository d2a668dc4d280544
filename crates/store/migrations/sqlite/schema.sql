-- The schema, in one piece until the first release: a change edits this file and raises its number
-- (`sqlite::open::SCHEMA`). From then on migrations are only added.

-- Queues come into being with their first task, or by name in the policy.
CREATE TABLE queues (
    key     INTEGER PRIMARY KEY,
    scope   TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    paused  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (scope, name)
) STRICT;

-- Times are UTC milliseconds. kind and host are '' for none, so that they can be index columns.
CREATE TABLE tasks (
    seq                INTEGER PRIMARY KEY,
    scope              TEXT    NOT NULL,
    id                 TEXT    NOT NULL,
    queue              INTEGER NOT NULL REFERENCES queues (key),
    kind               TEXT    NOT NULL,
    priority           INTEGER,
    priority_inherited INTEGER NOT NULL,
    status             TEXT    NOT NULL,
    parent             TEXT,
    depth              INTEGER NOT NULL,
    triggered_by       TEXT,
    parent_iteration   INTEGER,
    trigger_hash       TEXT,
    discovered_from    TEXT,
    artifact_present   INTEGER NOT NULL,
    iteration          INTEGER NOT NULL,
    tries              INTEGER NOT NULL,
    attempts           INTEGER NOT NULL,
    limited_in_row     INTEGER NOT NULL,
    fast_failures      INTEGER NOT NULL,
    filed              INTEGER NOT NULL,
    fence              INTEGER NOT NULL,
    assignee           TEXT,
    lease_expires_at   INTEGER,
    next_eligible_at   INTEGER,
    open_since         INTEGER NOT NULL,
    host               TEXT    NOT NULL,
    title              TEXT    NOT NULL,
    description        TEXT,
    category           TEXT,
    steps              TEXT,
    spec_ref           TEXT,
    reference          TEXT,
    payload            TEXT,
    result             TEXT,
    fail_reason        TEXT,
    parked_reason      TEXT,
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    started_at         INTEGER,
    finished_at        INTEGER,
    events             INTEGER NOT NULL,
    -- Derived, so that choosing is served from an index; `rota doctor` recounts them.
    open_blockers      INTEGER NOT NULL,
    stage              INTEGER NOT NULL,
    sort_priority      INTEGER NOT NULL,
    static_score       INTEGER NOT NULL,
    ready_at           INTEGER NOT NULL,
    guarded            INTEGER NOT NULL,
    UNIQUE (scope, id)
) STRICT;

-- Within one bucket (queue, priority, kind, host, static score) the order never changes with time.
CREATE INDEX tasks_ready ON tasks (queue, sort_priority, kind, host, static_score, created_at, seq) WHERE stage = 2;
-- The head of each of these is the next overdue one.
CREATE INDEX tasks_overdue ON tasks (queue, sort_priority, kind, host, ready_at, created_at, seq)
    WHERE stage = 2 AND guarded = 1;
CREATE INDEX tasks_cooling ON tasks (queue, next_eligible_at) WHERE stage = 1;
CREATE INDEX tasks_active ON tasks (queue, lease_expires_at, kind) WHERE status = 'active';
CREATE INDEX tasks_children ON tasks (scope, parent) WHERE parent IS NOT NULL;
CREATE INDEX tasks_specs ON tasks (scope, spec_ref) WHERE spec_ref IS NOT NULL;

CREATE TABLE edges (
    scope   TEXT NOT NULL,
    task    TEXT NOT NULL,
    blocker TEXT NOT NULL,
    PRIMARY KEY (scope, task, blocker),
    FOREIGN KEY (scope, task) REFERENCES tasks (scope, id),
    FOREIGN KEY (scope, blocker) REFERENCES tasks (scope, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX edges_blocker ON edges (scope, blocker, task);

-- What happened. The tables above are a fold of it.
CREATE TABLE journal (
    seq         INTEGER PRIMARY KEY,
    scope       TEXT    NOT NULL,
    task        TEXT,
    number      INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    from_status TEXT,
    to_status   TEXT,
    actor       TEXT,
    fence       INTEGER,
    policy      TEXT,
    data        TEXT    NOT NULL
) STRICT;
CREATE UNIQUE INDEX journal_task ON journal (scope, task, number) WHERE task IS NOT NULL;

CREATE TABLE policies (
    scope        TEXT    NOT NULL,
    number       INTEGER NOT NULL,
    version      TEXT    NOT NULL,
    document     TEXT    NOT NULL,
    published_at INTEGER NOT NULL,
    actor        TEXT,
    PRIMARY KEY (scope, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE agents (
    scope      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    host       TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    stopped_at INTEGER,
    PRIMARY KEY (scope, id)
) STRICT, WITHOUT ROWID;

-- The gate's block per upstream: a restart or another host knows it.
CREATE TABLE blocks (
    upstream      TEXT    NOT NULL PRIMARY KEY,
    blocked_until INTEGER,
    hits          INTEGER NOT NULL,
    reason        TEXT,
    updated_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The last fence of each id that was pruned: a task that is added again under it goes on from there.
CREATE TABLE retired (
    scope TEXT    NOT NULL,
    id    TEXT    NOT NULL,
    fence INTEGER NOT NULL,
    PRIMARY KEY (scope, id)
) STRICT, WITHOUT ROWID;

-- What waits for an artifact is looked at again and again, and is little.
CREATE INDEX tasks_awaiting ON tasks (queue, seq)
    WHERE status = 'open' AND triggered_by IS NOT NULL AND artifact_present = 0;

-- What the gateway let through, per task and day. The task may be gone, or none (an empty text).
CREATE TABLE usage (
    scope             TEXT    NOT NULL,
    task              TEXT    NOT NULL,
    day               INTEGER NOT NULL,
    upstream          TEXT    NOT NULL,
    model             TEXT    NOT NULL,
    requests          INTEGER NOT NULL,
    input_tokens      INTEGER NOT NULL,
    output_tokens     INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    wait_ms           INTEGER NOT NULL,
    spend_nanos       INTEGER NOT NULL,
    PRIMARY KEY (scope, task, day, upstream, model)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_of_day ON usage (day);

-- Tokens that people made for agents of their own. Only a hash is kept.
CREATE TABLE gate_tokens (
    hash       TEXT    NOT NULL PRIMARY KEY,
    scope      TEXT    NOT NULL,
    task       TEXT,
    level      TEXT,
    made_at    INTEGER NOT NULL,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;

-- The newest time that a host's clock gave to an event, to a second. At most one row.
CREATE TABLE clock (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    newest_at INTEGER NOT NULL
) STRICT;
