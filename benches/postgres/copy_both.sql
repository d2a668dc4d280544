-- COPY of :count rows into the task table, and of their events into the journal, in one transaction; prints the
-- milliseconds.
SET client_min_messages = warning;
CREATE TEMP TABLE fresh AS SELECT 'default' AS scope, 'copy-' || md5(n || clock_timestamp()::text) AS id, 1 AS queue,
    '' AS kind, 2 AS priority, 'open' AS status, 0 AS depth, false AS artifact_present, 0 AS iteration, 0 AS tries,
    0 AS attempts, 0 AS limited_in_row, 0 AS fence, 1800000000000 AS open_since, '' AS host, 'A new task' AS title,
    'What is to be done, in one sentence of the usual length.' AS description, 'code' AS category,
    1800000000000 AS created_at, 1800000000000 AS updated_at, 1 AS events, 0 AS open_blockers, 2 AS stage,
    2 AS sort_priority, 0 AS static_score, 1800000000000 AS ready_at, false AS guarded, false AS bucketed,
    0 AS fast_failures, 0 AS filed, false AS priority_inherited
FROM generate_series(1, :count) n;
CREATE TEMP TABLE happened AS SELECT created_at AS at, scope, 'a94a8fe5ccb19ba6' AS policy, id AS task, 1 AS number,
    'created' AS kind, 'open' AS to_status, '{"seq":1000000,"changes":{"category":"code","description":"' || description
    || '","priority":2,"queue":"tasks","title":"A new task"}}' AS data FROM fresh;
\set file `mktemp`
\o :file
COPY fresh TO STDOUT;
\o
\set event_file `mktemp`
\o :event_file
COPY happened TO STDOUT;
\o
\setenv COPY_FILE :file
\setenv EVENT_FILE :event_file
SELECT (extract(epoch FROM clock_timestamp()) * 1000) AS began \gset
BEGIN;
\copy tasks (scope, id, queue, kind, priority, status, depth, artifact_present, iteration, tries, attempts, limited_in_row, fence, open_since, host, title, description, category, created_at, updated_at, events, open_blockers, stage, sort_priority, static_score, ready_at, guarded, bucketed, fast_failures, filed, priority_inherited) FROM PROGRAM 'cat "$COPY_FILE"'
\copy journal (at, scope, policy, task, number, kind, to_status, data) FROM PROGRAM 'cat "$EVENT_FILE"'
COMMIT;
SELECT round((extract(epoch FROM clock_timestamp()) * 1000) - :began, 3);
\! rm -f "$COPY_FILE" "$EVENT_FILE"
