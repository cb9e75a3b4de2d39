-- remove_jobs: remove jobs, and their hold on their unique keys, in one transaction.
--
--   ids  bigint[]  the jobs, locked by the caller; null for none
--
-- Returns how many were removed.
--
-- Locks: the claims of their unique keys, in byte order.
CREATE OR REPLACE FUNCTION awa.remove_jobs(ids bigint[]) RETURNS int
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    holding bigint[];
    keys bytea[];
    removed int;
BEGIN
    WITH gone AS (
        DELETE FROM awa.jobs AS j USING unnest(ids) AS d (id) WHERE j.id = d.id
        RETURNING j.id, j.unique_key, awa.holds(j.unique_states, j.state) AS held)
    SELECT array_agg(g.id) FILTER (WHERE g.held), array_agg(g.unique_key) FILTER (WHERE g.held),
           count(*)
      INTO holding, keys, removed FROM gone AS g;
    IF keys IS NOT NULL THEN
        PERFORM awa.exchange_keys(holding, keys, NULL, NULL);
    END IF;
    RETURN removed;
END
$$;
