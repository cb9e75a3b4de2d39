-- rare_jobs: the jobs in states that few are in: failed, cancelled, running.
--
--   states  text[]  which of these
--
-- Returns a row per job, with what lists of jobs are filtered by.
--
-- Locks: none. Inlined; each state is looked up in an index of its own, so that they are not
-- looked for among all that has completed.
CREATE OR REPLACE FUNCTION awa.rare_jobs(states text[])
RETURNS TABLE (id bigint, kind awa.label, queue awa.label, tags awa.tags)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT j.id, j.kind, j.queue, j.tags FROM awa.jobs AS j
     WHERE j.state = 'failed' AND j.dead_letter IS NULL AND 'failed' = ANY (states)
     UNION ALL
    SELECT j.id, j.kind, j.queue, j.tags FROM awa.jobs AS j
     WHERE j.dead_letter IS NOT NULL AND 'failed' = ANY (states)
     UNION ALL
    SELECT j.id, j.kind, j.queue, j.tags FROM awa.jobs AS j
     WHERE j.state = 'cancelled' AND j.dead_letter IS NULL AND 'cancelled' = ANY (states)
     UNION ALL
    SELECT j.id, j.kind, j.queue, j.tags FROM awa.jobs AS j
     WHERE j.state = 'running' AND 'running' = ANY (states);
END;
