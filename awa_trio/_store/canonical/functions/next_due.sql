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
DECLARE
    name text;
    wait double precision;
    due timestamptz;
    soonest double precision;
BEGIN
    FOREACH name IN ARRAY queues LOOP
        wait := 0;
        IF EXISTS (SELECT FROM awa.queues AS q WHERE q.queue = name) THEN
            wait := awa.seconds_to_room(name);
            CONTINUE WHEN wait IS NULL;
        END IF;
        due := least(
            (SELECT min(l.after_run_at) FROM awa.lanes(name, kinds) AS l),
            (SELECT j.run_at FROM awa.jobs AS j
              WHERE j.queue = name AND j.state IN ('available', 'scheduled', 'retryable')
                AND (j.ordering_key IS NOT NULL OR j.limit_key IS NOT NULL) AND NOT j.known_due
              ORDER BY j.run_at LIMIT 1));
        IF EXISTS (SELECT FROM awa.jobs AS j
                    WHERE j.queue = name AND j.ordering_key IS NOT NULL
                      AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due)
           OR EXISTS (SELECT FROM awa.jobs AS j
                    WHERE j.queue = name AND j.limit_key IS NOT NULL AND j.ordering_key IS NULL
                      AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due)
        THEN
            due := least(
                due,
                (SELECT min(h.run_at) FROM awa.heads(name, kinds, 1, 0, clock_timestamp()) AS h),
                clock_timestamp() + make_interval(secs => awa.seconds_to_key(name, kinds)));
        END IF;
        IF due IS NOT NULL THEN
            soonest := least(soonest, greatest(
                extract(epoch FROM due - clock_timestamp())::double precision, wait, 0));
        END IF;
    END LOOP;
    RETURN soonest;
END
$$;
