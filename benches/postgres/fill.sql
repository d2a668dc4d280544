-- Tasks that may all run, as the store would have written them; :count of them, in the schema :schema.
SET search_path = :"schema";
SET client_min_messages = warning;
TRUNCATE edges, ids, tasks, journal RESTART IDENTITY;
INSERT INTO queues (scope, name) VALUES ('default', 'tasks') ON CONFLICT DO NOTHING;
INSERT INTO tasks (scope, id, queue, kind, priority, status, depth, artifact_present, iteration, tries, attempts,
    limited_in_row, fence, open_since, host, title, description, category, created_at, updated_at, events,
    open_blockers, stage, sort_priority, static_score, ready_at, guarded, bucketed, told)
SELECT 'default', 'task-' || lpad(n::text, 7, '0'), q.key, '', 2, 'open', 0, false, 0, 0, 0, 0, 0, at, '',
    'Task number ' || n, 'What is to be done, in one sentence of the usual length.', 'code', at, at, 1,
    0, 2, 2, 0, at, false, false, (n - 1) / 16 * 16 + 1
FROM generate_series(1, :count) n, (SELECT key FROM queues WHERE scope = 'default' AND name = 'tasks') q,
    (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1800000 AS at) a;
INSERT INTO ids (seq, scope, id) SELECT seq, scope, id FROM tasks;
INSERT INTO journal (seq, at, scope, policy, events) OVERRIDING SYSTEM VALUE
SELECT min(seq), min(created_at), scope, 'a94a8fe5ccb19ba6', array_agg(ROW(id, 1, 'created', NULL, 'open', NULL, NULL, 0,
    '{"seq":' || seq || ',"changes":{"category":"code","description":"'
    || description || '","priority":2,"queue":"tasks","title":"' || title || '"}}')::told ORDER BY seq) FROM tasks GROUP BY scope, (seq - 1) / 16;
SELECT setval('journal_seq_seq', (SELECT max(seq) + 16 FROM journal), false) \g /dev/null
ANALYZE ids, tasks, journal, queues;
CHECKPOINT;
