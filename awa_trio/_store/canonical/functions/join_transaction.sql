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
    identity := awa.database_identity();
    transaction := pg_current_xact_id();
    running := EXISTS (SELECT FROM awa.jobs AS j
                        WHERE j.id = job_id AND j.run_lease = join_transaction.run_lease
                          AND j.worker_id = worker AND j.state = 'running');
END
$$;
