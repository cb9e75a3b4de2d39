-- cancel_duplicates: end jobs that need a unique key which another job holds.
--
--   losers   bigint[]  the jobs, locked by the caller
--   holders  bigint[]  for each, the job that holds its key
--
-- Returns nothing. A job that has completed stays completed; any other is cancelled.
-- Neither will hold its key again.
--
-- Locks: none besides the caller's.
CREATE OR REPLACE FUNCTION awa.cancel_duplicates(losers bigint[], holders bigint[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    UPDATE awa.jobs AS j
       SET unique_key = NULL, unique_states = NULL,
           state = CASE j.state WHEN 'completed' THEN j.state ELSE 'cancelled' END,
           finalized_at = coalesce(j.finalized_at, clock_timestamp()),
           errors = CASE j.state WHEN 'completed' THEN j.errors
                    ELSE awa.add_error(j.errors, format('cancelled: duplicate of job %s', d.holder),
                                       j.attempt, true) END
      FROM unnest(losers, holders) AS d (id, holder)
     WHERE j.id = d.id;
END
$$;
