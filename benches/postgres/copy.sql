-- COPY of :count rows into the task table, and nothing else, in one transaction; prints the milliseconds.
SET client_min_messages = warning;
CREATE TEMP TABLE fresh AS SELECT 'default' AS scope, 'copy-' || md5(n || clock_timestamp()::text) AS id, 1 AS queue,
    '' AS kind, 2 AS priority, 'open' AS status, 0 AS depth, false AS artifact_present, 0 AS iteration, 0 AS tries,
    0 AS attempts, 0 AS limited_in_row, 0 AS fence, 1800000000000 AS open_since, '' AS host, 'A new task' AS title,
    'What is to be done, in one sentence of the usual length.' AS description, 'code' AS category,
    1800000000000 AS created_at, 1800000000000 AS updated_at, 1 AS events, 0 AS open_blockers, 2 AS stage,
    2 AS sort_priority, 0 AS static_score, 1800000000000 AS ready_at, false AS guarded, false AS bucketed,
    0 AS fast_failures, 0 AS filed, false AS priority_inherited
FROM generate_series(1, :count) n;
\set file `mktemp`
\o :file
COPY fresh TO STDOUT;
\o
SELECT (extract(epoch FROM clock_timestamp()) * 1000) AS began \gset
\setenv COPY_FILE :file
BEGIN;
\copy tasks (scope, id, queue, kind, priority, status, depth, artifact_present, iteration, tries, attempts, limited_in_row, fence, open_since, host, title, description, category, created_at, updated_at, events, open_blockers, stage, sort_priority, static_score, ready_at, guarded, bucketed, fast_failures, filed, priority_inherited) FROM PROGRAM 'cat "$COPY_FILE"'
COMMIT;
SELECT round((extract(epoch FROM clock_timestamp()) * 1000) - :began, 3);
\! rm -f "$COPY_FILE"
