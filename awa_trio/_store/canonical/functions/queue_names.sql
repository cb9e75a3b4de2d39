-- queue_names: the queues that have live jobs.
--
-- Returns their names, in no order.
--
-- Locks: none. Steps from queue to queue; of those that only run or wait for a callback, reads
-- 100,000 jobs at most.
CREATE OR REPLACE FUNCTION awa.queue_names() RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    here text := '';
BEGIN
    LOOP
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
    END LOOP;
    RETURN QUERY
    SELECT DISTINCT r.queue::text
      FROM ((SELECT j.queue FROM awa.jobs AS j WHERE j.state = 'running' LIMIT 100000)
             UNION ALL
            (SELECT j.queue FROM awa.jobs AS j WHERE j.state = 'waiting_external' LIMIT 100000)) AS r;
END
$$;
