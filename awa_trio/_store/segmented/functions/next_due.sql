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
AS $$
BEGIN
    IF EXISTS (SELECT FROM unnest(queues) AS q (queue)
                CROSS JOIN LATERAL awa.ready_lanes(q.queue, kinds)) THEN
        RETURN 0;
    END IF;
    RETURN awa.next_due_of_rows(queues, kinds);
END
$$;
