-- rekey_claimed: settle the unique keys of jobs that are about to run.
--
--   ids  bigint[]  jobs that the caller has locked, in the state before they run
--
-- Returns the jobs that may run. A job whose mask has "running" but not its present
-- state needs its key back; if another job holds it, this one is cancelled as its
-- duplicate.
--
-- Locks: the claims of the keys, in byte order, waiting for each as long as the caller's
-- lock_timeout says. Rare: only masks that tell waiting from running come here.
CREATE OR REPLACE FUNCTION awa.rekey_claimed(ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    releasing bigint[]; released_keys bytea[]; taking bigint[]; taken_keys bytea[];
    losers bigint[]; holders bigint[];
BEGIN
    SELECT array_agg(j.id) FILTER (WHERE h.held AND NOT h.holds),
           array_agg(j.unique_key) FILTER (WHERE h.held AND NOT h.holds),
           array_agg(j.id ORDER BY j.id) FILTER (WHERE h.holds AND NOT h.held),
           array_agg(j.unique_key ORDER BY j.id) FILTER (WHERE h.holds AND NOT h.held)
      INTO releasing, released_keys, taking, taken_keys
      FROM awa.jobs AS j
     CROSS JOIN LATERAL (SELECT awa.holds(j.unique_states, j.state) AS held,
                                awa.holds(j.unique_states, 'running') AS holds) AS h
     WHERE j.id = ANY (ids);
    SELECT array_agg(x.job_id), array_agg(x.holder_id) INTO losers, holders
      FROM awa.exchange_keys(releasing, released_keys, taking, taken_keys) AS x;
    IF losers IS NULL THEN
        RETURN ids;
    END IF;
    PERFORM awa.cancel_duplicates(losers, holders);
    RETURN ARRAY(SELECT i FROM unnest(ids) AS i WHERE i <> ALL (losers));
END
$$;
