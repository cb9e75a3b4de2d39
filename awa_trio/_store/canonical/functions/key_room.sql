-- key_room: how many jobs with a limit key may start now.
--
--   of_queue     text              the queue
--   of_key       text              the limit key
--   most         int               how many the caller has room for
--   max_per_key  int               how many may be under way at once; null: any number
--   rate         double precision  how many may start in a second; null: any number
--   burst        double precision  how many may at once
--
-- Returns `most`, or less. Attempts that run, and those whose handlers wait in memory for a
-- callback, are under way.
--
-- Locks: none; the caller has the queue's row. The caller's settings hold here, too.
CREATE OR REPLACE FUNCTION awa.key_room(
    of_queue text, of_key text, most int, max_per_key int, rate double precision,
    burst double precision
) RETURNS int
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF max_per_key IS NOT NULL THEN
        most := least(most, max_per_key - (
            SELECT count(*) FROM (
                SELECT FROM awa.jobs AS j
                 WHERE j.queue = of_queue AND j.limit_key = of_key AND j.worker_id IS NOT NULL
                 LIMIT max_per_key) AS held));
    END IF;
    IF rate IS NOT NULL AND most > 0 THEN
        most := least(most, floor(
            awa.tokens(of_queue, of_key, rate, burst, clock_timestamp()) + 1e-6)::int);
    END IF;
    RETURN greatest(most, 0);
END
$$;
