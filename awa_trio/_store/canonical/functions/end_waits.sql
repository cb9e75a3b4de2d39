-- end_waits: let attempts that wait in the memory of their worker run on.
--
--   worker      bigint              the worker's ID
--   job_ids     bigint[]            the jobs
--   run_leases  bigint[]            guard: the leases of their attempts
--   tokens      text[]              guard: the callbacks they wait for
--   seconds     double precision[]  what is left of each one's deadline; null: no limit
--
-- Returns a row per attempt that is the worker's and expects this callback: its number,
-- from 1; whether it waits, which it does not; and the answer, if there is one. No row:
-- the attempt has been settled by others.
--
-- Locks, in this order: the worker's row; the jobs, by ID; for a job whose mask tells
-- waiting from running, the claim of its unique key, which it lets go of.
CREATE OR REPLACE FUNCTION awa.end_waits(
    worker bigint, job_ids bigint[], run_leases bigint[], tokens text[], seconds double precision[]
) RETURNS TABLE (number int, waits boolean, answer json)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    ended int[]; answers json[]; releasing bigint[]; released_keys bytea[];
BEGIN
    PERFORM awa.lock_worker(worker);
    WITH moved AS (
        UPDATE awa.jobs AS j
           SET state = 'running',
               deadline_at = clock_timestamp() + make_interval(secs => w.seconds)
          FROM (SELECT * FROM unnest(job_ids, run_leases, tokens, seconds)
                       WITH ORDINALITY AS u (job_id, run_lease, token, seconds, number)
                 ORDER BY u.job_id) AS w
         WHERE j.id = w.job_id AND j.run_lease = w.run_lease AND j.callback_token = w.token
           AND j.worker_id = worker AND j.state IN ('running', 'waiting_external')
        RETURNING w.number::int, j.id, j.unique_key,
                  CASE WHEN j.callback_until IS NULL THEN j.callback_answer END AS answer,
                  awa.holds(j.unique_states, 'waiting_external')
                  AND NOT awa.holds(j.unique_states, 'running') AS releases)
    SELECT array_agg(m.number), array_agg(m.answer),
           array_agg(m.id) FILTER (WHERE m.releases),
           array_agg(m.unique_key) FILTER (WHERE m.releases)
      INTO ended, answers, releasing, released_keys
      FROM moved AS m;
    IF releasing IS NOT NULL THEN
        PERFORM awa.exchange_keys(releasing, released_keys, NULL, NULL);
    END IF;
    RETURN QUERY SELECT e.number, false, e.answer FROM unnest(ended, answers) AS e (number, answer);
END
$$;
