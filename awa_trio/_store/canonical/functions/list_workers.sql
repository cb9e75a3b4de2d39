-- list_workers: the workers there are, and those that were fenced and not forgotten yet.
--
--   most  int  how many
--
-- Returns a row per worker: when it began and when it last beat; the seconds since, and those of
-- its lease; whether it is fenced; how many attempts it runs, and how many wait for a callback
-- in its memory; what it serves, null if it did not say; and what it does for all.
--
-- Locks: none. Reads what the workers hold.
CREATE OR REPLACE FUNCTION awa.list_workers(most int)
RETURNS TABLE (
    id bigint, name text, started_at timestamptz, beat_at timestamptz, silent double precision,
    lease double precision, fenced boolean, running int, waiting int, queues text[], kinds text[],
    duties text[]
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT w.id, w.name, w.started_at, w.beat_at,
           extract(epoch FROM clock_timestamp() - w.beat_at)::float8,
           extract(epoch FROM w.lease)::float8, w.fenced_at IS NOT NULL,
           h.running, h.waiting, w.queues, w.kinds,
           ARRAY(SELECT l.duty FROM awa.leaders AS l
                  WHERE l.worker_id = w.id AND l.until >= clock_timestamp() ORDER BY l.duty)
      FROM (SELECT * FROM awa.workers ORDER BY id LIMIT most) AS w
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE r.state = 'running')::int AS running,
                  count(*) FILTER (WHERE r.state <> 'running')::int AS waiting
             FROM awa.running(w.id) AS r) AS h
     ORDER BY w.id;
END
$$;
