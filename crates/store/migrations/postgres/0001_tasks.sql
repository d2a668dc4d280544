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
    -- No foreign key: queues are never deleted, and the check would lock the queue's row at every insert.
    queue            BIGINT NOT NULL,
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
    -- Whether a task ever waited for this one, as dependent or child: then more than its own row changes when it is
    -- done. In the row, so that who waited for the row's lock sees it.
    awaited          BOOLEAN NOT NULL DEFAULT false,
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

CREATE FUNCTION {schema}.is_awaited() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.tasks t SET awaited = true
    WHERE t.scope = NEW.scope AND t.id = to_jsonb(NEW) ->> TG_ARGV[0] AND NOT t.awaited;
    RETURN NULL;
END $$;
CREATE TRIGGER blocker_is_awaited AFTER INSERT ON edges
    FOR EACH ROW EXECUTE FUNCTION {schema}.is_awaited('blocker');
CREATE TRIGGER parent_is_awaited AFTER INSERT OR UPDATE OF parent ON tasks
    FOR EACH ROW WHEN (NEW.parent IS NOT NULL) EXECUTE FUNCTION {schema}.is_awaited('parent');

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
    -- Names the call that wrote it, so that a caller who lost the answer finds out what was done; none for most.
    call        BIGINT,
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

-- Called once per turn of workers that take many tasks at once, or whose queue has a ceiling. Measured: planned anew
-- for each call, as a statement with a LIMIT that is only known then would be, a turn takes four times as long; hence
-- force_generic_plan, and only the scans and joins that stay right whatever the statistics say.

-- Settles tasks as done, those that it can (held by the caller, and nobody waits for them), and then, if all of them
-- were settled and a queue is named, grants leases of that queue, which has no buckets: one round trip, one
-- transaction. Steps that do not come back are not settled; a row with seq = -1 says that the claim was not tried,
-- because there is more to do than this can (another policy is in force, leases to take back, tasks to let in, no
-- such queue).
CREATE FUNCTION {schema}.turn_at_once(
    p_scope TEXT, p_ids TEXT[], p_fences BIGINT[], p_agents TEXT[], p_results TEXT[], p_strict TEXT[], p_now BIGINT,
    p_published TEXT, p_version TEXT, p_actor TEXT,
    p_queue TEXT, p_limit BIGINT, p_ceiling BIGINT, p_auto BOOLEAN, p_agent TEXT, p_ttl BIGINT, p_host TEXT,
    p_call BIGINT
) RETURNS TABLE (
    seq BIGINT, scope TEXT, id TEXT, queue_name TEXT, kind TEXT, priority BIGINT, status TEXT, parent TEXT,
    depth BIGINT, triggered_by TEXT, parent_iteration BIGINT, artifact_present BOOLEAN, iteration BIGINT,
    tries BIGINT, attempts BIGINT, limited_in_row BIGINT, fence BIGINT, assignee TEXT, lease_expires_at BIGINT,
    next_eligible_at BIGINT, open_since BIGINT, host TEXT, title TEXT, description TEXT, category TEXT, steps TEXT,
    spec_ref TEXT, reference TEXT, payload TEXT, result TEXT, fail_reason TEXT, parked_reason TEXT,
    created_at BIGINT, updated_at BIGINT, started_at BIGINT, finished_at BIGINT, events BIGINT, open_blockers BIGINT,
    blocker_list TEXT, is_step BOOLEAN
) LANGUAGE plpgsql SET lock_timeout = '30s' SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_queue BIGINT;
    v_paused BOOLEAN;
    v_other BOOLEAN;
    v_more BOOLEAN;
    v_now BIGINT;
    v_until BIGINT;
    v_limit BIGINT := p_limit;
    v_settled BIGINT := 0;
    v_data TEXT;
    v_until_data TEXT;
