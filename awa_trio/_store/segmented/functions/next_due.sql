-- next_due: how long a worker that found too little to do may sleep.
--
--   queues  text[]  the queues it serves
--   kinds   text[]  the kinds it can run
--
-- Returns what awa.next_due_of_rows does, which is this function of the canonical engine, and
-- counts the jobs in lanes, too.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.next_due(queues text[], kinds text[]) RETURNS double precision
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN least(
        (SELECT min(s.seconds) FROM unnest(queues) AS q (queue)
          CROSS JOIN LATERAL awa.seconds_to_room(q.queue) AS s (seconds)
          WHERE s.seconds IS NOT NULL AND EXISTS (SELECT FROM awa.ready_lanes(q.queue, kinds))),
        awa.next_due_of_rows(queues, kinds));
END
$$;
