-- prune: remove settled jobs whose retention has passed, and their hold on their unique keys.
--
--   completed     double precision  seconds a completed job is kept; infinite: for ever
--   failed        double precision  seconds a failed or cancelled job is kept
--   dead_letters  double precision  seconds a dead letter is kept
--   most          int               how many to remove
--
-- Returns how many were removed. In one transaction with their keys, so that the time
-- in which a finished job blocks its duplicates is its retention.
--
-- Locks: the jobs, skipping those that anyone else has locked; then the claims of their
-- unique keys, in byte order.
CREATE OR REPLACE FUNCTION awa.prune(
    completed double precision, failed double precision, dead_letters double precision, most int
) RETURNS int
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT awa.remove_jobs(awa.old_jobs(completed, failed, dead_letters, most))
      FROM awa.prune_buckets()
$$;
