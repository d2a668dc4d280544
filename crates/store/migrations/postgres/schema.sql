-- The schema, in one piece until the first release: a change edits this file and raises its number
-- (`postgres::SCHEMA`). From then on migrations are only added. There are no functions and no triggers: core decides, and
-- these tables hold what it decided.

-- Queues come into being with their first task, or by name in the policy.
CREATE TABLE queues (
    key    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope  TEXT COLLATE "C" NOT NULL,
    name   TEXT COLLATE "C" NOT NULL,
    paused BOOLEAN NOT NULL DEFAULT false,
    UNIQUE (scope, name)
);

-- Times are UTC milliseconds. kind and host are '' for none, so that they can be index columns. Columns of a fixed width
-- that indexes need come first, where they are found without reading the ones before them.
CREATE TABLE tasks (
    seq                BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- No foreign key: queues are never deleted, and the check would lock the queue's row at every insert.
    queue              BIGINT NOT NULL,
    created_at         BIGINT NOT NULL,
    -- Derived, so that choosing is served from an index; `rota doctor` recounts them.
    stage              BIGINT NOT NULL,
    sort_priority      BIGINT NOT NULL,
    static_score       BIGINT NOT NULL,
    ready_at           BIGINT NOT NULL,
    fence              BIGINT NOT NULL,
    events             BIGINT NOT NULL,
    limited_in_row     BIGINT NOT NULL,
    updated_at         BIGINT NOT NULL,
    open_since         BIGINT NOT NULL,
    iteration          BIGINT NOT NULL,
    tries              BIGINT NOT NULL,
    attempts           BIGINT NOT NULL,
    fast_failures      BIGINT NOT NULL,
    filed              BIGINT NOT NULL,
    depth              BIGINT NOT NULL,
    -- Derived as well.
    open_blockers      BIGINT NOT NULL,
    bucketed           BOOLEAN NOT NULL,
    guarded            BOOLEAN NOT NULL,
    artifact_present   BOOLEAN NOT NULL,
    priority_inherited BOOLEAN NOT NULL,
    scope              TEXT COLLATE "C" NOT NULL,
    id                 TEXT COLLATE "C" NOT NULL,
    status             TEXT COLLATE "C" NOT NULL,
    kind               TEXT COLLATE "C" NOT NULL,
    host               TEXT COLLATE "C" NOT NULL,
    title              TEXT COLLATE "C" NOT NULL,
    lease_expires_at   BIGINT,
    next_eligible_at   BIGINT,
    assignee           TEXT COLLATE "C",
    result             TEXT COLLATE "C",
    started_at         BIGINT,
    finished_at        BIGINT,
    parent             TEXT COLLATE "C",
    triggered_by       TEXT COLLATE "C",
    spec_ref           TEXT COLLATE "C",
    description        TEXT COLLATE "C",
    category           TEXT COLLATE "C",
    priority           BIGINT,
    parent_iteration   BIGINT,
    steps              TEXT COLLATE "C",
    reference          TEXT COLLATE "C",
    payload            TEXT COLLATE "C",
    fail_reason        TEXT COLLATE "C",
    parked_reason      TEXT COLLATE "C",
    trigger_hash       TEXT COLLATE "C",
    discovered_from    TEXT COLLATE "C",
    -- The id first: it is what differs.
    CONSTRAINT tasks_scope_id_key UNIQUE (id, scope)
);

-- Within one bucket (queue, priority, kind, host, static score) the order never changes with time.
CREATE INDEX tasks_ready ON tasks (queue, sort_priority, kind, host, static_score, created_at, seq)
    WHERE stage = 2 AND bucketed;
-- A queue without scores and ceilings by kind has one order for all.
CREATE INDEX tasks_plain ON tasks (queue, sort_priority, created_at, seq) WHERE stage = 2 AND NOT bucketed;
-- The head of each of these is the next overdue one.
CREATE INDEX tasks_overdue ON tasks (queue, sort_priority, kind, host, ready_at, created_at, seq)
    WHERE stage = 2 AND guarded;
