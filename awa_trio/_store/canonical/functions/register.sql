-- register: begin the life of a worker.
--
--   name    text              for people: host, process
--   lease   double precision  seconds without a beat after which it is presumed dead
--   queues  text[]            the queues it serves, for people; null: it does not say
--   kinds   text[]            the kinds it can run, likewise
--
-- Returns its ID, never used again.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.register(
    name text, lease double precision, queues text[] DEFAULT NULL, kinds text[] DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO awa.workers (name, lease, queues, kinds)
    VALUES (name, make_interval(secs => lease), queues, kinds) RETURNING id
$$;
