-- busy_queues: the queues in which jobs wait, or which live workers serve.
--
--   most  int  how many of each sort, at most
--
-- Returns their names, each once.
--
-- Locks: none. Steps from queue to queue.
CREATE OR REPLACE FUNCTION awa.busy_queues(most int) RETURNS SETOF text
LANGUAGE plpgsql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    names text[] := ARRAY(
        SELECT DISTINCT q.queue FROM awa.workers AS w CROSS JOIN unnest(w.queues) AS q (queue)
         WHERE w.fenced_at IS NULL AND w.beat_at >= clock_timestamp() - w.lease LIMIT most);
    here text := '';
BEGIN
    -- Each branch is what one partial index holds, so that it is what is read.
    FOR n IN 1..most LOOP
        SELECT min(q.queue) INTO here FROM (
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
              ORDER BY j.queue LIMIT 1)) AS q;
        EXIT WHEN here IS NULL;
        names := names || here;
    END LOOP;
    RETURN QUERY SELECT DISTINCT n FROM unnest(names) AS n;
END
$$;
