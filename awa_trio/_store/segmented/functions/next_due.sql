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
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    name text;
    wait double precision;
    soonest double precision;
BEGIN
    FOREACH name IN ARRAY queues LOOP
        CONTINUE WHEN NOT EXISTS (SELECT FROM awa.ready_lanes(name, kinds));
        wait := 0;
        IF EXISTS (SELECT FROM awa.queues AS q WHERE q.queue = name) THEN
            wait := awa.seconds_to_room(name);
        END IF;
        IF wait = 0 THEN
            RETURN 0;
        END IF;
        soonest := least(soonest, wait);
    END LOOP;
    RETURN least(soonest, awa.next_due_of_rows(queues, kinds));
END
$$;
