-- queue_counts: how many jobs of queues are in the states that are not final.
--
--   queues  text[]  the queues
--   most    int     jobs that are read of those of a queue that wait; of those that run, or
--                   wait for a callback, of all queues, ten times as many, or 100,000
--
-- Returns a row per queue and state that has some.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.queue_counts(queues text[], most int)
RETURNS TABLE (queue text, state text, jobs int)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT q.queue, w.state::text, count(*)::int
      FROM unnest(queues) AS q (queue)
     CROSS JOIN LATERAL (
           SELECT * FROM (
               (SELECT j.state FROM awa.jobs AS j
                 WHERE j.queue = q.queue AND j.state IN ('available', 'scheduled', 'retryable')
                   AND j.ordering_key IS NULL AND j.limit_key IS NULL LIMIT most)
                UNION ALL
               (SELECT j.state FROM awa.jobs AS j
                 WHERE j.queue = q.queue AND j.state IN ('available', 'scheduled', 'retryable')
                   AND j.ordering_key IS NOT NULL LIMIT most)
                UNION ALL
               (SELECT j.state FROM awa.jobs AS j
                 WHERE j.queue = q.queue AND j.state IN ('available', 'scheduled', 'retryable')
                   AND j.known_due AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL LIMIT most)
                UNION ALL
               (SELECT j.state FROM awa.jobs AS j
                 WHERE j.queue = q.queue AND j.state IN ('available', 'scheduled', 'retryable')
                   AND NOT j.known_due AND (j.ordering_key IS NOT NULL OR j.limit_key IS NOT NULL)
                   AND j.ordering_key IS NULL LIMIT most)) AS w
            LIMIT most) AS w
     GROUP BY q.queue, w.state
     UNION ALL
    SELECT h.queue::text, h.state::text, least(count(*), most)::int
      FROM ((SELECT j.queue, j.state FROM awa.jobs AS j
              WHERE j.state = 'running' LIMIT greatest(10 * most::bigint, 100000))
             UNION ALL
            (SELECT j.queue, j.state FROM awa.jobs AS j
              WHERE j.state = 'waiting_external' LIMIT greatest(10 * most::bigint, 100000))) AS h
     WHERE h.queue = ANY (queues)
     GROUP BY h.queue, h.state;
END
$$;
