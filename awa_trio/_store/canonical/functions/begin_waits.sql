-- begin_waits: let attempts wait for their callbacks in the memory of their worker.
--
--   worker      bigint    the worker's ID
--   job_ids     bigint[]  the jobs
--   run_leases  bigint[]  guard: the leases of their attempts
--   tokens      text[]    guard: the callbacks they expect
--
-- Returns a row per attempt that is the worker's and expects this callback: its number,
-- from 1; whether the job waits now; and the answer, if there is one already: then the
-- job runs on. No row: the attempt has been settled, or has registered another callback.
--
-- The job keeps its worker, so that whoever resolves the callback knows that a handler
-- waits, and its clock stops.
--
-- Locks, in this order: the worker's row; the jobs, by ID; for a job whose mask tells
-- waiting from running, the claim of its unique key. One that finds it taken is cancelled.
CREATE OR REPLACE FUNCTION awa.begin_waits(
    worker bigint, job_ids bigint[], run_leases bigint[], tokens text[]
) RETURNS TABLE (number int, waits boolean, answer json)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    begun int[]; waiting boolean[]; answers json[]; ids bigint[];
    taking bigint[]; taken_keys bytea[]; losers bigint[]; holders bigint[];
BEGIN
    PERFORM awa.lock_worker(worker);
    WITH moved AS (
        UPDATE awa.jobs AS j
           SET state = CASE WHEN j.callback_until IS NULL THEN j.state ELSE 'waiting_external' END,
               deadline_at = CASE WHEN j.callback_until IS NULL THEN j.deadline_at END
          FROM (SELECT * FROM unnest(job_ids, run_leases, tokens)
                       WITH ORDINALITY AS u (job_id, run_lease, token, number)
                 ORDER BY u.job_id) AS w
         WHERE j.id = w.job_id AND j.run_lease = w.run_lease AND j.callback_token = w.token
           AND j.worker_id = worker AND j.state IN ('running', 'waiting_external')
        RETURNING w.number::int, j.id, j.state = 'waiting_external' AS waits, j.unique_key,
                  CASE WHEN j.callback_until IS NULL THEN j.callback_answer END AS answer,
                  awa.holds(j.unique_states, j.state)
                  AND NOT awa.holds(j.unique_states, 'running') AS takes)
    SELECT array_agg(m.number), array_agg(m.waits), array_agg(m.answer), array_agg(m.id),
           array_agg(m.id ORDER BY m.number) FILTER (WHERE m.takes),
           array_agg(m.unique_key ORDER BY m.number) FILTER (WHERE m.takes)
      INTO begun, waiting, answers, ids, taking, taken_keys
      FROM moved AS m;
    IF taking IS NOT NULL THEN
        SELECT array_agg(x.job_id), array_agg(x.holder_id) INTO losers, holders
          FROM awa.exchange_keys(NULL, NULL, taking, taken_keys) AS x;
        UPDATE awa.jobs AS j SET worker_id = NULL, callback_token = NULL, callback_until = NULL,
                                 state = 'available'
         WHERE j.id = ANY (losers);
        PERFORM awa.cancel_duplicates(losers, holders);
    END IF;
    RETURN QUERY SELECT b.number, b.waits, b.answer
                   FROM unnest(begun, waiting, answers, ids) AS b (number, waits, answer, id)
                  WHERE losers IS NULL OR b.id <> ALL (losers);
END
$$;
