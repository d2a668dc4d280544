-- The least a queue needs.
SET client_min_messages = warning;
CREATE SCHEMA IF NOT EXISTS bare;
CREATE TABLE IF NOT EXISTS bare.jobs (
    id BIGINT PRIMARY KEY, priority BIGINT NOT NULL, taken BOOLEAN NOT NULL DEFAULT false, payload TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS jobs_ready ON bare.jobs (priority, id) WHERE NOT taken;
TRUNCATE bare.jobs;
INSERT INTO bare.jobs SELECT n, 2, false, 'What is to be done, in one sentence of the usual length.'
FROM generate_series(1, :count) n;
ANALYZE bare.jobs;
CHECKPOINT;
