-- What the gateway let through, per task and day. The task may be gone, or none (an empty text).
CREATE TABLE usage (
    scope             TEXT COLLATE "C" NOT NULL,
    task              TEXT COLLATE "C" NOT NULL,
    day               BIGINT NOT NULL,
    upstream          TEXT COLLATE "C" NOT NULL,
    model             TEXT COLLATE "C" NOT NULL,
    requests          BIGINT NOT NULL,
    input_tokens      BIGINT NOT NULL,
    output_tokens     BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL,
    wait_ms           BIGINT NOT NULL,
    spend_nanos       BIGINT NOT NULL,
    PRIMARY KEY (scope, task, day, upstream, model)
);

CREATE INDEX usage_of_day ON usage (day);

-- Tokens that people made for agents of their own. Only a hash is kept.
CREATE TABLE gate_tokens (
    hash       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    scope      TEXT COLLATE "C" NOT NULL,
    task       TEXT COLLATE "C",
    level      TEXT COLLATE "C",
    made_at    BIGINT NOT NULL,
    expires_at BIGINT
);
