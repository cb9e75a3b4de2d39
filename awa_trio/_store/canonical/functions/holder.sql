-- holder: the job that holds a unique key.
--
--   wanted_key  bytea  the key, 16 bytes
--
-- Returns its ID; null if no job is in a state of its own mask with this key.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.holder(wanted_key bytea) RETURNS bigint
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
    SELECT c.job_id FROM awa.unique_claims AS c WHERE c.unique_key = wanted_key
$$;
