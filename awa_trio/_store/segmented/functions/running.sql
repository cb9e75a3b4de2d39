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
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT b.id, 1::bigint, b.kind, 1::smallint, b.max_attempts, 'running', NULL::text, false
      FROM awa.open_claims() AS c
     CROSS JOIN LATERAL unnest(c.ids) AS r (ids)
      JOIN awa.lane_jobs AS b
        ON b.segment = c.segment AND b.id >= lower(r.ids) AND b.id < upper(r.ids)
     WHERE c.worker_id = worker
     UNION ALL
    SELECT r.* FROM awa.running_rows(worker) AS r;
END
$$;
