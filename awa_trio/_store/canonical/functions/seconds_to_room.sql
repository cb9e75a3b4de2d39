-- seconds_to_room: when a queue may start a job, by what is said of it.
--
--   of_queue  text  the queue
--
-- Returns 0 if it may now; the seconds until its bucket has a token; null if it is paused.
--
-- Locks: none. The caller's settings hold here, too.
CREATE OR REPLACE FUNCTION awa.seconds_to_room(of_queue text) RETURNS double precision
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known record;
BEGIN
    SELECT q.paused_at, q.rate, q.burst INTO known FROM awa.queues AS q WHERE q.queue = of_queue;
    RETURN CASE WHEN known.paused_at IS NOT NULL THEN NULL
                WHEN known.rate IS NULL THEN 0
                ELSE greatest(0, (1 - awa.tokens(
                         of_queue, '', known.rate, known.burst, clock_timestamp())) / known.rate)
                END;
END
$$;
