-- ready_lanes: the lanes of a queue in which jobs wait to be claimed, segment by segment.
--
--   wanted_queue  text    the queue
--   kinds         text[]  the kinds the caller can run; null: any
--
-- Returns a row per lane and segment, oldest segment first.
--
-- Locks: none. Steps from lane to lane, so its cost is the number of lanes, whatever the
-- number of jobs in them.
CREATE OR REPLACE FUNCTION awa.ready_lanes(wanted_queue text, kinds text[])
RETURNS TABLE (segment smallint, kind text, priority smallint)
LANGUAGE plpgsql STABLE ROWS 2
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    here smallint;
    lane record;
BEGIN
    FOREACH here IN ARRAY ARRAY(
        SELECT s.segment FROM awa.segments AS s
         WHERE NOT s.drained AND s.number <= pg_sequence_last_value('awa.segment_numbers')
         ORDER BY s.number)
    LOOP
        SELECT b.kind, b.priority INTO lane FROM awa.lane_jobs AS b
         WHERE b.segment = here AND b.queue = wanted_queue
         ORDER BY b.kind, b.priority LIMIT 1;
        WHILE lane IS NOT NULL LOOP
            IF (kinds IS NULL OR lane.kind = ANY (kinds))
               AND EXISTS (
                   SELECT FROM awa.lane_cursor(here, wanted_queue, lane.kind, lane.priority) AS c
                    CROSS JOIN LATERAL awa.lane_ahead(
                          here, wanted_queue, lane.kind, lane.priority, c.xid, c.id,
                          c.open_xids, c.open_ids, 1) AS a)
            THEN
                segment := here;
                kind := lane.kind;
                priority := lane.priority;
                RETURN NEXT;
            END IF;
            SELECT b.kind, b.priority INTO lane FROM awa.lane_jobs AS b
             WHERE b.segment = here AND b.queue = wanted_queue
               AND (b.kind, b.priority) > (lane.kind, lane.priority)
             ORDER BY b.kind, b.priority LIMIT 1;
        END LOOP;
    END LOOP;
END
$$;
