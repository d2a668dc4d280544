-- The last fence of each id that was pruned: a task that is added again under it goes on from there.
CREATE TABLE retired (
    scope TEXT COLLATE "C" NOT NULL,
    id    TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    PRIMARY KEY (scope, id)
);

-- A NOTIFY makes every commit wait for a lock of the whole server, so it is sent only while somebody listens: a
-- listener holds this lock exclusively, and a writer that can share it for a moment is alone. Polling stays the truth.
CREATE FUNCTION tell_followers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_try_advisory_lock_shared(hashtextextended('rota followers {schema}', 0)) THEN
        PERFORM pg_advisory_unlock_shared(hashtextextended('rota followers {schema}', 0));
    ELSE
        PERFORM pg_notify('rota', '{schema}');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER journal_tells AFTER INSERT ON journal FOR EACH STATEMENT EXECUTE FUNCTION tell_followers();
