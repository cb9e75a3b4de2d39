-- make_room: where the ring is full, move jobs that nobody claims out of its oldest segment.
--
-- Returns whether the ring is the caller's to turn: nobody else does until its transaction
-- ends. The jobs go into awa.jobs, a few thousand at a time.
--
-- Locks: the row of the current segment, and returns false if someone else has it; then as
-- awa.lock_in_lanes.
CREATE OR REPLACE FUNCTION awa.make_room() RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    newest bigint := pg_sequence_last_value('awa.segment_numbers');
    oldest smallint;
BEGIN
    PERFORM FROM awa.segments AS s WHERE s.number = newest FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF NOT EXISTS (SELECT FROM awa.segments AS s WHERE s.number = newest + 1) THEN
        SELECT s.segment INTO oldest FROM awa.segments AS s ORDER BY s.number LIMIT 1;
        PERFORM awa.carry(ARRAY(
            SELECT a.id FROM awa.segment_lanes(oldest) AS l
             CROSS JOIN LATERAL awa.lane_cursor(oldest, l.queue, l.kind, l.priority) AS c
             CROSS JOIN LATERAL awa.lane_ahead(
                   oldest, l.queue, l.kind, l.priority, c.xid, c.id, c.open_xids, c.open_ids,
                   5000) AS a
             LIMIT 5000));
    END IF;
    RETURN true;
END
$$;
