-- running: the attempts that the rows say a worker runs, or waits with.
--
--   worker  bigint  the worker's ID
--
-- Returns a row per attempt: the job and its lease; the callback it has registered,
-- and whether that has been answered.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.running(worker bigint)
RETURNS TABLE (
    id bigint, run_lease bigint, kind awa.label, attempt smallint, max_attempts awa.max_attempts,
    state text, token text, answered boolean
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT j.id, j.run_lease, j.kind, j.attempt, j.max_attempts, j.state::text,
           j.callback_token, j.callback_token IS NOT NULL AND j.callback_until IS NULL
      FROM awa.jobs AS j
     WHERE j.state = 'running' AND j.worker_id = worker
     UNION ALL
    SELECT j.id, j.run_lease, j.kind, j.attempt, j.max_attempts, j.state::text,
           j.callback_token, j.callback_until IS NULL
      FROM awa.jobs AS j
     WHERE j.state = 'waiting_external' AND j.worker_id = worker;
END
$$;
