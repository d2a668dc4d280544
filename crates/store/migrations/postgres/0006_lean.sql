-- Less to write for the same: what indices have and always has the same width stands first in a task's row, where it is
-- found without looking at what stands before it, and one row of the journal holds what one statement did.

DROP FUNCTION {schema}.turn_at_once(TEXT, TEXT[], BIGINT[], TEXT[], TEXT[], TEXT[], BIGINT, TEXT, TEXT, TEXT, TEXT,
    BIGINT, BIGINT, BOOLEAN, TEXT, BIGINT, TEXT, BIGINT);
DROP FUNCTION {schema}.add_at_once(TEXT, TEXT, TEXT, TEXT, TEXT, BIGINT, BOOLEAN, BOOLEAN, BIGINT, TEXT[], TEXT[],
    TEXT[], TEXT[], TEXT[], TEXT[], TEXT[], TEXT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], TEXT[], TEXT[]);
ALTER TABLE edges DROP CONSTRAINT edges_scope_task_fkey, DROP CONSTRAINT edges_scope_blocker_fkey;
ALTER TABLE tasks RENAME TO old_tasks;
ALTER TABLE old_tasks RENAME CONSTRAINT tasks_pkey TO old_tasks_pkey;
ALTER TABLE old_tasks RENAME CONSTRAINT tasks_scope_id_key TO old_tasks_scope_id_key;
ALTER SEQUENCE tasks_seq_seq RENAME TO old_tasks_seq_seq;
DROP INDEX tasks_ready, tasks_plain, tasks_overdue, tasks_cooling, tasks_active, tasks_children, tasks_specs,
    tasks_awaiting;
ALTER TABLE journal RENAME TO old_journal;
ALTER TABLE old_journal RENAME CONSTRAINT journal_pkey TO old_journal_pkey;
ALTER SEQUENCE journal_seq_seq RENAME TO old_journal_seq_seq;
DROP INDEX journal_xid;

-- What happened to one task, or, without a task, to the scope. The events of a task are a chain: its row names the
-- newest, each names the one before. Both by the number of the journal's row; 0 is none.
CREATE TYPE told AS (
    task        TEXT COLLATE "C",
    number      BIGINT,
    kind        TEXT COLLATE "C",
    from_status TEXT COLLATE "C",
    to_status   TEXT COLLATE "C",
    actor       TEXT COLLATE "C",
    fence       BIGINT,
    before      BIGINT,
    data        TEXT COLLATE "C"
);

-- What happened. The tables are a fold of it. A row's number is that of its first event; the others count on from it, up
-- to the number of the next row, so that a row has at most 16. An event that was taken out leaves its place empty.
CREATE TABLE journal (
    seq    BIGINT GENERATED ALWAYS AS IDENTITY (INCREMENT BY 16) PRIMARY KEY,
    at     BIGINT NOT NULL,
    -- Transactions commit out of order; a follower reads up to the oldest one still open.
    xid    BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    scope  TEXT COLLATE "C" NOT NULL,
    policy TEXT COLLATE "C",
    -- Names the call that wrote it, so that a caller who lost the answer finds out what was done; none for most.
    call   BIGINT,
    events told[] NOT NULL
) WITH (toast_tuple_target = 8160); -- Measured: to compress a row of 16 grants costs as much as to write it.
INSERT INTO journal (seq, at, xid, scope, policy, call, events) OVERRIDING SYSTEM VALUE
SELECT seq, at, xid, scope, policy, call, ARRAY[ROW(task, number, kind, from_status, to_status, actor, fence,
    CASE WHEN task IS NULL THEN 0 ELSE coalesce(lag(seq) OVER (PARTITION BY scope, task ORDER BY number), 0) END,
    data)::told]
FROM old_journal ORDER BY seq;
SELECT setval('journal_seq_seq', CASE WHEN is_called THEN last_value + 1 ELSE last_value END, false)
FROM old_journal_seq_seq;
CREATE INDEX journal_xid ON journal USING brin (xid) WITH (autosummarize = on, pages_per_range = 16);

