-- What the gateway let through, per task and day. The task may be gone, or none (an empty text).
CREATE TABLE usage (
    scope             TEXT    NOT NULL,
    task              TEXT    NOT NULL,
    day               INTEGER NOT NULL,
    upstream          TEXT    NOT NULL,
    model             TEXT    NOT NULL,
    requests          INTEGER NOT NULL,
    input_tokens      INTEGER NOT NULL,
    output_tokens     INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    wait_ms           INTEGER NOT NULL,
    spend_nanos       INTEGER NOT NULL,
    PRIMARY KEY (scope, task, day, upstream, model)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_of_day ON usage (day);

-- Tokens that people made for agents of their own. Only a hash is kept.
CREATE TABLE gate_tokens (
    hash       TEXT    NOT NULL PRIMARY KEY,
    scope      TEXT    NOT NULL,
    task       TEXT,
    level      TEXT,
    made_at    INTEGER NOT NULL,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;
