-- add_error: a job's errors with one more.
--
--   errors    jsonb    the list so far; null for none
--   error     text     what happened
--   attempt   int      the attempt it happened in
--   terminal  boolean  whether the job ended with it
--
-- Returns the list, oldest first, of the latest 25: the default number of attempts.
-- A row with a thousand of them would be written a thousand times. What is no list, which
-- somebody wrote by hand, becomes one: a path that is lax takes it for its only element. The
-- job could never be settled otherwise.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.add_error(errors jsonb, error text, attempt int, terminal boolean)
RETURNS jsonb
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_path_query_array(coalesce(errors, '[]'), '$[last - 23 to last]')
           || jsonb_build_array(jsonb_build_object(
                  'error', error, 'attempt', attempt, 'terminal', terminal,
                  'at', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))
$$;
