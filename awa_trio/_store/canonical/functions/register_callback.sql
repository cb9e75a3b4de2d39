-- register_callback: let a running attempt expect a callback, in place of any it expected before.
--
--   worker     bigint            the worker that runs it
--   job_id     bigint            the job
--   run_lease  bigint            guard: the lease of the attempt
--   token      text              what names the callback; never used before
--   timeout    double precision  seconds until it times out
--
-- Returns false if the attempt is not running under this lease.
--
-- Locks: the worker's row; the job.
CREATE OR REPLACE FUNCTION awa.register_callback(
    worker bigint, job_id bigint, run_lease bigint, token text, timeout double precision
) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM awa.lock_worker(worker);
    UPDATE awa.jobs AS j
       SET callback_token = token,
           callback_until = clock_timestamp() + make_interval(secs => timeout)
     WHERE j.id = job_id AND j.run_lease = register_callback.run_lease AND j.state = 'running'
       AND j.worker_id = worker;
    RETURN FOUND;
END
$$;
