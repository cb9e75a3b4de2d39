-- remove_schedule: forget a schedule.
--
--   schedule  text  its name
--
-- Returns whether there was one. A worker that has it begins it anew.
--
-- Locks: the schedule's row.
CREATE OR REPLACE FUNCTION awa.remove_schedule(schedule text) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM awa.schedules AS s WHERE s.name = schedule;
    RETURN FOUND;
END
$$;
