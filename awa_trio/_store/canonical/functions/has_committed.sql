-- has_committed: whether a transaction in which an attempt completed its job has committed.
--
-- For a COMMIT whose answer was lost. The server knows what became of the transaction, and
-- the row whether that is part of history: after a failover to a standby that had not heard
-- of the commit, its number may be another's.
--
--   job_id       bigint  the job
--   run_lease    bigint  the lease it was completed under
--   transaction  text    as awa.join_transaction returned it
--
-- Returns true, or false for good; null while the transaction is still under way.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.has_committed(job_id bigint, run_lease bigint, transaction text)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    status text;
BEGIN
    BEGIN
        status := pg_xact_status(transaction::xid8);
    EXCEPTION WHEN invalid_parameter_value THEN
        status := 'aborted';  -- It lies in this server's future.
    END;
    IF status = 'in progress' THEN
        RETURN NULL;
    END IF;
    -- Too old to have a status, or committed: then the row is visible to this statement.
    RETURN status IS DISTINCT FROM 'aborted'
       AND EXISTS (SELECT FROM awa.jobs AS j
                    WHERE j.id = job_id AND j.run_lease = has_committed.run_lease
                      AND j.state = 'completed');
END
$$;
