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
    SELECT j.id, j.kind, j.queue, j.priority, j.attempt, j.max_attempts, j.args, j.metadata, j.tags,
           j.created_at, j.run_at, j.deadline, j.ordering_key, j.run_lease, j.state::text, j.errors,
           j.worker_id, j.attempted_at, j.deadline_at, j.finalized_at, j.unique_key, j.unique_states,
           j.progress, j.callback_answer, j.output, j.dead_letter, j.callback_token, j.callback_until,
           j.limit_key
      FROM awa.jobs AS j WHERE j.id = ANY (ids)
$$;
