-- old_jobs: the settled jobs whose retention has passed.
--
--   completed     double precision  seconds a completed job is kept; infinite: for ever
--   failed        double precision  seconds a failed or cancelled job is kept
--   dead_letters  double precision  seconds a dead letter is kept
--   most          int               how many to find
--
-- Returns them; null for none.
--
-- Locks: the jobs, skipping those that anyone else has locked.
CREATE OR REPLACE FUNCTION awa.old_jobs(
    completed double precision, failed double precision, dead_letters double precision, most int
) RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN (
        SELECT array_agg(o.id)
          FROM (SELECT d.id
                  FROM unnest(ARRAY['completed', 'failed', 'cancelled']::awa.job_state[],
                              ARRAY[completed, failed, failed]) AS s (state, seconds)
                 CROSS JOIN LATERAL (
                       SELECT j.id FROM awa.jobs AS j
                        WHERE j.state = s.state AND j.state IN ('completed', 'failed', 'cancelled')
                          AND j.dead_letter IS NULL AND s.seconds < 'infinity'
                          AND j.finalized_at < clock_timestamp()
                                               - make_interval(secs => least(s.seconds, 1e9))
                        ORDER BY j.finalized_at LIMIT most FOR UPDATE SKIP LOCKED) AS d
                 UNION ALL
                SELECT d.id
                  FROM (SELECT j.id FROM awa.jobs AS j
                         WHERE j.dead_letter IS NOT NULL AND dead_letters < 'infinity'
                           AND j.finalized_at < clock_timestamp()
                                                - make_interval(secs => least(dead_letters, 1e9))
                         ORDER BY j.finalized_at LIMIT most FOR UPDATE SKIP LOCKED) AS d
                 LIMIT most) AS o);
END
$$;