BEGIN
    -- A bounded queue is locked in one statement and counted in a later one, which sees what the wait was for.
    IF p_ceiling IS NOT NULL THEN
        PERFORM 1 FROM {schema}.queues q WHERE q.scope = p_scope AND q.name = p_queue FOR UPDATE;
    END IF;
    -- Task rows are locked in one statement and judged in a later one, too.
    IF p_ids <> '{}' THEN
        PERFORM 1 FROM {schema}.tasks t WHERE t.scope = p_scope AND t.id = ANY(p_ids)
        ORDER BY t.id FOR NO KEY UPDATE;
    END IF;
    v_now := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    SELECT q.key, q.paused, f.other_policy, f.other_policy OR q.key IS NULL
        OR (p_auto AND EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.queue = q.key AND t.status = 'active'
            AND t.lease_expires_at <= v_now AND t.id <> ALL (p_ids)))
        OR EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.queue = q.key AND t.stage = 1
            AND t.next_eligible_at <= v_now)
    INTO v_queue, v_paused, v_other, v_more
    FROM (SELECT p_published IS DISTINCT FROM (SELECT p.version FROM {schema}.policies p WHERE p.scope = p_scope
            ORDER BY p.number DESC LIMIT 1) AS other_policy) f
        LEFT JOIN {schema}.queues q ON q.scope = p_scope AND q.name = p_queue;
    -- A claim that will be refused settles nothing.
    IF p_queue IS NOT NULL AND v_queue IS NULL THEN
        seq := -1;
        is_step := false;
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_ids <> '{}' AND NOT v_other THEN
        v_data := '{"outcome":"done","changes":{"finishedAt":"'
            || to_char(timestamp 'epoch' + v_now * interval '1 millisecond', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
            || '","leaseExpiresAt":null';
        RETURN QUERY
        WITH held AS MATERIALIZED (
            -- OFFSET 0: each by its id, and never through the index of all that are active.
            SELECT t.seq, w.result, t.limited_in_row AS was_limited, t.result AS had_result
            FROM unnest(p_ids, p_fences, p_agents, p_results) AS w (id, fence, agent, result)
            CROSS JOIN LATERAL (
                SELECT * FROM {schema}.tasks t WHERE t.scope = p_scope AND t.id = w.id OFFSET 0
            ) t
            WHERE t.status = 'active' AND (w.fence IS NULL OR w.fence = t.fence)
                AND (w.agent IS NULL OR t.assignee IS NULL OR w.agent = t.assignee)
                AND (w.fence IS NOT NULL OR p_strict = '{}'
                    OR NOT EXISTS (SELECT 1 FROM {schema}.queues q WHERE q.key = t.queue AND q.name = ANY(p_strict)))
                AND NOT t.awaited
        ), settled AS (
            UPDATE {schema}.tasks t SET status = 'done', lease_expires_at = NULL, result = held.result,
                finished_at = v_now, updated_at = v_now, limited_in_row = 0, events = t.events + 1, stage = 0
            FROM held WHERE t.seq = held.seq RETURNING t.*, held.was_limited, held.had_result
        ), journalled AS (
            INSERT INTO {schema}.journal
                (scope, task, number, at, kind, from_status, to_status, actor, fence, policy, call, data)
            SELECT s.scope, s.id, s.events, v_now, 'done', 'active', 'done', p_actor, s.fence, p_version, p_call,
                v_data || CASE WHEN s.was_limited = 0 THEN '' ELSE ',"limitedInRow":0' END
                || CASE WHEN s.result IS NOT DISTINCT FROM s.had_result THEN ''
                    ELSE ',"result":' || coalesce(s.result, 'null') END || '}}'
            FROM settled s
        )
        SELECT
        s.seq, s.scope, s.id, (SELECT q.name FROM {schema}.queues q WHERE q.key = s.queue), s.kind, s.priority,
        s.status, s.parent, s.depth, s.triggered_by, s.parent_iteration, s.artifact_present, s.iteration, s.tries,
        s.attempts, s.limited_in_row, s.fence, s.assignee, s.lease_expires_at, s.next_eligible_at, s.open_since,
        s.host, s.title, s.description, s.category, s.steps, s.spec_ref, s.reference, s.payload, s.result,
        s.fail_reason, s.parked_reason, s.created_at, s.updated_at, s.started_at, s.finished_at, s.events,
        s.open_blockers, NULL::text, true
        FROM settled s;
        GET DIAGNOSTICS v_settled = ROW_COUNT;
    END IF;
    IF p_queue IS NULL THEN
        RETURN;
    END IF;
    -- The claim only once everything is settled, because that may be what makes room for it.
    IF v_more OR v_settled < cardinality(p_ids) THEN
        seq := -1;
        is_step := false;
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_ceiling IS NOT NULL THEN
        SELECT least(p_limit, p_ceiling - count(*)) INTO v_limit FROM {schema}.tasks t
        WHERE t.queue = v_queue AND t.status = 'active';
    END IF;
    IF v_paused OR v_limit <= 0 THEN
        RETURN;
    END IF;
    v_until := least(v_now + p_ttl, 253402207200000);
    v_until_data := ',"leaseExpiresAt":"'
        || to_char(timestamp 'epoch' + v_until * interval '1 millisecond', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '"';
    v_data := ',"startedAt":"'
        || to_char(timestamp 'epoch' + v_now * interval '1 millisecond', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '"';
    RETURN QUERY
    WITH picked AS MATERIALIZED (
        SELECT t.seq, t.started_at FROM {schema}.tasks t
        WHERE t.queue = v_queue AND t.stage = 2 AND NOT t.bucketed
            AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= v_now)
            AND (t.host = '' OR p_host IS NULL OR t.host = p_host)
        ORDER BY t.sort_priority, t.created_at, t.seq LIMIT v_limit FOR NO KEY UPDATE SKIP LOCKED
    ), granted AS (
        -- Through an array, because the plan is made before the limit is known: it must be the same for 1 and 1,000.
        UPDATE {schema}.tasks t SET status = 'active', fence = t.fence + 1, assignee = p_agent,
            lease_expires_at = v_until, started_at = v_now, updated_at = v_now, events = t.events + 1, stage = 0
        WHERE t.seq = ANY (ARRAY(SELECT p.seq FROM picked p)) RETURNING t.*
    ), journalled AS (
        INSERT INTO {schema}.journal
            (scope, task, number, at, kind, from_status, to_status, actor, fence, policy, call, data)
        SELECT g.scope, g.id, g.events, v_now, 'granted', 'open', 'active', p_actor, g.fence, p_version, p_call,
            -- An open task has no assignee, but it may have been started before, even just now.
            '{"changes":{' || coalesce('"assignee":' || to_json(p_agent)::text || ',', '') || '"fence":' || g.fence
            || v_until_data
            || CASE WHEN g.seq = ANY (ARRAY(SELECT p.seq FROM picked p WHERE p.started_at = v_now)) THEN ''
                ELSE v_data END
            || CASE WHEN g.triggered_by IS NULL THEN '}}'
                ELSE '},"facts":{"artifactPresent":' || g.artifact_present::text || '}}' END
        FROM granted g ORDER BY g.sort_priority, g.created_at, g.seq
    )
    SELECT
        g.seq, g.scope, g.id, p_queue, g.kind, g.priority, g.status, g.parent, g.depth, g.triggered_by,
        g.parent_iteration, g.artifact_present, g.iteration, g.tries, g.attempts, g.limited_in_row, g.fence,
        g.assignee, g.lease_expires_at, g.next_eligible_at, g.open_since, g.host, g.title, g.description, g.category,
        g.steps, g.spec_ref, g.reference, g.payload, g.result, g.fail_reason, g.parked_reason, g.created_at,
        g.updated_at, g.started_at, g.finished_at, g.events, g.open_blockers,
        (
            SELECT json_agg(json_build_object('id', b.id, 'title', b.title, 'status', b.status, 'result', b.result)
                ORDER BY b.id)::text
            FROM {schema}.edges e JOIN {schema}.tasks b ON b.scope = e.scope AND b.id = e.blocker
            WHERE e.scope = g.scope AND e.task = g.id
        ),
        false
    FROM granted g ORDER BY g.sort_priority, g.created_at, g.seq;
END $$;

-- Adds tasks of one queue that wait for nobody, by one statement. No row says: not at once (another policy is in
-- force, no such queue yet, an id that is taken or was once).
CREATE FUNCTION {schema}.add_at_once(
    p_scope TEXT, p_queue TEXT, p_published TEXT, p_version TEXT, p_actor TEXT, p_now BIGINT, p_guarded BOOLEAN,
    p_bucketed BOOLEAN, p_call BIGINT, p_ids TEXT[], p_kinds TEXT[], p_titles TEXT[], p_descriptions TEXT[],
    p_categories TEXT[], p_specs TEXT[], p_references TEXT[], p_payloads TEXT[], p_priorities BIGINT[],
    p_sort_priorities BIGINT[], p_scores BIGINT[], p_due BIGINT[], p_parent_iterations BIGINT[], p_steps TEXT[],
    p_data TEXT[]
) RETURNS TABLE (added_at BIGINT, added BIGINT[]) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_now BIGINT := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    v_queue BIGINT;
BEGIN
    SELECT q.key INTO v_queue FROM {schema}.queues q WHERE q.scope = p_scope AND q.name = p_queue
        AND p_published IS NOT DISTINCT FROM (SELECT p.version FROM {schema}.policies p WHERE p.scope = p_scope
            ORDER BY p.number DESC LIMIT 1)
        AND NOT EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.scope = p_scope AND t.id = ANY(p_ids))
        AND NOT EXISTS (SELECT 1 FROM {schema}.retired r WHERE r.scope = p_scope AND r.id = ANY(p_ids));
    IF v_queue IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH fresh AS MATERIALIZED (
        SELECT nextval('{schema}.tasks_seq_seq') AS seq, u.*
        FROM unnest(p_ids, p_kinds, p_priorities, p_sort_priorities, p_scores, p_titles, p_descriptions, p_categories,
            p_steps, p_specs, p_references, p_payloads, p_due, p_parent_iterations, p_data)
        AS u (id, kind, priority, sort_priority, score, title, description, category, steps, spec_ref, reference,
            payload, due, parent_iteration, data)
    ), inserted AS (
        INSERT INTO {schema}.tasks (seq, scope, id, queue, kind, priority, status, depth, parent_iteration,
            artifact_present, iteration, tries, attempts, limited_in_row, fence, next_eligible_at, open_since, host,
            title, description, category, steps, spec_ref, reference, payload, created_at, updated_at, events,
            open_blockers, stage, sort_priority, static_score, ready_at, guarded, bucketed)
        OVERRIDING SYSTEM VALUE
        SELECT f.seq, p_scope, f.id, v_queue, f.kind, f.priority, 'open', 0, f.parent_iteration,
            false, 0, 0, 0, 0, 0, f.due, v_now, '',
            f.title, f.description, f.category, f.steps, f.spec_ref, f.reference, f.payload, v_now, v_now, 1,
            0, CASE WHEN f.due > v_now THEN 1 ELSE 2 END, f.sort_priority, f.score, greatest(f.due, v_now), p_guarded,
            p_bucketed
        FROM fresh f
    ), journalled AS (
        INSERT INTO {schema}.journal (scope, task, number, at, kind, to_status, actor, policy, call, data)
        SELECT p_scope, f.id, 1, v_now, 'created', 'open', p_actor, p_version, p_call, '{"seq":' || f.seq || f.data
        FROM fresh f
    )
    SELECT v_now, array_agg(f.seq ORDER BY f.seq) FROM fresh f;
END $$;
