-- What waits for an artifact is looked at again and again, and is little.
CREATE INDEX tasks_awaiting ON tasks (queue, seq)
    WHERE status = 'open' AND triggered_by IS NOT NULL AND NOT artifact_present;
