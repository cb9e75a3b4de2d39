-- queue_overrides: what has been put in place of the settings of queues.
--
--   queues  text[]  the queues
--
-- Returns a row for each of which something has.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.queue_overrides(queues text[])
RETURNS TABLE (queue awa.label, overrides jsonb)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT q.queue, q.overrides FROM awa.queues AS q
     WHERE q.queue = ANY (queues) AND q.overrides <> '{}'
$$;
