-- next_due: how long a worker that found too little to do may sleep.
--
--   queues  text[]  the queues it serves
--   kinds   text[]  the kinds it can run
--
-- Returns the seconds until the next job may start; 0 if one may now, which someone
-- else was claiming; null if no job waits for its time alone. Jobs whose ordering key is taken
-- do not count, nor those whose limit key has as many under way as it may have: whoever lets
-- go of the key looks for the next. Nor do those of a paused queue, nor those with both keys
-- while the rate of the limit key is used up. Those that are due later count whatever their
-- kind.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.next_due(queues text[], kinds text[]) RETURNS double precision
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        SELECT min(greatest(extract(epoch FROM w.run_at - clock_timestamp())::float8, s.seconds, 0))
          FROM unnest(queues) AS q (queue)
         CROSS JOIN LATERAL awa.seconds_to_room(q.queue) AS s (seconds)
         CROSS JOIN LATERAL (
               SELECT l.after_run_at AS run_at FROM awa.lanes(q.queue, kinds) AS l
                UNION ALL
               (SELECT j.run_at FROM awa.jobs AS j
                 WHERE j.queue = q.queue AND j.state IN ('available', 'scheduled', 'retryable')
                   AND (j.ordering_key IS NOT NULL OR j.limit_key IS NOT NULL) AND NOT j.known_due
                 ORDER BY j.run_at LIMIT 1)
                UNION ALL
               SELECT h.run_at FROM awa.heads(q.queue, kinds, 1, 0, clock_timestamp()) AS h
                UNION ALL
               SELECT clock_timestamp() + make_interval(secs => k.seconds)
                 FROM awa.seconds_to_key(q.queue, kinds) AS k (seconds)
               ) AS w
         WHERE s.seconds IS NOT NULL AND w.run_at IS NOT NULL);
END
$$;
