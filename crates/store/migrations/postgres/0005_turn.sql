-- The function of workers that take many tasks at once, with less to do for each: a task is settled by one look at its
-- row, where it was locked, looked at and changed; and only tasks that something happened to are asked for blockers.

DROP FUNCTION {schema}.turn_at_once(TEXT, TEXT[], BIGINT[], TEXT[], TEXT[], TEXT[], BIGINT, TEXT, TEXT, TEXT, TEXT,
    BIGINT, BIGINT, BOOLEAN, TEXT, BIGINT, TEXT, BIGINT);

-- Settles tasks as done, those that it can (held by the caller, nothing but their own row changes), and then, if all of
-- them were settled and a queue is named, grants leases of that queue, which has no buckets: one round trip, one
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
        WITH settled AS (
            -- One after the other, in the order of their ids. Judged by the row alone: whoever waited for its lock judges
            -- anew. IS TRUE: never through the index of all that are active.
            UPDATE {schema}.tasks t SET status = 'done', lease_expires_at = NULL, result = w.result,
                finished_at = v_now, updated_at = v_now, events = t.events + 1, stage = 0
            FROM (
                SELECT * FROM unnest(p_ids, p_fences, p_agents, p_results) WITH ORDINALITY
                    AS given (id, fence, agent, result, place) ORDER BY given.id
            ) w
            WHERE t.scope = p_scope AND t.id = w.id AND (t.status = 'active') IS TRUE
                AND (w.fence IS NULL OR w.fence = t.fence)
                AND (w.agent IS NULL OR t.assignee IS NULL OR w.agent = t.assignee)
                AND (w.fence IS NOT NULL OR p_strict = '{}'
                    OR NOT EXISTS (SELECT 1 FROM {schema}.queues q WHERE q.key = t.queue AND q.name = ANY(p_strict)))
                AND t.result IS NULL AND t.limited_in_row = 0 AND NOT t.awaited
            RETURNING t.*, w.place
        ), journalled AS (
            INSERT INTO {schema}.journal
                (scope, task, number, at, kind, from_status, to_status, actor, fence, policy, call, data)
            SELECT s.scope, s.id, s.events, v_now, 'done', 'active', 'done', p_actor, s.fence, p_version, p_call,
                v_data || coalesce(',"result":' || s.result, '') || '}}'
            FROM settled s ORDER BY s.place
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
        CASE WHEN g.events > 2 THEN (
            SELECT json_agg(json_build_object('id', b.id, 'title', b.title, 'status', b.status, 'result', b.result)
                ORDER BY b.id)::text
            FROM {schema}.edges e JOIN {schema}.tasks b ON b.scope = e.scope AND b.id = e.blocker
            WHERE e.scope = g.scope AND e.task = g.id
        ) END,
        false
    FROM granted g ORDER BY g.sort_priority, g.created_at, g.seq;
END $$;
