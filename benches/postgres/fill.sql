-- Tasks that may all run, as the store would have written them; :count of them, in the schema :schema.
SET search_path = :"schema";
SET client_min_messages = warning;
TRUNCATE edges, tasks, journal RESTART IDENTITY;
INSERT INTO queues (scope, name) VALUES ('default', 'tasks') ON CONFLICT DO NOTHING;
INSERT INTO tasks (scope, id, queue, kind, priority, status, depth, artifact_present, iteration, tries, attempts,
    limited_in_row, fence, open_since, host, title, description, category, created_at, updated_at, events,
    open_blockers, stage, sort_priority, static_score, ready_at, guarded, bucketed, fast_failures, filed,
    priority_inherited)
SELECT 'default', 'task-' || lpad(n::text, 7, '0'), q.key, '', 2, 'open', 0, false, 0, 0, 0, 0, 0, at, '',
    'Task number ' || n, 'What is to be done, in one sentence of the usual length.', 'code', at, at, 1,
    0, 2, 2, 0, at, false, false, 0, 0, false
FROM generate_series(1, :count) n, (SELECT key FROM queues WHERE scope = 'default' AND name = 'tasks') q,
    (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1800000 AS at) a;
INSERT INTO journal (at, scope, policy, task, number, kind, to_status, data)
SELECT created_at, scope, 'a94a8fe5ccb19ba6', id, 1, 'created', 'open', '{"seq":' || seq || ',"changes":{"title":"'
    || title || '"}}' FROM tasks ORDER BY seq;
ANALYZE tasks, journal, queues;
CHECKPOINT;
