-- room_in_queue: how many jobs of a queue a claim may start now, by what is said of the queue.
--
--   wanted_queue  text  the queue
--   most          int   how many the claimer has room for
--
-- Returns one row:
--   room      int      0 if the queue is paused, or has nothing left of its rate
--   has_rate  boolean  whether what is started is to be taken from its bucket: awa.spend
--
-- Locks: of a queue with limits its row, until commit: of several claims that might exceed
-- them together, each sees what those before it have started. Callers take queues in order
-- of their names, and have taken the lock of awa.set_queue. The caller's settings hold here, too.
CREATE OR REPLACE FUNCTION awa.room_in_queue(
    wanted_queue text, most int, OUT room int, OUT has_rate boolean
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known record;
BEGIN
    SELECT q.paused_at, q.rate, q.burst, q.key_rate, q.max_per_key INTO known
      FROM awa.queues AS q WHERE q.queue = wanted_queue;
    room := CASE WHEN known.paused_at IS NULL THEN most ELSE 0 END;
    has_rate := known.rate IS NOT NULL;
    IF room > 0 AND (has_rate OR known.key_rate IS NOT NULL OR known.max_per_key IS NOT NULL) THEN
        PERFORM FROM awa.queues AS q WHERE q.queue = wanted_queue FOR NO KEY UPDATE;
        IF has_rate THEN
            room := least(most, floor(
                awa.tokens(wanted_queue, '', known.rate, known.burst, clock_timestamp()) + 1e-6)::int);
        END IF;
    END IF;
END
$$;
