-- history: what has happened to jobs, step by step.
--
--   seconds  double precision  how far to look back
--   step     double precision  seconds of each step; they are counted from 1970
--   most     int               jobs to look at in each place that awa.ended looks at
--
-- Returns a row per step in which a job ended, in no order, and one without a number if none did: the
-- present; from when on all is known, later than asked for where more than `most` jobs ended; the
-- step's number; how many completed, failed, and were cancelled in it; and of those that completed
-- the median, the 95th and the 99th percentile of the seconds from due to start, and from start to
-- end, null if there are none.
--
-- Locks: none. As awa.ended.
CREATE OR REPLACE FUNCTION awa.history(
    seconds double precision, step double precision, most int
)
RETURNS TABLE (
    present timestamptz, since timestamptz, number bigint,
    completed int, failed int, cancelled int, pickup double precision[], run double precision[]
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    asked timestamptz := moment - make_interval(secs => seconds);
BEGIN
    RETURN QUERY
    WITH ended AS MATERIALIZED (SELECT e.* FROM awa.ended(asked, most) AS e),
    known AS MATERIALIZED (
        SELECT greatest(asked, max(c.at)) AS at
          FROM (SELECT min(e.at) AS at FROM ended AS e
                 WHERE e.state IS NOT NULL GROUP BY e.place HAVING count(*) >= most
                 UNION ALL
                SELECT e.at FROM ended AS e WHERE e.state IS NULL) AS c),
    placed AS (
        SELECT e.*, floor(extract(epoch FROM e.at)::float8 / step)::bigint AS number
          FROM ended AS e WHERE e.state IS NOT NULL)
    SELECT moment, k.at, p.number,
           count(*) FILTER (WHERE p.state = 'completed')::int,
           count(*) FILTER (WHERE p.state = 'failed')::int,
           count(*) FILTER (WHERE p.state = 'cancelled')::int,
           percentile_disc('{0.5,0.95,0.99}'::float8[]) WITHIN GROUP (ORDER BY p.pickup),
           percentile_disc('{0.5,0.95,0.99}'::float8[]) WITHIN GROUP (ORDER BY p.run)
      FROM known AS k LEFT JOIN placed AS p ON p.at >= k.at
     GROUP BY k.at, p.number;
END
$$;
