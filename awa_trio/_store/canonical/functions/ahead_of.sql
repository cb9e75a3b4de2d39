-- ahead_of: how many jobs come before one in its lane.
--
--   job_id  bigint  the job
--   most    int     how many to count
--
-- Returns how many jobs of its queue, kind and priority wait, are due, and come before it; 0 if
-- it does not wait, or has an ordering key or a limit key, and so is in no lane.
--
-- Locks: none. Counts index entries.
CREATE OR REPLACE FUNCTION awa.ahead_of(job_id bigint, most int) RETURNS int
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    job record;
BEGIN
    SELECT j.id, j.queue, j.kind, j.priority, j.run_at INTO job FROM awa.jobs AS j
     WHERE j.id = job_id AND j.state IN ('available', 'scheduled', 'retryable')
       AND j.ordering_key IS NULL AND j.limit_key IS NULL;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    RETURN (SELECT count(*)
              FROM (SELECT FROM awa.jobs AS j
                     WHERE j.queue = job.queue AND j.kind = job.kind AND j.priority = job.priority
                       AND j.state IN ('available', 'scheduled', 'retryable')
                       AND j.ordering_key IS NULL AND j.limit_key IS NULL
                       AND (j.run_at, j.id) < (job.run_at, job.id)
                       AND j.run_at <= clock_timestamp()
                     ORDER BY j.run_at, j.id LIMIT most) AS a);
END
$$;