CREATE INDEX tasks_cooling ON tasks (queue, next_eligible_at) WHERE stage = 1;
CREATE INDEX tasks_active ON tasks (queue, lease_expires_at, kind) WHERE status = 'active';
CREATE INDEX tasks_children ON tasks (scope, parent) WHERE parent IS NOT NULL;
CREATE INDEX tasks_specs ON tasks (scope, spec_ref) WHERE spec_ref IS NOT NULL;
-- What waits for an artifact is looked at again and again, and is little.
CREATE INDEX tasks_awaiting ON tasks (queue, seq)
    WHERE status = 'open' AND triggered_by IS NOT NULL AND NOT artifact_present;

CREATE TABLE edges (
    scope   TEXT COLLATE "C" NOT NULL,
    task    TEXT COLLATE "C" NOT NULL,
    blocker TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, task, blocker),
    FOREIGN KEY (scope, task) REFERENCES tasks (scope, id),
    FOREIGN KEY (scope, blocker) REFERENCES tasks (scope, id)
);
CREATE INDEX edges_blocker ON edges (scope, blocker, task);

-- What happened, one row per event. The tables above are a fold of it.
CREATE TABLE journal (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    number      BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    -- Transactions commit out of order; a follower reads up to the oldest one still open.
    xid         BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    fence       BIGINT,
    scope       TEXT COLLATE "C" NOT NULL,
    task        TEXT COLLATE "C",
    kind        TEXT COLLATE "C" NOT NULL,
    from_status TEXT COLLATE "C",
    to_status   TEXT COLLATE "C",
    actor       TEXT COLLATE "C",
    policy      TEXT COLLATE "C",
    data        TEXT COLLATE "C" NOT NULL
);
CREATE INDEX journal_xid ON journal USING brin (xid) WITH (autosummarize = on, pages_per_range = 16);
CREATE UNIQUE INDEX journal_task ON journal (task, number, scope) WHERE task IS NOT NULL;

CREATE TABLE policies (
    scope        TEXT COLLATE "C" NOT NULL,
    number       BIGINT NOT NULL,
    version      TEXT COLLATE "C" NOT NULL,
    document     TEXT COLLATE "C" NOT NULL,
    published_at BIGINT NOT NULL,
    actor        TEXT COLLATE "C",
    PRIMARY KEY (scope, number)
);

CREATE TABLE agents (
    scope      TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    pid        BIGINT NOT NULL,
    host       TEXT COLLATE "C" NOT NULL,
    started_at BIGINT NOT NULL,
    stopped_at BIGINT,
    PRIMARY KEY (scope, id)
);

-- The gate's block per upstream: a restart or another host knows it.
CREATE TABLE blocks (
    upstream      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    blocked_until BIGINT,
    hits          BIGINT NOT NULL,
    reason        TEXT COLLATE "C",
    updated_at    BIGINT NOT NULL
);

-- The last fence of each id that was pruned: a task that is added again under it goes on from there.
CREATE TABLE retired (
    scope TEXT COLLATE "C" NOT NULL,
    id    TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    PRIMARY KEY (scope, id)
);

-- What the gateway let through, per task and day. The task may be gone, or none (an empty text).
CREATE TABLE usage (
    scope             TEXT COLLATE "C" NOT NULL,
    task              TEXT COLLATE "C" NOT NULL,
    day               BIGINT NOT NULL,
    upstream          TEXT COLLATE "C" NOT NULL,
    model             TEXT COLLATE "C" NOT NULL,
    requests          BIGINT NOT NULL,
    input_tokens      BIGINT NOT NULL,
    output_tokens     BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL,
    wait_ms           BIGINT NOT NULL,
    spend_nanos       BIGINT NOT NULL,
    PRIMARY KEY (scope, task, day, upstream, model)
);

CREATE INDEX usage_of_day ON usage (day);

-- Tokens that people made for agents of their own. Only a hash is kept.
CREATE TABLE gate_tokens (
    hash       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    scope      TEXT COLLATE "C" NOT NULL,
    task       TEXT COLLATE "C",
    level      TEXT COLLATE "C",
    made_at    BIGINT NOT NULL,
    expires_at BIGINT
);
