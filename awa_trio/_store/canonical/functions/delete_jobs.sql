-- delete_jobs: delete jobs, and say which unique keys nobody holds for them any more.
--
--   ids  bigint[]  the jobs, locked by the caller; null for none
--
-- Returns one row:
--   removed  int       how many there were
--   holding  bigint[]  those that hold a key, which the caller lets go of in the same
--                      transaction; null for none
--   keys     bytea[]   their keys, in the same order
--
-- Locks: none besides the caller's.
CREATE OR REPLACE FUNCTION awa.delete_jobs(
    ids bigint[], OUT removed int, OUT holding bigint[], OUT keys bytea[]
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    WITH gone AS (
        DELETE FROM awa.jobs AS j USING unnest(ids) AS d (id) WHERE j.id = d.id
        RETURNING j.id, j.unique_key, awa.holds(j.unique_states, j.state) AS held)
    SELECT array_agg(g.id) FILTER (WHERE g.held), array_agg(g.unique_key) FILTER (WHERE g.held),
           count(*)
      INTO holding, keys, removed FROM gone AS g;
END
$$;
