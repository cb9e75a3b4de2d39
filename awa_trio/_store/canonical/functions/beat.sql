-- beat: renew a worker's lease.
--
--   worker  bigint  the worker's ID
--
-- Returns true; false when the worker is fenced or unknown, and nothing it does counts
-- any more.
--
-- Locks: the worker's row, FOR NO KEY UPDATE: claims and settlements in flight do not wait.
CREATE OR REPLACE FUNCTION awa.beat(worker bigint) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE awa.workers AS w SET beat_at = clock_timestamp()
     WHERE w.id = worker AND w.fenced_at IS NULL;
    RETURN FOUND;
END
$$;
