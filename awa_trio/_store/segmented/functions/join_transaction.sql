-- join_transaction: find out, in a transaction of a handler's own, what its attempt must
-- know before it completes in it.
--
--   worker     bigint  the worker that runs the attempt
--   job_id     bigint  its job
--   run_lease  bigint  the lease of the attempt
--
-- Returns one row:
--   identity     text     which database this is, as awa.database_identity
--   transaction  text     what awa.has_committed knows the transaction by
--   running      boolean  whether the attempt runs under this lease, at this moment; the
--                         settlement has the last word
--
-- A transaction that keeps its first snapshot could not complete a job that leaves its lane
-- meanwhile: AW003, and the caller is to let it leave first (awa.carry), and begin again.
--
-- Locks: none. The transaction is the handler's, and may take its time; whoever rescues
-- or cancels the job must not wait for it.
CREATE OR REPLACE FUNCTION awa.join_transaction(
    worker bigint, job_id bigint, run_lease bigint,
    OUT identity text, OUT transaction text, OUT running boolean
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed'
       AND EXISTS (SELECT FROM awa.lane_jobs AS b WHERE b.id = job_id) THEN
        RAISE EXCEPTION 'job % is in a lane', job_id USING ERRCODE = 'AW003';
    END IF;
    SELECT r.identity, r.transaction,
           r.running OR run_lease = 1 AND EXISTS (
               SELECT FROM awa.lane_states AS s
                WHERE s.id = job_id AND s.worker_id = worker AND s.state = 'running')
      INTO identity, transaction, running
      FROM awa.join_transaction_of_row(worker, job_id, run_lease) AS r;
END
$$;
