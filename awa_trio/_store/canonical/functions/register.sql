-- register: begin the life of a worker.
--
--   name   text              for people: host, process
--   lease  double precision  seconds without a beat after which it is presumed dead
--
-- Returns its ID, never used again.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.register(name text, lease double precision) RETURNS bigint
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO awa.workers (name, lease) VALUES (name, make_interval(secs => lease)) RETURNING id
$$;
