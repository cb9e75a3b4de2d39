-- remove_jobs: remove jobs, and their hold on their unique keys, in one transaction.
--
--   ids  bigint[]  the jobs, locked by the caller; null for none
--
-- Returns how many were removed.
--
-- Locks: the claims of their unique keys, in byte order.
CREATE OR REPLACE FUNCTION awa.remove_jobs(ids bigint[]) RETURNS int
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    gone record;
BEGIN
    SELECT * INTO gone FROM awa.delete_jobs(ids);
    IF gone.keys IS NOT NULL THEN
        PERFORM awa.exchange_keys(gone.holding, gone.keys, NULL, NULL);
    END IF;
    RETURN gone.removed;
END
$$;
