-- Nine of ten tasks may not run, and all of those sort first: half of them cool down, half wait for another one.
-- :count of them, in the schema :schema.
SET search_path = :"schema";
SET client_min_messages = warning;
SET session_replication_role = replica;
TRUNCATE edges, tasks, journal RESTART IDENTITY;
INSERT INTO queues (scope, name) VALUES ('default', 'tasks') ON CONFLICT DO NOTHING;
INSERT INTO tasks (scope, id, queue, kind, priority, status, depth, artifact_present, iteration, tries, attempts,
    limited_in_row, fence, next_eligible_at, open_since, host, title, description, category, created_at, updated_at,
    events, open_blockers, stage, sort_priority, static_score, ready_at, guarded, bucketed, fast_failures, filed,
    priority_inherited)
SELECT 'default', 'task-' || lpad(n::text, 7, '0'), q.key, '', CASE WHEN n % 10 = 9 THEN 2 ELSE n % 2 END, 'open', 0,
    false, 0, 0, 0, 0, 0, CASE WHEN n % 10 < 5 THEN at + 86400000 + n END, at, '', 'Task number ' || n,
    'What is to be done, in one sentence of the usual length.', 'code', at, at,
    CASE WHEN n % 10 BETWEEN 5 AND 8 THEN 2 ELSE 1 END, CASE WHEN n % 10 BETWEEN 5 AND 8 THEN 1 ELSE 0 END,
    CASE WHEN n % 10 < 5 THEN 1 WHEN n % 10 = 9 THEN 2 ELSE 0 END, CASE WHEN n % 10 = 9 THEN 2 ELSE n % 2 END, 0,
    CASE WHEN n % 10 < 5 THEN at + 86400000 + n ELSE at END, false, false, 0, 0, false
FROM generate_series(1, :count) n, (SELECT key FROM queues WHERE scope = 'default' AND name = 'tasks') q,
    (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1800000 AS at) a;
INSERT INTO edges (scope, task, blocker)
SELECT scope, id, 'task-' || lpad((seq - 5)::text, 7, '0') FROM tasks WHERE open_blockers = 1 AND seq > 5;
INSERT INTO journal (at, scope, policy, task, number, kind, to_status, data)
SELECT created_at, scope, 'a94a8fe5ccb19ba6', id, 1, 'created', 'open', '{"seq":' || seq || ',"changes":{"title":"'
    || title || '"}}' FROM tasks ORDER BY seq;
ANALYZE tasks, edges, journal, queues;
CHECKPOINT;
