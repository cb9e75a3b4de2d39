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
-- Locks, in this order: the worker's row; as awa.carry; the job.
CREATE OR REPLACE FUNCTION awa.register_callback(
    worker bigint, job_id bigint, run_lease bigint, token text, timeout double precision
) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM awa.lock_worker(worker);
    PERFORM awa.carry(ARRAY[job_id]);
    RETURN awa.register_callback_of_row(worker, job_id, run_lease, token, timeout);
END
$$;
