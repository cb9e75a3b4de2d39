-- prune: remove settled jobs whose retention has passed, and their hold on their unique keys.
--
--   completed  double precision  seconds a completed job is kept; infinite: for ever
--   failed     double precision  seconds a failed or cancelled job is kept
--   most       int               how many to remove
--
-- Returns how many were removed. In one transaction with their keys, so that the time
-- in which a finished job blocks its duplicates is its retention.
--
-- Locks: the jobs, skipping those that anyone else has locked; then the claims of their
-- unique keys, in byte order.
CREATE OR REPLACE FUNCTION awa.prune(completed double precision, failed double precision, most int)
RETURNS int
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    ids bigint[];
    keys bytea[];
    removed int;
BEGIN
    SELECT array_agg(d.id) INTO ids
      FROM unnest(ARRAY['completed', 'failed', 'cancelled']::awa.job_state[],
                  ARRAY[completed, failed, failed]) AS s (state, seconds)
     CROSS JOIN LATERAL (
           SELECT j.id FROM awa.jobs AS j
            WHERE j.state = s.state AND j.state IN ('completed', 'failed', 'cancelled')
              AND s.seconds < 'infinity'
              AND j.finalized_at < clock_timestamp()
                                   - make_interval(secs => least(s.seconds, 1e9))
            ORDER BY j.finalized_at LIMIT most FOR UPDATE SKIP LOCKED) AS d;
    WITH gone AS (
        DELETE FROM awa.jobs AS j USING unnest(ids) AS d (id) WHERE j.id = d.id
        RETURNING j.id, j.unique_key, awa.holds(j.unique_states, j.state) AS held)
    SELECT array_agg(g.id) FILTER (WHERE g.held), array_agg(g.unique_key) FILTER (WHERE g.held),
           count(*)
      INTO ids, keys, removed FROM gone AS g;
    IF keys IS NOT NULL THEN
        PERFORM awa.exchange_keys(ids, keys, NULL, NULL);
    END IF;
    RETURN removed;
END
$$;
