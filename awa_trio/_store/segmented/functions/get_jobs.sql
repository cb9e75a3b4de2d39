-- get_jobs: jobs as people read them.
--
--   ids  bigint[]  the jobs
--
-- Returns a row for each that exists.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.get_jobs(ids bigint[]) RETURNS SETOF awa.job
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
    SELECT r.* FROM awa.get_rows(ids) AS r
     UNION ALL
    SELECT s.id, s.kind, s.queue, s.priority, s.attempt::smallint, s.max_attempts, s.args,
           s.metadata, s.tags, s.created_at, s.created_at, s.deadline, NULL, s.attempt, s.state,
           NULL, s.worker_id, s.claimed_at, s.deadline_at, s.completed_at, s.unique_key,
           s.unique_states, NULL, NULL, NULL, NULL, NULL, NULL, NULL
      FROM awa.lane_states AS s WHERE s.id = ANY (ids)
$$;
