-- unregister: end the life of a worker.
--
--   worker  bigint  the worker's ID
--
-- Returns nothing. Jobs still marked as its own are rescued like a dead worker's, so
-- a worker that hands its jobs back first loses nothing by it.
--
-- Locks: the worker's row; waits for its own claims and settlements in flight.
CREATE OR REPLACE FUNCTION awa.unregister(worker bigint) RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM awa.workers WHERE id = worker;
    DELETE FROM awa.leaders WHERE worker_id = worker
$$;
