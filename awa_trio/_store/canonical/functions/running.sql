-- running: the attempts that the rows say a worker runs.
--
--   worker  bigint  the worker's ID
--
-- Returns a row per attempt: the job and its lease.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.running(worker bigint)
RETURNS TABLE (
    id bigint, run_lease bigint, kind awa.label, attempt smallint, max_attempts awa.max_attempts
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT j.id, j.run_lease, j.kind, j.attempt, j.max_attempts FROM awa.jobs AS j
                  WHERE j.state = 'running' AND j.worker_id = worker;
END
$$;