-- The journal, event by event.
CREATE VIEW events AS
SELECT j.seq + e.place - 1 AS seq, j.scope, e.task, e.number, j.at, e.kind, e.from_status, e.to_status, e.actor,
    e.fence, j.policy, e.data, j.xid, j.call, j.seq AS in_row, e.place, e.before
FROM journal j CROSS JOIN LATERAL unnest(j.events) WITH ORDINALITY
    AS e (task, number, kind, from_status, to_status, actor, fence, before, data, place)
WHERE e.data IS NOT NULL;

-- Times are UTC milliseconds. kind and host are '' for none, so that they can be index columns. `row.rs` reads the
-- columns in this order.
CREATE TABLE tasks (
    seq              BIGINT GENERATED ALWAYS AS IDENTITY,
    -- No foreign key: queues are never deleted, and the check would lock the queue's row at every insert.
    queue            BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    stage            BIGINT NOT NULL,
    sort_priority    BIGINT NOT NULL,
    static_score     BIGINT NOT NULL,
    ready_at         BIGINT NOT NULL,
    fence            BIGINT NOT NULL,
    events           BIGINT NOT NULL,
    limited_in_row   BIGINT NOT NULL,
    -- The journal's rows with its newest event and with the one before that.
    told             BIGINT NOT NULL DEFAULT 0,
    bucketed         BOOLEAN NOT NULL,
    guarded          BOOLEAN NOT NULL,
    -- Whether a task ever waited for this one, as dependent or child: then more than its own row changes when it is
    -- done. In the row, so that who waited for the row's lock sees it.
    awaited          BOOLEAN NOT NULL DEFAULT false,
    artifact_present BOOLEAN NOT NULL,
    scope            TEXT COLLATE "C" NOT NULL,
    id               TEXT COLLATE "C" NOT NULL,
    status           TEXT COLLATE "C" NOT NULL,
    kind             TEXT COLLATE "C" NOT NULL,
    host             TEXT COLLATE "C" NOT NULL,
    lease_expires_at BIGINT,
    next_eligible_at BIGINT,
    assignee         TEXT COLLATE "C",
    result           TEXT COLLATE "C",
    started_at       BIGINT,
    triggered_by     TEXT COLLATE "C",
    parent           TEXT COLLATE "C",
    spec_ref         TEXT COLLATE "C",
    updated_at       BIGINT NOT NULL,
    finished_at      BIGINT,
    told_before      BIGINT NOT NULL DEFAULT 0,
    open_since       BIGINT NOT NULL,
    iteration        BIGINT NOT NULL,
    tries            BIGINT NOT NULL,
    attempts         BIGINT NOT NULL,
    depth            BIGINT NOT NULL,
    -- Derived, so that choosing is served from an index; `rota doctor` recounts them.
    open_blockers    BIGINT NOT NULL,
    title            TEXT COLLATE "C" NOT NULL,
    description      TEXT COLLATE "C",
    category         TEXT COLLATE "C",
    priority         BIGINT,
    parent_iteration BIGINT,
    steps            TEXT COLLATE "C",
    reference        TEXT COLLATE "C",
    payload          TEXT COLLATE "C",
    fail_reason      TEXT COLLATE "C",
    parked_reason    TEXT COLLATE "C"
);
INSERT INTO tasks OVERRIDING SYSTEM VALUE
SELECT seq, queue, created_at, stage, sort_priority, static_score, ready_at, fence, events, limited_in_row,
    coalesce(newest.told, 0), bucketed, guarded, awaited, artifact_present, scope, id, status, kind, host,
    lease_expires_at, next_eligible_at, assignee, result, started_at, triggered_by, parent, spec_ref, updated_at,
    finished_at, 0, open_since, iteration, tries, attempts, depth, open_blockers, title, description, category,
    priority, parent_iteration, steps, reference, payload, fail_reason, parked_reason
