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
    SELECT awa.served_queues(most)
     UNION
    SELECT awa.waiting_queues(most)
$$;
