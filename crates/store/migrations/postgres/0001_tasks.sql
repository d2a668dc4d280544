-- Queues come into being with their first task, or by name in the policy.
CREATE TABLE queues (
    key     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope   TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    paused  BOOLEAN NOT NULL DEFAULT false,
    UNIQUE (scope, name)
);

-- Times are UTC milliseconds. kind and host are '' for none, so that they can be index columns.
CREATE TABLE tasks (
    seq              BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope            TEXT COLLATE "C" NOT NULL,
    id               TEXT COLLATE "C" NOT NULL,
    queue            BIGINT NOT NULL REFERENCES queues (key),
    kind             TEXT COLLATE "C" NOT NULL,
    priority         BIGINT,
    status           TEXT COLLATE "C" NOT NULL,
    parent           TEXT COLLATE "C",
    depth            BIGINT NOT NULL,
    triggered_by     TEXT COLLATE "C",
    parent_iteration BIGINT,
    artifact_present BOOLEAN NOT NULL,
    iteration        BIGINT NOT NULL,
    tries            BIGINT NOT NULL,
    attempts         BIGINT NOT NULL,
    limited_in_row   BIGINT NOT NULL,
    fence            BIGINT NOT NULL,
    assignee         TEXT COLLATE "C",
    lease_expires_at BIGINT,
    next_eligible_at BIGINT,
    open_since       BIGINT NOT NULL,
    host             TEXT COLLATE "C" NOT NULL,
    title            TEXT COLLATE "C" NOT NULL,
    description      TEXT COLLATE "C",
    category         TEXT COLLATE "C",
    steps            TEXT COLLATE "C",
    spec_ref         TEXT COLLATE "C",
    reference        TEXT COLLATE "C",
    payload          TEXT COLLATE "C",
    result           TEXT COLLATE "C",
    fail_reason      TEXT COLLATE "C",
    parked_reason    TEXT COLLATE "C",
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    started_at       BIGINT,
    finished_at      BIGINT,
    events           BIGINT NOT NULL,
    -- Derived, so that choosing is served from an index; `rota doctor` recounts them.
    open_blockers    BIGINT NOT NULL,
    stage            BIGINT NOT NULL,
    sort_priority    BIGINT NOT NULL,
    static_score     BIGINT NOT NULL,
    ready_at         BIGINT NOT NULL,
    guarded          BOOLEAN NOT NULL,
    bucketed         BOOLEAN NOT NULL,
    UNIQUE (scope, id)
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

CREATE TABLE edges (
    scope   TEXT COLLATE "C" NOT NULL,
    task    TEXT COLLATE "C" NOT NULL,
    blocker TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, task, blocker),
    FOREIGN KEY (scope, task) REFERENCES tasks (scope, id),
    FOREIGN KEY (scope, blocker) REFERENCES tasks (scope, id)
);
CREATE INDEX edges_blocker ON edges (scope, blocker, task);

-- What happened. The tables above are a fold of it.
CREATE TABLE journal (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope       TEXT COLLATE "C" NOT NULL,
    task        TEXT COLLATE "C",
    number      BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    from_status TEXT COLLATE "C",
    to_status   TEXT COLLATE "C",
    actor       TEXT COLLATE "C",
    fence       BIGINT,
    policy      TEXT COLLATE "C",
    data        TEXT COLLATE "C" NOT NULL,
    -- Transactions commit out of order; a follower reads up to the oldest one still open.
    xid         BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint
);
CREATE INDEX journal_xid ON journal USING brin (xid) WITH (autosummarize = on, pages_per_range = 16);
CREATE UNIQUE INDEX journal_task ON journal (scope, task, number) WHERE task IS NOT NULL;

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
