-- find_callback: the job that a callback belongs to.
--
--   token  text  what names the callback
--
-- Returns the job, as awa.get_jobs does. No row: the callback was never registered, or
-- has been replaced, or its job has moved on without it. Only jobs that have rows wait, so
-- whoever resolves callbacks need not be able to read the lanes.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.find_callback(token text) RETURNS SETOF awa.job
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
    SELECT g.* FROM awa.jobs AS j CROSS JOIN LATERAL awa.get_rows(ARRAY[j.id]) AS g
     WHERE j.callback_token = token
$$;
