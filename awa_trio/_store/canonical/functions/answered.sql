-- answered: the attempts that wait in a worker's memory, and whose callbacks have been answered.
--
--   worker  bigint  the worker's ID
--
-- Returns a row per attempt, as awa.running does. One call finds all that a worker was
-- not told, or whose notification was lost.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.answered(worker bigint)
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
           j.callback_token, true
      FROM awa.jobs AS j
     WHERE j.state = 'waiting_external' AND j.worker_id = worker AND j.callback_until IS NULL;
END
$$;
