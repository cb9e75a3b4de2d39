-- list_schedules: what is known of schedules.
--
--   names  text[]  which; null for all
--
-- Returns a row for each that exists, in the order of their names, with the time now.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.list_schedules(names text[])
RETURNS TABLE (
    name text, expression text, timezone text, kind text, missed text, since timestamptz,
    cursor timestamptz, fires bigint, fired_for timestamptz, fired_at timestamptz,
    last_job_id bigint, paused_at timestamptz, seen_at timestamptz, error text, now timestamptz)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT s.name::text, s.expression, s.timezone, s.kind, s.missed, s.since, s.cursor,
               s.fires, s.fired_for, s.fired_at, s.last_job_id, s.paused_at, s.seen_at, s.error,
               clock_timestamp()
          FROM awa.schedules AS s
         WHERE list_schedules.names IS NULL OR s.name = ANY (list_schedules.names)
         ORDER BY s.name;
END
$$;
