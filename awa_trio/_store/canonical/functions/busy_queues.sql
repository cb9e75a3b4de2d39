-- busy_queues: the queues in which jobs wait, or which live workers serve.
--
--   most  int  how many of each sort, at most
--
-- Returns their names, each once.
--
-- Locks: none. Steps from queue to queue.
CREATE OR REPLACE FUNCTION awa.busy_queues(most int) RETURNS SETOF text
LANGUAGE sql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
    (SELECT DISTINCT q.queue FROM awa.workers AS w CROSS JOIN unnest(w.queues) AS q (queue)
      WHERE w.fenced_at IS NULL AND w.beat_at >= clock_timestamp() - w.lease LIMIT most)
     UNION
    SELECT awa.waiting_queues(most)
$$;
