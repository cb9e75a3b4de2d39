-- pause_schedule: keep a schedule from firing, or let it go on.
--
--   schedule  text     its name
--   paused    boolean  whether it is to be paused
--
-- Returns whether there is such a schedule. It goes on with what comes then: nothing that has
-- passed by that moment is fired for.
--
-- Locks: the schedule's row.
CREATE OR REPLACE FUNCTION awa.pause_schedule(schedule text, paused boolean) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE awa.schedules AS s
       SET paused_at = CASE WHEN paused THEN coalesce(s.paused_at, clock_timestamp()) END,
           cursor = CASE WHEN paused OR s.paused_at IS NULL THEN s.cursor
                         ELSE greatest(s.cursor, clock_timestamp()) END
     WHERE s.name = schedule;
    RETURN FOUND;
END
$$;
