-- rotate: begin the next segment if it is time, and see which of the older are drained.
--
--   completed  double precision  seconds a completed job is kept: a segment takes a quarter of that
--   newest     bigint            the number of the current segment, whose row the caller has locked
--
-- Returns nothing. Where the ring is full, the jobs that nobody claims are moved out of its
-- oldest segment into awa.jobs, a few thousand at a time.
--
-- Locks: as awa.lock_in_lanes; then a segment that is being drained, against those that would
-- append to it, if none does.
CREATE OR REPLACE FUNCTION awa.rotate(completed double precision, newest bigint) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    oldest smallint;
    place record;
    drained boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM awa.segments AS s WHERE s.number = newest + 1) THEN
        SELECT s.segment INTO oldest FROM awa.segments AS s ORDER BY s.number LIMIT 1;
        PERFORM awa.carry(ARRAY(
            SELECT a.id FROM awa.segment_lanes(oldest) AS l
             CROSS JOIN LATERAL awa.lane_cursor(oldest, l.queue, l.kind, l.priority) AS c
             CROSS JOIN LATERAL awa.lane_ahead(
                   oldest, l.queue, l.kind, l.priority, c.xid, c.id, c.open_xids, c.open_ids,
                   5000) AS a
             LIMIT 5000));
    ELSIF completed < 'infinity'
        AND EXISTS (SELECT FROM awa.lane_jobs AS b
                     WHERE b.segment = awa.segment_of(newest))
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
END
$$;
