-- next_due: how long a worker that found too little to do may sleep.
--
--   queues  text[]  the queues it serves
--   kinds   text[]  the kinds it can run
--
-- Returns the seconds until the next job is due; 0 if one is due now, which someone
-- else was claiming; null if no job waits. Jobs whose ordering key is taken do not count:
-- whoever lets go of the key looks for the next. Those that are due later count whatever
-- their kind.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.next_due(queues text[], kinds text[]) RETURNS double precision
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN min(w.run_at) IS NOT NULL
                    THEN greatest(extract(epoch FROM min(w.run_at) - clock_timestamp())::float8, 0) END
          FROM unnest(queues) AS q (queue)
         CROSS JOIN LATERAL (
               SELECT l.after_run_at AS run_at FROM awa.lanes(q.queue, kinds) AS l
                UNION ALL
               (SELECT j.run_at FROM awa.jobs AS j
                 WHERE j.queue = q.queue AND j.state IN ('available', 'scheduled', 'retryable')
                   AND j.ordering_key IS NOT NULL AND NOT j.known_due
                 ORDER BY j.run_at LIMIT 1)
                UNION ALL
               SELECT h.run_at FROM awa.key_heads(q.queue, kinds, 1, clock_timestamp()) AS h
               ) AS w);
END
$$;
