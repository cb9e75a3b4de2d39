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
-- Locks, in this order: the worker's row; the jobs, by ID. Waits at most 250 ms for each.
CREATE OR REPLACE FUNCTION awa.record_progress(
    worker bigint, job_ids bigint[], run_leases bigint[], progress json[]
) RETURNS SETOF bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms'
AS $$
BEGIN
    PERFORM awa.lock_worker(worker);
    RETURN QUERY
    UPDATE awa.jobs AS j
       SET progress = p.progress
      FROM (SELECT * FROM unnest(job_ids, run_leases, record_progress.progress)
                       AS u (job_id, run_lease, progress)
             ORDER BY u.job_id) AS p
     WHERE j.id = p.job_id AND j.run_lease = p.run_lease AND j.worker_id = worker
       AND j.state IN ('running', 'waiting_external')
    RETURNING j.id;
END
$$;
