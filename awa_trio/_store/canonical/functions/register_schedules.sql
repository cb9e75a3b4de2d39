-- register_schedules: say that an application has these schedules.
--
--   names        text[]   1 to 200 characters each, and each once
--   expressions  text[]   when they fire, in words
--   timezones    text[]   the zones whose clocks those mean; null for none
--   kinds        text[]   the kinds of their jobs; null if a function decides
--   missed       text[]   what becomes of missed fires
--   errors       text[]   why a fire could not be made; null if nothing is wrong
--   anew         boolean  whether those whose expression or zone has changed begin anew
--
-- Returns nothing. A schedule that is not known begins now: nothing before this moment is
-- missed, and periods count from its second.
--
-- Locks: the rows of the schedules, by name.
CREATE OR REPLACE FUNCTION awa.register_schedules(
    names text[], expressions text[], timezones text[], kinds text[], missed text[],
    errors text[], anew boolean
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    present timestamptz := clock_timestamp();
BEGIN
    INSERT INTO awa.schedules AS s
           (name, expression, timezone, kind, missed, since, cursor, seen_at, error)
    SELECT n.name, n.expression, n.timezone, n.kind, n.missed,
           date_trunc('second', present), present, present, n.error
      FROM unnest(names, expressions, timezones, kinds, register_schedules.missed, errors)
           AS n (name, expression, timezone, kind, missed, error)
     ORDER BY n.name
        ON CONFLICT ON CONSTRAINT schedules_pkey
        DO UPDATE SET
           expression = excluded.expression, timezone = excluded.timezone,
           kind = excluded.kind, missed = excluded.missed, error = excluded.error,
           seen_at = clock_timestamp(),
           since = CASE WHEN anew AND (s.expression, s.timezone) IS DISTINCT FROM
                                      (excluded.expression, excluded.timezone)
                        THEN excluded.since ELSE s.since END,
           cursor = CASE WHEN anew AND (s.expression, s.timezone) IS DISTINCT FROM
                                       (excluded.expression, excluded.timezone)
                         THEN greatest(s.cursor, excluded.cursor) ELSE s.cursor END;
END
$$;
