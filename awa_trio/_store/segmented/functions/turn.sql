-- turn: truncate the segments that are over, begin the next one if it is time, and see which of
-- the older are drained.
--
--   completed  double precision  seconds a completed job is kept: a segment takes a quarter of that
--
-- Returns how many jobs were in the segments that it truncated. A segment stays while a job in
-- it may not go yet, or holds a unique key: those go with their keys first, a few at a time.
--
-- Locks: what awa.truncate_segment locks; then a segment that is being drained, against those
-- that would append to it, if none does. The caller has the row of the current segment.
CREATE OR REPLACE FUNCTION awa.turn(completed double precision) RETURNS int
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    newest bigint := pg_sequence_last_value('awa.segment_numbers');
    expired timestamptz := clock_timestamp() - make_interval(secs => least(completed, 1e9));
    removed int := 0;
    place record;
BEGIN
    FOR place IN SELECT s.segment FROM awa.segments AS s
                  WHERE s.over AND completed < 'infinity' ORDER BY s.number
    LOOP
        CONTINUE WHEN EXISTS (
            SELECT FROM awa.lane_ends AS e
             WHERE e.segment = place.segment AND e.completed AND e.at >= expired);
        CONTINUE WHEN EXISTS (
            SELECT FROM awa.lane_jobs AS b
             WHERE b.segment = place.segment AND b.unique_key IS NOT NULL);
        removed := removed + awa.truncate_segment(place.segment);
    END LOOP;
    IF completed < 'infinity'
       AND EXISTS (SELECT FROM awa.segments AS s WHERE s.number = newest + 1)
       AND EXISTS (SELECT FROM awa.lane_jobs AS b WHERE b.segment = awa.segment_of(newest))
       AND EXISTS (SELECT FROM awa.segments AS s
                    WHERE s.number = newest
                      AND (s.opened_at < clock_timestamp() - make_interval(secs => completed / 4)
                           OR pg_relation_size(format('awa.lane_jobs_%s', s.segment)) > 2::bigint ^ 30))
    THEN
        UPDATE awa.segments AS s SET opened_at = clock_timestamp() WHERE s.number = newest + 1;
        PERFORM nextval('awa.segment_numbers');
    END IF;
    FOR place IN SELECT s.segment FROM awa.segments AS s
                  WHERE s.number < newest AND NOT s.drained ORDER BY s.number
    LOOP
        BEGIN
            -- From here on nobody has appended to it what cannot be seen; whoever will, is to
            -- find that it is not the current one, and take it back.
            EXECUTE format('LOCK TABLE awa.lane_jobs_%s IN SHARE MODE NOWAIT', place.segment);
            UPDATE awa.segments AS s SET drained = true
             WHERE s.segment = place.segment AND NOT EXISTS (
                   SELECT FROM awa.segment_lanes(place.segment) AS l
                    CROSS JOIN LATERAL awa.lane_cursor(
                          place.segment, l.queue, l.kind, l.priority) AS c
                    CROSS JOIN LATERAL awa.lane_ahead(
                          place.segment, l.queue, l.kind, l.priority, c.xid, c.id, c.open_xids,
                          c.open_ids, 1) AS a);
        EXCEPTION WHEN lock_not_available THEN
            CONTINUE;
        END;
    END LOOP;
    RETURN removed;
END
$$;
