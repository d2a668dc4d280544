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

-- One answer for the program's clock and this one: UTC milliseconds as RFC 3339.
CREATE FUNCTION {schema}.rfc3339(millis BIGINT) RETURNS TEXT LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT to_char(timestamp 'epoch' + millis * interval '1 millisecond', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- Grants leases of a queue without buckets in one round trip. A row with seq = -1 says: not at once, there is
-- more to do than this can (another policy is in force, leases to take back, tasks to let in, no such queue).
CREATE FUNCTION {schema}.claim_at_once(
    p_scope TEXT, p_queue TEXT, p_limit BIGINT, p_ceiling BIGINT, p_auto BOOLEAN, p_agent TEXT, p_ttl BIGINT,
    p_now BIGINT, p_host TEXT, p_published TEXT, p_version TEXT, p_actor TEXT
) RETURNS TABLE (granted_task {schema}.tasks, blocker_list TEXT) LANGUAGE plpgsql SET lock_timeout = '30s' AS $$
DECLARE
    v_queue {schema}.queues;
    v_now BIGINT;
    v_limit BIGINT := p_limit;
    v_more {schema}.tasks;
BEGIN
    v_more.seq := -1;
    -- A bounded queue is locked in one statement and counted in a later one, which sees what the wait was for.
    IF p_ceiling IS NOT NULL THEN
        PERFORM 1 FROM {schema}.queues q WHERE q.scope = p_scope AND q.name = p_queue FOR UPDATE;
    END IF;
    SELECT * INTO v_queue FROM {schema}.queues q WHERE q.scope = p_scope AND q.name = p_queue;
    v_now := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    IF v_queue.key IS NULL
        OR (SELECT p.version FROM {schema}.policies p WHERE p.scope = p_scope ORDER BY p.number DESC LIMIT 1)
            IS DISTINCT FROM p_published
        OR (p_auto AND EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.queue = v_queue.key AND t.status = 'active'
            AND t.lease_expires_at <= v_now))
        OR EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.queue = v_queue.key AND t.stage = 1
            AND t.next_eligible_at <= v_now)
    THEN
        RETURN QUERY SELECT v_more, NULL::text;
        RETURN;
    END IF;
    IF p_ceiling IS NOT NULL THEN
        SELECT least(p_limit, p_ceiling - count(*)) INTO v_limit FROM {schema}.tasks t
        WHERE t.queue = v_queue.key AND t.status = 'active';
    END IF;
    IF v_queue.paused OR v_limit <= 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH picked AS MATERIALIZED (
        SELECT t.seq FROM {schema}.tasks t
        WHERE t.queue = v_queue.key AND t.stage = 2 AND NOT t.bucketed
            AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= v_now)
            AND (t.host = '' OR p_host IS NULL OR t.host = p_host)
        ORDER BY t.sort_priority, t.created_at, t.seq LIMIT v_limit FOR NO KEY UPDATE SKIP LOCKED
    ), granted AS (
        UPDATE {schema}.tasks t SET status = 'active', fence = t.fence + 1, assignee = p_agent,
            lease_expires_at = least(v_now + p_ttl, 253402207200000), started_at = v_now, updated_at = v_now,
            events = t.events + 1, stage = 0
        FROM picked WHERE t.seq = picked.seq RETURNING t.*
    ), journalled AS (
        INSERT INTO {schema}.journal
            (scope, task, number, at, kind, from_status, to_status, actor, fence, policy, data)
        SELECT g.scope, g.id, g.events, v_now, 'granted', 'open', 'active', p_actor, g.fence, p_version,
            '{"changes":{"assignee":' || coalesce(to_json(g.assignee)::text, 'null') || ',"fence":' || g.fence
            || ',"leaseExpiresAt":"' || {schema}.rfc3339(g.lease_expires_at) || '","startedAt":"'
            || {schema}.rfc3339(v_now) || '"}' || CASE WHEN g.triggered_by IS NULL THEN '}'
                ELSE ',"facts":{"artifactPresent":' || g.artifact_present::text || '}}' END
        FROM granted g
    )
    SELECT ROW(g.*)::{schema}.tasks, (
        SELECT json_agg(json_build_object('id', b.id, 'title', b.title, 'status', b.status, 'result', b.result)
            ORDER BY b.id)::text
        FROM {schema}.edges e JOIN {schema}.tasks b ON b.scope = e.scope AND b.id = e.blocker
        WHERE e.scope = g.scope AND e.task = g.id
    ) FROM granted g ORDER BY g.sort_priority, g.created_at, g.seq;
END $$;

