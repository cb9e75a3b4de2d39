-- lead: take or keep a duty that one worker does for all.
--
--   duty     text              which
--   worker   bigint            the worker's ID
--   seconds  double precision  for how long
--
-- Returns whether the worker has the duty. It passes to another when the time is up
-- without having been extended, or when its holder unregisters.
--
-- Locks: the duty's row.
CREATE OR REPLACE FUNCTION awa.lead(duty text, worker bigint, seconds double precision)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
BEGIN
    INSERT INTO awa.leaders AS l (duty, worker_id, until)
    VALUES (lead.duty, worker, clock_timestamp() + make_interval(secs => seconds))
        ON CONFLICT ON CONSTRAINT leaders_pkey
        DO UPDATE SET worker_id = excluded.worker_id, until = excluded.until
     WHERE l.worker_id = excluded.worker_id OR l.until < clock_timestamp();
    RETURN FOUND;
END
$$;
