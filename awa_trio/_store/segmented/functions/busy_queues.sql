-- busy_queues: the queues in which jobs wait, or which live workers serve.
--
--   most  int  how many of each sort, at most
--
-- Returns their names, each once.
--
-- Locks: none. Steps from queue to queue, and from lane to lane in the segments with jobs to claim.
CREATE OR REPLACE FUNCTION awa.busy_queues(most int) RETURNS SETOF text
LANGUAGE plpgsql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT r FROM awa.busy_queues_of_rows(most) AS r
     UNION
    (SELECT q.queue
       FROM (SELECT DISTINCT l.queue
               FROM awa.segments AS s CROSS JOIN LATERAL awa.segment_lanes(s.segment) AS l
              WHERE NOT s.drained) AS q
      WHERE EXISTS (SELECT FROM awa.ready_lanes(q.queue, NULL)) LIMIT most);
END
$$;
