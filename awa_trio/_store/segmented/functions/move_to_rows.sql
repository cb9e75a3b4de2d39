-- move_to_rows: move jobs that the caller has locked out of their lanes into awa.jobs.
--
--   job_ids    bigint[]  the jobs
--   claims     bigint[]  the claims that have some of them; null for none
--   unclaimed  bigint[]  those that nobody has claimed; empty for none
--
-- Returns nothing. A job that has completed stays where it is.
--
-- Locks: the caller's, as awa.lock_in_lanes leaves them.
CREATE OR REPLACE FUNCTION awa.move_to_rows(job_ids bigint[], claims bigint[], unclaimed bigint[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    IF claims IS NOT NULL THEN
        WITH open AS MATERIALIZED (
            SELECT c.number, c.segment, c.worker_id, c.claimed_at, c.deadline,
                   c.ids - (SELECT coalesce(range_agg(e.ids), '{}') FROM awa.lane_ends AS e
                             WHERE e.segment = c.segment AND e.claim = c.number) AS ids
              FROM awa.lane_claims AS c WHERE c.number = ANY (claims)),
        gone AS (
            DELETE FROM awa.lane_jobs AS b
             USING unnest(job_ids) AS i (id) JOIN open AS o ON o.ids @> i.id
             WHERE b.segment = o.segment AND b.id = i.id
            RETURNING b.*, o.number, o.worker_id, o.claimed_at, o.deadline AS claim_deadline),
        ended AS (
            INSERT INTO awa.lane_ends (segment, claim, completed, ids)
            SELECT g.segment, g.number, false, range_agg(int8range(g.id, g.id + 1))
              FROM gone AS g GROUP BY g.segment, g.number)
        INSERT INTO awa.jobs
               (id, kind, queue, args, priority, max_attempts, metadata, tags, created_at, run_at,
                unique_key, unique_states, deadline, state, attempt, run_lease, worker_id,
                attempted_at, deadline_at)
        SELECT g.id, g.kind, g.queue, g.args, g.priority, g.max_attempts, g.metadata, g.tags,
               g.created_at, g.created_at, g.unique_key, g.unique_states, g.deadline, 'running', 1,
               1, g.worker_id, g.claimed_at,
               g.claimed_at + make_interval(secs => nullif(coalesce(g.deadline, g.claim_deadline), 0))
          FROM gone AS g;
    END IF;
    IF unclaimed <> '{}' THEN
        WITH gone AS (
            DELETE FROM awa.lane_jobs AS b WHERE b.id = ANY (unclaimed) RETURNING b.*)
        INSERT INTO awa.jobs
               (id, kind, queue, args, priority, max_attempts, metadata, tags, created_at, run_at,
                unique_key, unique_states, deadline)
        SELECT g.id, g.kind, g.queue, g.args, g.priority, g.max_attempts, g.metadata, g.tags,
               g.created_at, g.created_at, g.unique_key, g.unique_states, g.deadline
          FROM gone AS g;
    END IF;
END
$$;
