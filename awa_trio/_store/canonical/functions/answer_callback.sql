-- answer_callback: leave the answer to a callback for the attempt that holds the job.
--
--   job_id     bigint  the job
--   run_lease  bigint  guard: the lease of the attempt
--   token      text    guard: the callback it expects
--   answer     json    {"token": ..., "payload": ...}
--
-- Returns false if no worker holds the job under this lease, or its callback is another or
-- has been answered. An attempt that waits is told on the channel awa:callbacks, with
-- the job and its lease.
--
-- Locks: the job's row.
CREATE OR REPLACE FUNCTION awa.answer_callback(
    job_id bigint, run_lease bigint, token text, answer json
) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    UPDATE awa.jobs AS j SET callback_answer = answer, callback_until = NULL
     WHERE j.id = job_id AND j.run_lease = answer_callback.run_lease AND j.callback_token = token
       AND j.callback_until IS NOT NULL AND j.worker_id IS NOT NULL
       AND j.state IN ('running', 'waiting_external');
    IF FOUND THEN
        PERFORM pg_notify('awa:callbacks', format('%s %s', job_id, run_lease));
        RETURN true;
    END IF;
    RETURN false;
END
$$;