FROM old_tasks t LEFT JOIN (
    SELECT DISTINCT ON (scope, task) scope, task, seq AS told FROM old_journal WHERE task IS NOT NULL
    ORDER BY scope, task, number DESC
) newest (of_scope, of_task, told) ON of_scope = t.scope AND of_task = t.id
ORDER BY seq;
SELECT setval('tasks_seq_seq', CASE WHEN is_called THEN last_value + 1 ELSE last_value END, false)
FROM old_tasks_seq_seq;
DROP TABLE old_tasks, old_journal;
-- The id first: it is what differs.
ALTER TABLE tasks ADD PRIMARY KEY (seq), ADD CONSTRAINT tasks_scope_id_key UNIQUE (id, scope);
ALTER TABLE edges ADD FOREIGN KEY (scope, task) REFERENCES tasks (scope, id),
    ADD FOREIGN KEY (scope, blocker) REFERENCES tasks (scope, id);

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

CREATE TRIGGER parent_is_awaited AFTER INSERT OR UPDATE OF parent ON tasks
    FOR EACH ROW WHEN (NEW.parent IS NOT NULL) EXECUTE FUNCTION {schema}.is_awaited('parent');
CREATE TRIGGER journal_tells AFTER INSERT ON journal FOR EACH STATEMENT EXECUTE FUNCTION tell_followers();

-- Settles tasks as done, those that it can (held by the caller, nothing but their own row changes), and then, if all of
-- them were settled and a queue is named, grants leases of that queue, which has no buckets: one round trip, one
-- transaction. Answers with the tasks and the place of each among those that were settled or granted. Steps that do not
-- come back are not settled; no task says that the claim was not tried, because there is more to do than this can
-- (another policy is in force, leases to take back, tasks to let in, no such queue). Who takes is told one by one, or once
-- for all of them; so are those who act, and how the data of an event begins that says who took.
CREATE FUNCTION {schema}.turn_at_once(
    p_scope TEXT, p_ids TEXT[], p_fences BIGINT[], p_agents TEXT[], p_results TEXT[], p_actors TEXT[], p_strict TEXT[],
    p_now BIGINT, p_published TEXT, p_version TEXT,
    p_queue TEXT, p_limit BIGINT, p_ceiling BIGINT, p_auto BOOLEAN, p_takers TEXT[], p_taker_actors TEXT[],
    p_heads TEXT[], p_ttl BIGINT, p_host TEXT, p_call BIGINT
) RETURNS TABLE (task {schema}.tasks, place BIGINT, is_step BOOLEAN) LANGUAGE plpgsql
SET lock_timeout = '30s' SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
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
    v_start_data TEXT;
    -- The journal's rows, each for 16 events.
    v_rows BIGINT[];
    v_picked BIGINT[];
    v_started BIGINT[];
