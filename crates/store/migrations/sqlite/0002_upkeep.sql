-- The last fence of each id that was pruned: a task that is added again under it goes on from there.
CREATE TABLE retired (
    scope TEXT    NOT NULL,
    id    TEXT    NOT NULL,
    fence INTEGER NOT NULL,
    PRIMARY KEY (scope, id)
) STRICT, WITHOUT ROWID;
