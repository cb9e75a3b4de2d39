-- record_progress: keep what running attempts say about how far they have come.
--
-- One call is all attempts of a worker that have something new to say.
--
--   worker      bigint    the worker whose attempts these are
--   job_ids     bigint[]  the jobs, each at most once
--   run_leases  bigint[]    guard: the lease of the attempt
--   progress    json[]      what it says, in place of what the row has
--
-- Returns the jobs whose guard held; an attempt that is not among them is not this
-- worker's any more.
--
-- Locks, in this order: the worker's row; as awa.carry; the jobs, by ID. Waits at most
-- 250 ms for each.
CREATE OR REPLACE FUNCTION awa.record_progress(
    worker bigint, job_ids bigint[], run_leases bigint[], progress json[]
) RETURNS SETOF bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '250ms'
AS $$
BEGIN
    PERFORM awa.lock_worker(worker);
    PERFORM awa.carry(job_ids);
    RETURN QUERY SELECT * FROM awa.record_progress_of_rows(worker, job_ids, run_leases, progress);
END
$$;
