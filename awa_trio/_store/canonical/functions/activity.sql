-- activity: what has happened to jobs lately.
--
--   seconds  double precision  how far to look back
--   most     int               jobs to look at in each state that they ended in
--
-- Returns one row: the present; the seconds that were looked at, fewer than asked for where more
-- than `most` jobs ended in them; how many completed, failed, and were cancelled in that time;
-- of those that completed the median, the 95th and the 99th percentile of the seconds from due to
-- start, and from start to end, null if there are none; the greatest ID of a job, null if there
-- is none; the latest that failed, newest first; and the queues in which jobs wait, or which
-- live workers serve, as awa.busy_queues.
--
-- Locks: none. As awa.ended.
CREATE OR REPLACE FUNCTION awa.activity(seconds double precision, most int)
RETURNS TABLE (
    present timestamptz, looked double precision, completed int, failed int, cancelled int,
    pickup double precision[], run double precision[], newest bigint, failures bigint[],
    queues text[]
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    present := clock_timestamp();
    WITH ended AS MATERIALIZED (
        SELECT e.* FROM awa.ended(present - make_interval(secs => seconds), most) AS e),
    since AS MATERIALIZED (
        SELECT greatest(present - make_interval(secs => seconds), max(c.at)) AS at
          FROM (SELECT min(e.at) AS at FROM ended AS e
                 WHERE e.state IS NOT NULL GROUP BY e.place HAVING count(*) >= most
                 UNION ALL
                SELECT e.at FROM ended AS e WHERE e.state IS NULL) AS c)
    SELECT extract(epoch FROM present - s.at)::float8,
           count(*) FILTER (WHERE e.state = 'completed')::int,
           count(*) FILTER (WHERE e.state = 'failed')::int,
           count(*) FILTER (WHERE e.state = 'cancelled')::int,
           percentile_disc('{0.5,0.95,0.99}'::float8[]) WITHIN GROUP (ORDER BY e.pickup),
           percentile_disc('{0.5,0.95,0.99}'::float8[]) WITHIN GROUP (ORDER BY e.run)
      INTO looked, completed, failed, cancelled, pickup, run
      FROM since AS s LEFT JOIN ended AS e ON e.at >= s.at
     GROUP BY s.at;
    SELECT s.id INTO newest FROM awa.job_stamps() AS s ORDER BY s.id DESC LIMIT 1;
    failures := ARRAY(
        SELECT f.id
          FROM ((SELECT j.id, j.finalized_at FROM awa.jobs AS j
                  WHERE j.state = 'failed' AND j.dead_letter IS NULL
                  ORDER BY j.finalized_at DESC LIMIT 10)
                 UNION ALL
                (SELECT j.id, j.finalized_at FROM awa.jobs AS j
                  WHERE j.dead_letter IS NOT NULL
                  ORDER BY j.finalized_at DESC LIMIT 10)) AS f
         ORDER BY f.finalized_at DESC, f.id DESC LIMIT 10);
    queues := ARRAY(SELECT q FROM awa.busy_queues(100) AS q ORDER BY q);
    RETURN NEXT;
END
$$;
