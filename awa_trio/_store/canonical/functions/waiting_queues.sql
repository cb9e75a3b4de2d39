-- waiting_queues: the queues in which jobs wait.
--
--   most  int  how many, at most; null: all
--
-- Returns their names, each once, in order.
--
-- Locks: none. Steps from queue to queue.
CREATE OR REPLACE FUNCTION awa.waiting_queues(most int) RETURNS SETOF text
LANGUAGE plpgsql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    here text := '';
    found int := 0;
BEGIN
    -- Each branch is what one partial index holds, so that it is what is read.
    WHILE coalesce(found < most, true) LOOP
        SELECT min(n.queue) INTO here FROM (
            (SELECT j.queue FROM awa.jobs AS j
              WHERE j.state IN ('available', 'scheduled', 'retryable')
                AND j.ordering_key IS NULL AND j.limit_key IS NULL AND j.queue > here
              ORDER BY j.queue LIMIT 1)
             UNION ALL
            (SELECT j.queue FROM awa.jobs AS j
              WHERE j.state IN ('available', 'scheduled', 'retryable')
                AND j.ordering_key IS NOT NULL AND j.queue > here
              ORDER BY j.queue LIMIT 1)
             UNION ALL
            (SELECT j.queue FROM awa.jobs AS j
              WHERE j.state IN ('available', 'scheduled', 'retryable') AND j.known_due
                AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL AND j.queue > here
              ORDER BY j.queue LIMIT 1)
             UNION ALL
            (SELECT j.queue FROM awa.jobs AS j
              WHERE j.state IN ('available', 'scheduled', 'retryable') AND NOT j.known_due
                AND (j.ordering_key IS NOT NULL OR j.limit_key IS NOT NULL) AND j.queue > here
              ORDER BY j.queue LIMIT 1)) AS n;
        EXIT WHEN here IS NULL;
        RETURN NEXT here;
        found := found + 1;
    END LOOP;
END
$$;
