-- served_queues: the queues that live workers serve.
--
--   most  int  how many, at most; null: all
--
-- Returns their names, each once, in no order.
--
-- Locks: none. Reads what workers say of themselves, and no job.
CREATE OR REPLACE FUNCTION awa.served_queues(most int) RETURNS SETOF text
LANGUAGE sql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT DISTINCT q.queue FROM awa.workers AS w CROSS JOIN unnest(w.queues) AS q (queue)
     WHERE w.fenced_at IS NULL AND w.beat_at >= clock_timestamp() - w.lease LIMIT most
$$;
