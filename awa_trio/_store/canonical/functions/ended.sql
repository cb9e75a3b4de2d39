-- ended: the jobs that ended last.
--
--   since  timestamptz  only those that ended after this
--   most   int          how many from each place that is looked at, at most
--
-- Returns a row per job: the place, its state, when it ended, and of those that completed the seconds from
-- when it was due until its attempt began, and from then to its end. And, where not all could be
-- looked at, a row without a state: of what ended before its time, nothing is known. Nor is it of
-- what ended before the first from a place with `most`.
--
-- Locks: none. Reads the ends of indexes.
CREATE OR REPLACE FUNCTION awa.ended(since timestamptz, most int)
RETURNS TABLE (place text, state text, at timestamptz, pickup double precision, run double precision)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    (SELECT 'completed', 'completed', j.finalized_at,
            greatest(extract(epoch FROM j.attempted_at - j.run_at)::float8, 0),
            extract(epoch FROM j.finalized_at - j.attempted_at)::float8
       FROM awa.jobs AS j
      WHERE j.state = 'completed' AND j.dead_letter IS NULL AND j.finalized_at > since
      ORDER BY j.finalized_at DESC LIMIT most)
     UNION ALL
    (SELECT 'cancelled', 'cancelled', j.finalized_at, NULL::float8, NULL::float8
       FROM awa.jobs AS j
      WHERE j.state = 'cancelled' AND j.dead_letter IS NULL AND j.finalized_at > since
      ORDER BY j.finalized_at DESC LIMIT most)
     UNION ALL
    (SELECT 'failed', 'failed', j.finalized_at, NULL::float8, NULL::float8
       FROM awa.jobs AS j
      WHERE j.state = 'failed' AND j.dead_letter IS NULL AND j.finalized_at > since
      ORDER BY j.finalized_at DESC LIMIT most)
     UNION ALL
    (SELECT 'dead letters', 'failed', j.finalized_at, NULL::float8, NULL::float8
       FROM awa.jobs AS j
      WHERE j.dead_letter IS NOT NULL AND j.finalized_at > since
      ORDER BY j.finalized_at DESC LIMIT most);
END
$$;
