UPDATE bare.jobs SET taken = true WHERE id = (SELECT id FROM bare.jobs WHERE NOT taken ORDER BY priority, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id AS held, payload \gset
DELETE FROM bare.jobs WHERE id = :held;