BEGIN
    -- A bounded queue is locked in one statement and counted in a later one, which sees what the wait was for.
    IF p_ceiling IS NOT NULL THEN
        PERFORM 1 FROM {schema}.queues q WHERE q.scope = p_scope AND q.name = p_queue FOR UPDATE;
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
        RETURN QUERY SELECT NULL::{schema}.tasks, 0::bigint, false;
        RETURN;
    END IF;
    IF p_ids <> '{}' AND NOT v_other THEN
        v_data := '{"outcome":"done","changes":{"finishedAt":"'
            || to_char(timestamp 'epoch' + v_now * interval '1 millisecond', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
            || '","leaseExpiresAt":null';
        v_rows := ARRAY(SELECT nextval('{schema}.journal_seq_seq')
            FROM generate_series(1, (cardinality(p_ids) + 15) / 16));
        RETURN QUERY
        WITH settled AS (
            -- One after the other, in the order of their ids. Judged by the row alone: whoever waited for its lock judges
            -- anew. IS TRUE: never through the index of all that are active. What was told while this waited must have a
            -- lower number.
            UPDATE {schema}.tasks t SET status = 'done', lease_expires_at = NULL, result = w.result,
                finished_at = v_now, updated_at = v_now, events = t.events + 1, stage = 0,
                told = v_rows[(w.place + 15) / 16], told_before = t.told
            FROM (
                SELECT * FROM unnest(p_ids, p_fences, p_agents, p_results) WITH ORDINALITY
                    AS given (id, fence, agent, result, place) ORDER BY given.id
            ) w
            WHERE t.scope = p_scope AND t.id = w.id AND (t.status = 'active') IS TRUE
                AND (w.fence IS NULL OR w.fence = t.fence)
                AND (w.agent IS NULL OR t.assignee IS NULL OR w.agent = t.assignee)
                AND (w.fence IS NOT NULL OR p_strict = '{}'
                    OR NOT EXISTS (SELECT 1 FROM {schema}.queues q WHERE q.key = t.queue AND q.name = ANY(p_strict)))
                AND t.result IS NULL AND t.limited_in_row = 0 AND NOT t.awaited AND t.told < v_rows[1]
            RETURNING t, t.id, t.events, t.fence, t.result, t.told, t.told_before, w.place
        ), journalled AS (
            INSERT INTO {schema}.journal (seq, at, scope, policy, call, events) OVERRIDING SYSTEM VALUE
            SELECT s.told, v_now, p_scope, p_version, p_call, array_agg(ROW(s.id, s.events, 'done', 'active', 'done',
                p_actors[least(s.place, cardinality(p_actors))], s.fence, s.told_before, v_data || coalesce(',"result":' || s.result, '') || '}}')::{schema}.told
                ORDER BY s.place)
            FROM settled s GROUP BY s.told
        )
        SELECT s.t, s.place, true FROM settled s;
        GET DIAGNOSTICS v_settled = ROW_COUNT;
    END IF;
    IF p_queue IS NULL THEN
        RETURN;
    END IF;
    -- The claim only once everything is settled, because that may be what makes room for it.
    IF v_more OR v_settled < cardinality(p_ids) THEN
        RETURN QUERY SELECT NULL::{schema}.tasks, 0::bigint, false;
        RETURN;
    END IF;
    IF p_ceiling IS NOT NULL THEN
        SELECT least(p_limit, p_ceiling - count(*)) INTO v_limit FROM {schema}.tasks t
        WHERE t.queue = v_queue AND t.status = 'active';
    END IF;
    IF v_paused OR v_limit <= 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(p.seq), array_agg(p.started_at) INTO v_picked, v_started FROM (
        SELECT t.seq, t.started_at FROM {schema}.tasks t
        WHERE t.queue = v_queue AND t.stage = 2 AND NOT t.bucketed
            AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= v_now)
            AND (t.host = '' OR p_host IS NULL OR t.host = p_host)
        ORDER BY t.sort_priority, t.created_at, t.seq LIMIT v_limit FOR NO KEY UPDATE SKIP LOCKED
    ) p;
    IF v_picked IS NULL THEN
        RETURN;
    END IF;
    v_until := least(v_now + p_ttl, 253402207200000);
    v_data := ',"leaseExpiresAt":"'
        || to_char(timestamp 'epoch' + v_until * interval '1 millisecond', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '"';
    v_start_data := v_data || ',"startedAt":"'
        || to_char(timestamp 'epoch' + v_now * interval '1 millisecond', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '"';
    -- After the locks: what was told of these tasks before has a lower number.
    v_rows := ARRAY(SELECT nextval('{schema}.journal_seq_seq')
        FROM generate_series(1, (cardinality(v_picked) + 15) / 16));
    RETURN QUERY
    WITH granted AS (
        UPDATE {schema}.tasks t SET status = 'active', fence = t.fence + 1, assignee = p_takers[least(w.place, cardinality(p_takers))],
            lease_expires_at = v_until, started_at = v_now, updated_at = v_now, events = t.events + 1, stage = 0,
            told = v_rows[(w.place + 15) / 16], told_before = t.told
        FROM unnest(v_picked, v_started) WITH ORDINALITY AS w (seq, started_at, place)
        WHERE t.seq = w.seq
        RETURNING t, t.id, t.events, t.fence, t.told, t.told_before, t.triggered_by, t.artifact_present, w.place,
            w.started_at IS NOT DISTINCT FROM v_now AS same_start
    ), journalled AS (
        INSERT INTO {schema}.journal (seq, at, scope, policy, call, events) OVERRIDING SYSTEM VALUE
        SELECT g.told, v_now, p_scope, p_version, p_call, array_agg(ROW(g.id, g.events, 'granted', 'open', 'active',
            p_taker_actors[least(g.place, cardinality(p_taker_actors))], g.fence, g.told_before,
            -- An open task has no assignee, but it may have been started before, even just now.
            p_heads[least(g.place, cardinality(p_heads))] || g.fence
            || CASE WHEN g.same_start THEN v_data ELSE v_start_data END
            || CASE WHEN g.triggered_by IS NULL THEN '}}'
                ELSE '},"facts":{"artifactPresent":' || g.artifact_present::text || '}}' END)::{schema}.told
            ORDER BY g.place)
        FROM granted g GROUP BY g.told
    )
    SELECT g.t, g.place, false FROM granted g;
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
    v_rows BIGINT[];
    v_seqs BIGINT[];
BEGIN
    SELECT q.key INTO v_queue FROM {schema}.queues q WHERE q.scope = p_scope AND q.name = p_queue
        AND p_published IS NOT DISTINCT FROM (SELECT p.version FROM {schema}.policies p WHERE p.scope = p_scope
            ORDER BY p.number DESC LIMIT 1)
        AND NOT EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.scope = p_scope AND t.id = ANY(p_ids))
        AND NOT (EXISTS (SELECT 1 FROM {schema}.retired r WHERE r.scope = p_scope)
            AND EXISTS (SELECT 1 FROM {schema}.retired r WHERE r.scope = p_scope AND r.id = ANY(p_ids)));
    IF v_queue IS NULL THEN
        RETURN;
    END IF;
    v_rows := ARRAY(SELECT nextval('{schema}.journal_seq_seq')
        FROM generate_series(1, (cardinality(p_ids) + 15) / 16));
    WITH inserted AS (
        INSERT INTO {schema}.tasks (queue, created_at, updated_at, open_since, fence, events, iteration, tries,
            attempts, limited_in_row, depth, open_blockers, stage, sort_priority, static_score, ready_at, told, guarded,
            bucketed, artifact_present, scope, id, status, kind, host, title, next_eligible_at, spec_ref, priority,
            parent_iteration, description, category, steps, reference, payload)
        SELECT v_queue, v_now, v_now, v_now, 0, 1, 0, 0, 0, 0, 0, 0, CASE WHEN u.due > v_now THEN 1 ELSE 2 END,
            u.sort_priority, u.score, greatest(u.due, v_now), v_rows[(u.place + 15) / 16], p_guarded, p_bucketed,
            false, p_scope, u.id, 'open', u.kind, '', u.title, u.due, u.spec_ref, u.priority, u.parent_iteration,
            u.description, u.category, u.steps, u.reference, u.payload
        FROM unnest(p_ids, p_kinds, p_priorities, p_sort_priorities, p_scores, p_titles, p_descriptions, p_categories,
            p_steps, p_specs, p_references, p_payloads, p_due, p_parent_iterations) WITH ORDINALITY
        AS u (id, kind, priority, sort_priority, score, title, description, category, steps, spec_ref, reference,
            payload, due, parent_iteration, place)
        RETURNING seq
    )
    SELECT array_agg(i.seq) INTO v_seqs FROM inserted i;
    INSERT INTO {schema}.journal (seq, at, scope, policy, call, events) OVERRIDING SYSTEM VALUE
    SELECT v_rows[r], v_now, p_scope, p_version, p_call, ARRAY(
        SELECT ROW(p_ids[i], 1, 'created', NULL, 'open', p_actor, NULL, 0, '{"seq":' || v_seqs[i] || p_data[i])::{schema}.told
        FROM generate_series(r * 16 - 15, least(r * 16, cardinality(p_ids))) i)
    FROM generate_series(1, cardinality(v_rows)) r;
    RETURN QUERY SELECT v_now, v_seqs;
END $$;
