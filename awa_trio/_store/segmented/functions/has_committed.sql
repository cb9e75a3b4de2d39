-- has_committed: whether a transaction in which an attempt completed its job has committed.
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
    -- Before the look at the lanes: null says that it was too early to look.
    committed boolean := awa.has_committed_row(job_id, run_lease, transaction);
BEGIN
    IF committed IS FALSE THEN
        committed := run_lease = 1 AND EXISTS (
            SELECT FROM awa.lane_states AS s WHERE s.id = job_id AND s.state = 'completed');
    END IF;
    RETURN committed;
END
$$;
