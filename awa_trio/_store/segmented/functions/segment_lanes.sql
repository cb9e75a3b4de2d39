-- segment_lanes: the lanes that have, or had, jobs in a segment.
--
--   wanted  smallint  the segment
--
-- Returns a row per lane.
--
-- Locks: none. Steps from lane to lane.
CREATE OR REPLACE FUNCTION awa.segment_lanes(wanted smallint)
RETURNS TABLE (queue text, kind text, priority smallint)
LANGUAGE plpgsql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    SELECT b.queue, b.kind, b.priority INTO queue, kind, priority FROM awa.lane_jobs AS b
     WHERE b.segment = wanted ORDER BY b.queue, b.kind, b.priority LIMIT 1;
    WHILE FOUND LOOP
        RETURN NEXT;
        SELECT b.queue, b.kind, b.priority INTO queue, kind, priority FROM awa.lane_jobs AS b
         WHERE b.segment = wanted AND (b.queue, b.kind, b.priority)
               > (segment_lanes.queue, segment_lanes.kind, segment_lanes.priority)
         ORDER BY b.queue, b.kind, b.priority LIMIT 1;
    END LOOP;
END
$$;
