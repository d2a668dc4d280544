-- What a task is called never changes, its row does with every turn: an index by id on the tasks would be written each time.
-- So ids have a table of their own, which is written when a task is added and when it is pruned.

DROP FUNCTION {schema}.turn_at_once(TEXT, TEXT[], BIGINT[], TEXT[], TEXT[], TEXT[], TEXT[], BIGINT, TEXT, TEXT, TEXT,
    BIGINT, BIGINT, BOOLEAN, TEXT[], TEXT[], TEXT[], BIGINT, TEXT, BIGINT);
DROP FUNCTION {schema}.add_at_once(TEXT, TEXT, TEXT, TEXT, TEXT, BIGINT, BOOLEAN, BOOLEAN, BIGINT, TEXT[], TEXT[],
    TEXT[], TEXT[], TEXT[], TEXT[], TEXT[], TEXT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], TEXT[], TEXT[]);
ALTER TABLE edges DROP CONSTRAINT edges_scope_task_fkey, DROP CONSTRAINT edges_scope_blocker_fkey;
ALTER TABLE tasks DROP CONSTRAINT tasks_scope_id_key;

-- The task of an id. No foreign key between the two: the check would cost every turn; `rota doctor` compares them.
CREATE TABLE ids (
    seq   BIGINT NOT NULL,
    scope TEXT COLLATE "C" NOT NULL,
    id    TEXT COLLATE "C" NOT NULL
);
INSERT INTO ids (seq, scope, id) SELECT seq, scope, id FROM tasks ORDER BY seq;
-- The id first: it is what differs.
ALTER TABLE ids ADD PRIMARY KEY (id, scope) INCLUDE (seq);
ALTER TABLE edges ADD FOREIGN KEY (scope, task) REFERENCES ids (scope, id),
    ADD FOREIGN KEY (scope, blocker) REFERENCES ids (scope, id);

CREATE OR REPLACE FUNCTION {schema}.is_awaited() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.tasks t SET awaited = true FROM {schema}.ids i
    WHERE i.scope = NEW.scope AND i.id = to_jsonb(NEW) ->> TG_ARGV[0] AND t.seq = i.seq AND NOT t.awaited;
    RETURN NULL;
END $$;

-- Settles tasks as done, those that it can (held by the caller, nothing but their own row changes), and then, if all of
-- them were settled and a queue is named, grants leases of that queue, which has no buckets: one round trip, one
-- transaction. Answers with the tasks, the place of each among those that were settled or granted, and when that was. A
-- task that the caller knows (it says how many events ago) and that is as it knows it, but for being done, does not come
-- back whole: the caller can tell. Steps that do not come back at all are not settled; place 0 says that the claim was not
-- tried, because there is more to do than this can (another policy is in force, leases to take back, tasks to let in, no
-- such queue). Who takes is told one by one, or once for all of them; so are those who act, and how the data of an event
-- begins that says who took.
CREATE FUNCTION {schema}.turn_at_once(
    p_scope TEXT, p_ids TEXT[], p_known BIGINT[], p_fences BIGINT[], p_agents TEXT[], p_results TEXT[], p_actors TEXT[], p_strict TEXT[],
    p_now BIGINT, p_published TEXT, p_version TEXT,
    p_queue TEXT, p_limit BIGINT, p_ceiling BIGINT, p_auto BOOLEAN, p_takers TEXT[], p_taker_actors TEXT[],
    p_heads TEXT[], p_ttl BIGINT, p_host TEXT, p_call BIGINT
) RETURNS TABLE (task {schema}.tasks, place BIGINT, is_step BOOLEAN, at BIGINT) LANGUAGE plpgsql
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
    v_picked TID[];
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
        RETURN QUERY SELECT NULL::{schema}.tasks, 0::bigint, false, v_now;
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
                SELECT i.seq, g.* FROM (
                    SELECT * FROM unnest(p_ids, p_known, p_fences, p_agents, p_results) WITH ORDINALITY
                        AS given (id, known, fence, agent, result, place) ORDER BY given.id
                ) g JOIN {schema}.ids i ON i.scope = p_scope AND i.id = g.id
            ) w
            WHERE t.seq = w.seq AND (t.status = 'active') IS TRUE
                AND (w.fence IS NULL OR w.fence = t.fence)
                AND (w.agent IS NULL OR t.assignee IS NULL OR w.agent = t.assignee)
                AND (w.fence IS NOT NULL OR p_strict = '{}'
                    OR NOT EXISTS (SELECT 1 FROM {schema}.queues q WHERE q.key = t.queue AND q.name = ANY(p_strict)))
                AND t.result IS NULL AND t.limited_in_row = 0 AND NOT t.awaited AND t.told < v_rows[1]
            RETURNING CASE WHEN t.events = w.known + 1 THEN NULL ELSE t END AS task, t.id, t.events, t.fence, t.result,
                t.told, t.told_before, w.place
        ), journalled AS (
            INSERT INTO {schema}.journal (seq, at, scope, policy, call, events) OVERRIDING SYSTEM VALUE
            SELECT s.told, v_now, p_scope, p_version, p_call, array_agg(ROW(s.id, s.events, 'done', 'active', 'done',
                p_actors[least(s.place, cardinality(p_actors))], s.fence, s.told_before, v_data || coalesce(',"result":' || s.result, '') || '}}')::{schema}.told
                ORDER BY s.place)
            FROM settled s GROUP BY s.told
        )
        SELECT s.task, s.place, true, v_now FROM settled s;
        GET DIAGNOSTICS v_settled = ROW_COUNT;
    END IF;
    IF p_queue IS NULL THEN
        RETURN;
    END IF;
    -- The claim only once everything is settled, because that may be what makes room for it.
    IF v_more OR v_settled < cardinality(p_ids) THEN
        RETURN QUERY SELECT NULL::{schema}.tasks, 0::bigint, false, v_now;
        RETURN;
    END IF;
    IF p_ceiling IS NOT NULL THEN
        SELECT least(p_limit, p_ceiling - count(*)) INTO v_limit FROM {schema}.tasks t
        WHERE t.queue = v_queue AND t.status = 'active';
    END IF;
    IF v_paused OR v_limit <= 0 THEN
        RETURN;
    END IF;
    -- By where the rows stand: they are locked, and the statement that changes them sees what the lock was given for.
    SELECT array_agg(p.ctid), array_agg(p.started_at) INTO v_picked, v_started FROM (
        SELECT t.ctid, t.started_at FROM {schema}.tasks t
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
        FROM unnest(v_picked, v_started) WITH ORDINALITY AS w (ctid, started_at, place)
        WHERE t.ctid = w.ctid
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
    SELECT g.t, g.place, false, v_now FROM granted g;
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
        AND NOT EXISTS (SELECT 1 FROM {schema}.ids i WHERE i.scope = p_scope AND i.id = ANY(p_ids))
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
    INSERT INTO {schema}.ids (seq, scope, id) SELECT n.seq, p_scope, n.id FROM unnest(v_seqs, p_ids) n (seq, id);
    INSERT INTO {schema}.journal (seq, at, scope, policy, call, events) OVERRIDING SYSTEM VALUE
    SELECT v_rows[r], v_now, p_scope, p_version, p_call, ARRAY(
        SELECT ROW(p_ids[i], 1, 'created', NULL, 'open', p_actor, NULL, 0, '{"seq":' || v_seqs[i] || p_data[i])::{schema}.told
        FROM generate_series(r * 16 - 15, least(r * 16, cardinality(p_ids))) i)
    FROM generate_series(1, cardinality(v_rows)) r;
    RETURN QUERY SELECT v_now, v_seqs;
END $$;
