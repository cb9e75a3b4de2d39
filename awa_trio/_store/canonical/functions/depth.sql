-- depth: how full a queue is, for those who would put more into it.
--
--   of_queue   text  the queue
--   max_depth  int   its limit, unless that is overridden
--
-- Returns one row:
--   due        int  jobs that are due and not claimed, counted up to the limit
--   max_depth  int  the limit; null if the override is that there is none
--
-- With the rights of the schema's owner: whoever may enqueue need not be one who may look at
-- jobs. It tells how many there are, and nothing else.
--
-- Locks: none. As awa.backlogs, its cost is bounded by the limit.
CREATE OR REPLACE FUNCTION awa.depth(of_queue text, INOUT max_depth int, OUT due int)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept jsonb := (SELECT q.overrides -> 'max_depth' FROM awa.queues AS q WHERE q.queue = of_queue);
BEGIN
    max_depth := CASE WHEN kept IS NULL THEN max_depth ELSE (kept #>> '{}')::int END;
    due := 0;
    IF max_depth IS NOT NULL THEN
        due := (SELECT b.due FROM awa.backlogs(ARRAY[of_queue], max_depth) AS b);
    END IF;
END
$$;
