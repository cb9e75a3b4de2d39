-- storage: what the jobs take up, and where.
--
-- Returns a row per part: its name; what it is good for at present; roughly how many jobs are in
-- it, as the statistics say; its size in bytes with its indexes.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.storage()
RETURNS TABLE (part text, condition text, jobs bigint, bytes bigint)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'rows', 'jobs that are updated in place', pg_stat_get_live_tuples('awa.jobs'::regclass),
           pg_total_relation_size('awa.jobs')
$$;
