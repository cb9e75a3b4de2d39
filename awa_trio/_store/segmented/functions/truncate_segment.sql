-- truncate_segment: empty a segment all of whose jobs are over, and put it back into the ring.
--
--   wanted  smallint  the segment
--
-- Returns how many jobs were in it: 0 as well if someone is reading it, and it stays.
--
-- Locks: the segment's three tables, ACCESS EXCLUSIVE, waiting 50 ms for each at most.
CREATE OR REPLACE FUNCTION awa.truncate_segment(wanted smallint) RETURNS int
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '50ms'
AS $$
DECLARE
    removed int;
BEGIN
    EXECUTE format('LOCK TABLE awa.lane_jobs_%1$s, awa.lane_claims_%1$s, awa.lane_ends_%1$s'
                   ' IN ACCESS EXCLUSIVE MODE', wanted);
    SELECT count(*) INTO removed FROM awa.lane_jobs AS b WHERE b.segment = wanted;
    EXECUTE format('TRUNCATE awa.lane_jobs_%1$s, awa.lane_claims_%1$s, awa.lane_ends_%1$s', wanted);
    UPDATE awa.segments AS s
       SET number = s.number + (SELECT count(*) FROM awa.segments), drained = false, over = false
     WHERE s.segment = wanted;
    RETURN removed;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN 0;
END
$$;