-- Settles tasks as done in one round trip, those that it can: held by the caller, and nobody waits for them. The
-- rows are locked in one statement and judged in the next. Those that do not come back are not settled.
CREATE FUNCTION {schema}.done_at_once(
    p_scope TEXT, p_ids TEXT[], p_fences BIGINT[], p_agents TEXT[], p_results TEXT[], p_strict TEXT[], p_now BIGINT,
    p_published TEXT, p_version TEXT, p_actor TEXT
) RETURNS SETOF {schema}.tasks LANGUAGE plpgsql SET lock_timeout = '30s' AS $$
DECLARE
    v_now BIGINT;
BEGIN
    PERFORM 1 FROM {schema}.tasks t WHERE t.scope = p_scope AND t.id = ANY(p_ids) ORDER BY t.id FOR NO KEY UPDATE;
    v_now := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    IF (SELECT p.version FROM {schema}.policies p WHERE p.scope = p_scope ORDER BY p.number DESC LIMIT 1)
        IS DISTINCT FROM p_published
    THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH wanted AS (
        SELECT * FROM unnest(p_ids, p_fences, p_agents, p_results) AS u (id, fence, agent, result)
    ), held AS MATERIALIZED (
        SELECT t.seq, w.result FROM wanted w JOIN {schema}.tasks t ON t.scope = p_scope AND t.id = w.id
        WHERE t.status = 'active' AND (w.fence IS NULL OR w.fence = t.fence)
            AND (w.agent IS NULL OR t.assignee IS NULL OR w.agent = t.assignee)
            AND (w.fence IS NOT NULL OR p_strict = '{}'
                OR NOT EXISTS (SELECT 1 FROM {schema}.queues q WHERE q.key = t.queue AND q.name = ANY(p_strict)))
            AND NOT EXISTS (SELECT 1 FROM {schema}.edges e WHERE e.scope = p_scope AND e.blocker = t.id)
            AND NOT EXISTS (SELECT 1 FROM {schema}.tasks c WHERE c.scope = p_scope AND c.parent = t.id)
    ), settled AS (
        UPDATE {schema}.tasks t SET status = 'done', lease_expires_at = NULL, result = held.result,
            finished_at = v_now, updated_at = v_now, limited_in_row = 0, events = t.events + 1, stage = 0
        FROM held WHERE t.seq = held.seq RETURNING t.*
    ), journalled AS (
        INSERT INTO {schema}.journal
            (scope, task, number, at, kind, from_status, to_status, actor, fence, policy, data)
        SELECT s.scope, s.id, s.events, v_now, 'done', 'active', 'done', p_actor, s.fence, p_version,
            '{"outcome":"done","changes":{"finishedAt":"' || {schema}.rfc3339(v_now)
            || '","leaseExpiresAt":null,"limitedInRow":0'
            || ',"result":' || coalesce(s.result, 'null') || '}}'
        FROM settled s
    )
    SELECT s.* FROM settled s;
END $$;

-- Both in one transaction: the claim only once everything is settled, because that may be what makes room for it.
CREATE FUNCTION {schema}.next_at_once(
    p_scope TEXT, p_ids TEXT[], p_fences BIGINT[], p_agents TEXT[], p_results TEXT[], p_strict TEXT[], p_now BIGINT,
    p_published TEXT, p_version TEXT, p_actor TEXT,
    p_queue TEXT, p_limit BIGINT, p_ceiling BIGINT, p_auto BOOLEAN, p_agent TEXT, p_ttl BIGINT, p_host TEXT
) RETURNS TABLE (granted_task {schema}.tasks, blocker_list TEXT, is_step BOOLEAN) LANGUAGE plpgsql AS $$
DECLARE
    v_settled BIGINT := 0;
    v_more {schema}.tasks;
BEGIN
    v_more.seq := -1;
    -- A claim that will be refused settles nothing.
    IF NOT EXISTS (SELECT 1 FROM {schema}.queues q WHERE q.scope = p_scope AND q.name = p_queue) THEN
        RETURN QUERY SELECT v_more, NULL::text, false;
        RETURN;
    END IF;
    FOR granted_task IN SELECT * FROM {schema}.done_at_once(
        p_scope, p_ids, p_fences, p_agents, p_results, p_strict, p_now, p_published, p_version, p_actor)
    LOOP
        v_settled := v_settled + 1;
        is_step := true;
        RETURN NEXT;
    END LOOP;
    IF v_settled = cardinality(p_ids) THEN
        RETURN QUERY SELECT c.granted_task, c.blocker_list, false FROM {schema}.claim_at_once(
            p_scope, p_queue, p_limit, p_ceiling, p_auto, p_agent, p_ttl, p_now, p_host, p_published, p_version,
            p_actor) c;
    ELSE
        RETURN QUERY SELECT v_more, NULL::text, false;
    END IF;
END $$;
