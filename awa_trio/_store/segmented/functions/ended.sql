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
-- Locks: none. Reads the ends of indexes. In the lanes, the latest claims: jobs that were claimed
-- before, and have ended since with all others of their claim, are not seen.
CREATE OR REPLACE FUNCTION awa.ended(since timestamptz, most int)
RETURNS TABLE (place text, state text, at timestamptz, pickup double precision, run double precision)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    last bigint;
BEGIN
    RETURN QUERY SELECT * FROM awa.ended_rows(since, most);
    SELECT c.number, c.claimed_at INTO last, at FROM awa.lane_claims AS c
     ORDER BY c.number DESC OFFSET most LIMIT 1;
    IF at > since THEN
        RETURN NEXT;
    END IF;
    RETURN QUERY
    SELECT 'lanes', 'completed', e.at,
           greatest(extract(epoch FROM e.claimed_at - b.created_at)::float8, 0),
           extract(epoch FROM e.at - e.claimed_at)::float8
      FROM (SELECT c.segment, c.claimed_at, e.at, e.ids
              FROM (SELECT c.number, c.segment, c.claimed_at FROM awa.lane_claims AS c
                     WHERE c.number > coalesce(last, 0)
                     UNION ALL
                    SELECT c.number, c.segment, c.claimed_at FROM awa.open_claims() AS c
                     WHERE c.number <= last) AS c
             CROSS JOIN LATERAL (
                   SELECT e.at, e.ids FROM awa.lane_ends AS e
                    WHERE e.segment = c.segment AND e.claim = c.number AND e.completed
                      AND e.at > since) AS e
             ORDER BY e.at DESC) AS e
     CROSS JOIN LATERAL unnest(e.ids) AS r (ids)
     CROSS JOIN LATERAL (
           SELECT b.created_at FROM awa.lane_jobs AS b
            WHERE b.segment = e.segment AND b.id >= lower(r.ids) AND b.id < upper(r.ids)) AS b
     LIMIT most;
END
$$;
